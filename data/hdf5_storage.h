#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bertha {

// How the values of an HDF5 dataset are stored; for hdf5_file.cpp, which holds the library's lock.
// `where` begins the messages: file and dataset. Errors: Error(kData).

/// Refuses a dataset that is not in the file itself.
void refuse_link(int64_t file, const std::string& name, const std::string& where);

/// Refuses values in other files, filters that are not read, rows that were never written, and
/// sizes that a file of so many bytes cannot hold. Nothing of a stated size is allocated before.
void check_storage(int64_t dataset, int64_t file_bytes, const std::string& where);

/// The row descriptors of a filtered ragged dataset that passed check_storage().
std::vector<std::byte> read_filtered_descriptors(int64_t dataset, const std::string& where);

}  // namespace bertha
