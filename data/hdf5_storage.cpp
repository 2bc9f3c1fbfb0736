#include "data/hdf5_storage.h"

#include <algorithm>
#include <array>
#include <limits>

#include "data/hdf5_calls.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kMostDeflateRatio = 1032;  // 258 bytes take at least 2 bits

/// a * b, or the largest number when that is more.
int64_t times(int64_t a, hsize_t b) {
  int64_t product = 0;
  const bool too_large = __builtin_mul_overflow(a, b, &product);
  return too_large ? std::numeric_limits<int64_t>::max() : product;
}

Hdf5Id creation_of(hid_t dataset, const std::string& where) {
  return own(H5Dget_create_plist(dataset), H5Pclose, where, " has no layout");
}

struct Filter {
  H5Z_filter_t id = H5Z_FILTER_NONE;
  unsigned flags = 0;
  std::array<unsigned, 16> values{};
  size_t num_values = 16;
  std::array<char, 32> name{};
};

std::vector<Filter> filters_of(hid_t creation, const std::string& where) {
  std::vector<Filter> filters(static_cast<size_t>(std::max(0, H5Pget_nfilters(creation))));
  for (size_t i = 0; i < filters.size(); ++i) {
    Filter& filter = filters[i];
    filter.id = BERTHA_HDF5_CHECK(
        H5Pget_filter2(creation, static_cast<unsigned>(i), &filter.flags, &filter.num_values,
                       filter.values.data(), filter.name.size() - 1, filter.name.data(), nullptr),
        where, " has a filter that cannot be read");
    filter.num_values = std::min(filter.num_values, filter.values.size());
  }
  return filters;
}

bool is_deflate(const Filter& filter) { return filter.id == H5Z_FILTER_DEFLATE; }

void refuse_other_filters(const std::vector<Filter>& filters, const std::string& where) {
  for (const Filter& filter : filters) {
    const bool known =
        is_deflate(filter) || filter.id == H5Z_FILTER_SHUFFLE || filter.id == H5Z_FILTER_FLETCHER32;
    if (known && H5Zfilter_avail(filter.id) > 0) continue;
    const std::string name = filter.name[0] == 0 ? concat(filter.id) : filter.name.data();
    fail(ExitCode::kData, where, " is stored with the filter ", name,
         known ? ", which this HDF5 library lacks" : ", want none, gzip, shuffle or fletcher32",
         "; rewrite the file with `h5repack -f NONE` where the filter is installed");
  }
}

/// The extents of a dataset; none for a scalar.
std::vector<hsize_t> extents_of(hid_t dataset, const std::string& where) {
  const Hdf5Id space = own(H5Dget_space(dataset), H5Sclose, where, " has no extents");
  std::vector<hsize_t> extents(H5S_MAX_RANK);
  const int rank = BERTHA_HDF5_CHECK(
      H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), where, " has no extents");
  extents.resize(static_cast<size_t>(rank));
  return extents;
}

std::vector<hsize_t> chunk_of(hid_t creation, size_t rank, const std::string& where) {
  std::vector<hsize_t> chunk(rank);
  const int found = H5Pget_chunk(creation, static_cast<int>(rank), chunk.data());
  if (found != static_cast<int>(rank) || std::find(chunk.begin(), chunk.end(), 0) != chunk.end()) {
    fail(ExitCode::kData, where, " has no chunk size; the file is damaged, make it again");
  }
  return chunk;
}

}  // namespace

void refuse_link(int64_t file, const std::string& name, const std::string& where) {
  H5L_info_t link{};
  BERTHA_HDF5_CHECK(H5Lget_info(file, name.c_str(), &link, H5P_DEFAULT), where, " is not there");
  if (link.type == H5L_TYPE_HARD) return;
  fail(ExitCode::kData, where,
       " is a soft or external link, which is not followed; want the dataset itself, write the "
       "file again without links");
}

