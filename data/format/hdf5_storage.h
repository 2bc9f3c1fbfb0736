#pragma once

#include <cstdint>
#include <string>

#include "data/files/byte_file.h"
#include "data/format/hdf5_file.h"

namespace bertha {

// How the values of an HDF5 dataset are stored; for hdf5_file.cpp, which holds the library's lock.
// `where` begins the messages: file and dataset. Errors: Error(kData).

/// Refuses a file whose superblock (version 0 or 1) has a driver information block: the library
/// takes memory for the size that it states. Files in several parts have one, shards do not.
void refuse_driver_information(const ByteFile& file, const std::string& path);

/// Refuses a dataset that is not in the file itself.
void refuse_link(int64_t file, const std::string& name, const std::string& where);

/// Refuses values in other files, filters that are not read, rows that were never written, and
/// sizes that a file of so many bytes cannot hold. Nothing of a stated size is allocated before.
void check_storage(int64_t dataset, int64_t file_bytes, const std::string& where);

/// Teaches the library h5py's LZF filter, and to read lists as descriptor_type(): it would
/// otherwise turn them into pointers, and trust their sizes.
void prepare_library();

/// To be called before values of a dataset are read.
void expect_chunks_of(int64_t dataset, const std::string& where);

/// What the file has for a list: kRowDescriptorBytes.
Hdf5Id descriptor_type();

}  // namespace bertha