void check_storage(int64_t dataset, int64_t file_bytes, const std::string& where) {
  const Hdf5Id creation = creation_of(dataset, where);
  if (H5Pget_external_count(creation.get()) != 0) {
    fail(ExitCode::kData, where, " has its values in other files; write the file with them inside");
  }
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  if (layout == H5D_VIRTUAL) {
    fail(ExitCode::kData, where,
         " is virtual: its values are in other files; write the file with them inside");
  }
  const std::vector<Filter> filters = filters_of(creation.get(), where);
  refuse_other_filters(filters, where);

  const std::vector<hsize_t> extents = extents_of(dataset, where);
  const Hdf5Id type = own(H5Dget_type(dataset), H5Tclose, where, " has no type");
  // Of a list that is hvl_t, which is as large as its descriptor in the file.
  auto stated_bytes = static_cast<int64_t>(H5Tget_size(type.get()));
  int64_t num_chunks = 1;
  if (extents.empty()) return;  // one value or none: the caller's complaint names the rank
  if (layout == H5D_CHUNKED) {
    const std::vector<hsize_t> chunk = chunk_of(creation.get(), extents.size(), where);
    for (size_t i = 0; i < extents.size(); ++i) {
      num_chunks = times(num_chunks, extents[i] / chunk[i] + (extents[i] % chunk[i] != 0));
      stated_bytes = times(stated_bytes, chunk[i]);
    }
    stated_bytes = times(stated_bytes, static_cast<hsize_t>(num_chunks));
  } else {
    for (const hsize_t extent : extents) stated_bytes = times(stated_bytes, extent);
  }
  if (stated_bytes == 0) return;

  const bool deflated = std::any_of(filters.begin(), filters.end(), is_deflate);
  const auto expect_room = [&](int64_t stored_bytes, const char* what) {
    const auto most = times(stored_bytes, deflated ? kMostDeflateRatio : 1);
    if (stated_bytes <= most && num_chunks <= file_bytes && stored_bytes <= file_bytes) return;
    fail(ExitCode::kData, where, " states ", extents[0], " rows, ", stated_bytes,
         " bytes in all, but ", what, " of ", stored_bytes, " bytes can hold at most ", most,
         "; the file is damaged, make it again");
  };
  expect_room(file_bytes, "the file");  // first: the library walks through all chunks below
  const auto stored_bytes = static_cast<int64_t>(H5Dget_storage_size(dataset));
  hsize_t found_chunks = 0;
  if (layout == H5D_CHUNKED) {
    const Hdf5Id space = own(H5Dget_space(dataset), H5Sclose, where, " has no extents");
    BERTHA_HDF5_CHECK(H5Dget_num_chunks(dataset, space.get(), &found_chunks), where,
                      ": cannot count its chunks");
  }
  if (stored_bytes == 0 || (layout == H5D_CHUNKED && times(1, found_chunks) < num_chunks)) {
    fail(ExitCode::kData, where, ": ", stored_bytes == 0 ? "its" : "some of its",
         " rows were never written; make the file again");
  }
  expect_room(stored_bytes, "its storage");
}

std::vector<std::byte> read_filtered_descriptors(int64_t dataset, const std::string& where) {
  // The library turns lists into pointers while it reads them, and trusts their sizes. So the
  // chunks go, as they are, into a dataset of 16-byte values in memory with the same filters.
  const auto need = [&](auto value) {
    return BERTHA_HDF5_CHECK(value, where, ": cannot undo its filters, the file is damaged");
  };
  const Hdf5Id creation = creation_of(dataset, where);
  const hsize_t num_rows = extents_of(dataset, where)[0];
  const hsize_t chunk_rows = chunk_of(creation.get(), 1, where)[0];
  const Hdf5Id access(need(H5Pcreate(H5P_FILE_ACCESS)), H5Pclose);
  constexpr size_t kGrowthBytes = size_t{1} << 20;
  need(H5Pset_fapl_core(access.get(), kGrowthBytes, false));
  const Hdf5Id file(need(H5Fcreate(where.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())),
                    H5Fclose);
  const Hdf5Id copied(need(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
  need(H5Pset_chunk(copied.get(), 1, &chunk_rows));
  for (const Filter& filter : filters_of(creation.get(), where)) {
    need(H5Pset_filter(copied.get(), filter.id, filter.flags, filter.num_values,
                       filter.values.data()));
  }
  const Hdf5Id type(need(H5Tcreate(H5T_OPAQUE, kRowDescriptorBytes)), H5Tclose);
  const Hdf5Id space(need(H5Screate_simple(1, &num_rows, nullptr)), H5Sclose);
  Hdf5Id copy(need(H5Dcreate2(file.get(), "rows", type.get(), space.get(), H5P_DEFAULT,
                              copied.get(), H5P_DEFAULT)),
              H5Dclose);
  const auto stored_bytes = H5Dget_storage_size(dataset);
  std::vector<std::byte> chunk;
  for (hsize_t first = 0; first < num_rows; first += chunk_rows) {
    hsize_t chunk_bytes = 0;
    need(H5Dget_chunk_storage_size(dataset, &first, &chunk_bytes));
    if (chunk_bytes == 0 || chunk_bytes > stored_bytes) {
      fail(ExitCode::kData, where, ": no chunk with row ", first, "; the file is damaged");
    }
    chunk.resize(chunk_bytes);
    uint32_t skipped_filters = 0;
    need(H5Dread_chunk(dataset, H5P_DEFAULT, &first, &skipped_filters, chunk.data()));
    need(H5Dwrite_chunk(copy.get(), H5P_DEFAULT, skipped_filters, &first, chunk.size(),
                        chunk.data()));
  }
  // Opened again, since the library remembers of the last chunk that no filter was skipped.
  need(copy.close_now() ? 0 : -1);
  copy = Hdf5Id(need(H5Dopen2(file.get(), "rows", H5P_DEFAULT)), H5Dclose);
  std::vector<std::byte> descriptors(num_rows * static_cast<size_t>(kRowDescriptorBytes));
  need(H5Dread(copy.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, descriptors.data()));
  return descriptors;
}

}  // namespace bertha
