#include "data/format/hdf5_storage.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>

#include "data/format/hdf5_calls.h"
#include "data/format/lzf.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr H5Z_filter_t kLzf = 32000;  // h5py's, in the registry of filters

/// The chunk size of the dataset that this thread reads: LZF streams do not state theirs, and h5py
/// puts it beside the filter for numbers only, not for lists.
thread_local size_t read_chunk_bytes = 0;

/// a * b, or the largest number when that is more.
int64_t times(int64_t a, hsize_t b) {
  int64_t product = 0;
  const bool too_large = __builtin_mul_overflow(a, b, &product);
  return too_large ? std::numeric_limits<int64_t>::max() : product;
}

Hdf5Id creation_of(hid_t dataset, const std::string& where) {
  return own(H5Dget_create_plist(dataset), H5Pclose, where, " has no layout");
}

/// Decodes a chunk for the library, which reads a whole chunk of what it gets: a stream that gives
/// less is filled up with zeros. Scale-offset before LZF makes chunks longer, by 21 bytes.
size_t decode_lzf(unsigned flags, size_t, const unsigned*, size_t num_bytes, size_t* capacity_bytes,
                  void** buffer) {
  if ((flags & H5Z_FLAG_REVERSE) == 0) return 0;
  const size_t most_bytes = read_chunk_bytes + 32;
  auto* decoded = static_cast<std::byte*>(H5allocate_memory(most_bytes, true));
  if (decoded == nullptr) return 0;
  const size_t decoded_bytes =
      lzf_decode({static_cast<const std::byte*>(*buffer), num_bytes}, {decoded, most_bytes});
  H5free_memory(decoded_bytes > 0 ? *buffer : decoded);
  if (decoded_bytes == 0) return 0;
  *buffer = decoded;
  *capacity_bytes = most_bytes;
  return decoded_bytes;
}

/// "Converts" a list to the 16 bytes that the file has for it.
herr_t keep_descriptor(hid_t, hid_t, H5T_cdata_t*, size_t, size_t, size_t, void*, void*, hid_t) {
  return 0;
}

/// How many times its storage a chunk of so many bytes can be; 0: the filter is not read.
int64_t most_ratio(H5Z_filter_t filter, int64_t chunk_bytes) {
  switch (filter) {
    case H5Z_FILTER_SHUFFLE:
    case H5Z_FILTER_FLETCHER32:
      return 1;
    case H5Z_FILTER_DEFLATE:
      return 1032;  // 258 bytes take at least 2 bits
    case kLzf:
      return 88;  // 264 bytes take at least 3
    case H5Z_FILTER_NBIT:
      return 16;  // an int16 takes at least a bit
    case H5Z_FILTER_SZIP:
      return 4096;  // 64 blocks of 32 equal int16 take at least a byte
    case H5Z_FILTER_SCALEOFFSET:
      return chunk_bytes / 21 + 1;  // equal values take the header
    default:
      return 0;
  }
}

/// The largest ratio of the filters of a dataset; refuses filters that are not read.
int64_t ratio_of_filters(hid_t creation, int64_t chunk_bytes, const std::string& where) {
  int64_t most = 1;
  for (int i = 0; i < H5Pget_nfilters(creation); ++i) {
    std::array<char, 32> name{};
    unsigned flags = 0;
    size_t num_values = 0;
    const H5Z_filter_t filter =
        checked(H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &num_values, nullptr,
                               name.size() - 1, name.data(), nullptr),
                where, " has a filter that cannot be read");
    const int64_t ratio = most_ratio(filter, chunk_bytes);
    most = std::max(most, ratio);
    if (ratio > 0 && H5Zfilter_avail(filter) > 0) continue;
    fail(ExitCode::kData, where, " is stored with the filter ",
         name[0] == 0 ? concat(filter) : name.data(),
         ratio > 0 ? ", which this HDF5 library lacks"
                   : ", want none or those that come with HDF5 and h5py",
         "; rewrite the file with `h5repack -f NONE` where the filter is installed");
  }
  return most;
}

/// The extents of a dataset; none for a scalar.
std::vector<hsize_t> extents_of(hid_t dataset, const std::string& where) {
  const Hdf5Id space = own(H5Dget_space(dataset), H5Sclose, where, " has no extents");
  std::vector<hsize_t> extents(H5S_MAX_RANK);
  const int rank = checked(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), where,
                           " has no extents");
  extents.resize(static_cast<size_t>(rank));
  return extents;
}

/// The extents of a chunk; none of a dataset without chunks.
std::vector<hsize_t> chunk_of(hid_t creation, size_t rank, const std::string& where) {
  if (H5Pget_layout(creation) != H5D_CHUNKED) return {};
  std::vector<hsize_t> chunk(rank);
  const int found = H5Pget_chunk(creation, static_cast<int>(rank), chunk.data());
  if (found != static_cast<int>(rank) || std::ranges::find(chunk, 0) != chunk.end()) {
    fail(ExitCode::kData, where, " has no chunk size; the file is damaged, make it again");
  }
  return chunk;
}

/// The size of a block of values. A list in memory is as large as its descriptor in the file.
int64_t bytes_of(hid_t dataset, const std::vector<hsize_t>& extents, const std::string& where) {
  const Hdf5Id type = own(H5Dget_type(dataset), H5Tclose, where, " has no type");
  return std::accumulate(extents.begin(), extents.end(),
                         static_cast<int64_t>(H5Tget_size(type.get())), times);
}

}  // namespace

void prepare_library() {
  static const bool prepared = [] {
    const H5Z_class2_t lzf{H5Z_CLASS_T_VERS, kLzf, 0, 1, "lzf", nullptr, nullptr, decode_lzf};
    checked(H5Zregister(&lzf), "cannot give the HDF5 library a filter");
    const Hdf5Id list = own(H5Tvlen_create(H5T_STD_I8LE), H5Tclose, "cannot make an HDF5 type");
    const Hdf5Id descriptor = descriptor_type();
    checked(H5Tregister(H5T_PERS_SOFT, "bertha: list to descriptor", list.get(), descriptor.get(),
                        keep_descriptor),
            "cannot give the HDF5 library a conversion");
    return true;
  }();
  static_cast<void>(prepared);
}

Hdf5Id descriptor_type() {
  return own(H5Tcreate(H5T_OPAQUE, kRowDescriptorBytes), H5Tclose, "cannot make an HDF5 type");
}

void expect_chunks_of(int64_t dataset, const std::string& where) {
  const Hdf5Id creation = creation_of(dataset, where);
  const size_t rank = extents_of(dataset, where).size();
  read_chunk_bytes =
      static_cast<size_t>(bytes_of(dataset, chunk_of(creation.get(), rank, where), where));
}

void refuse_driver_information(const ByteFile& file, const std::string& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  constexpr size_t kVersion = 8, kAddressBytes = 13;  // places in the superblock
  constexpr int64_t kMostBytes = 60;                  // to the end of its fourth address
  constexpr int64_t kFirstOtherPlace = 512;           // behind what a user put in front
  std::array<char, kMostBytes> head{};
  for (int64_t at = 0; at + kMostBytes <= file.size_bytes();
       at = std::max(kFirstOtherPlace, 2 * at)) {
    const std::string why = file.read_at(at, std::as_writable_bytes(std::span(head)));
    if (!why.empty()) fail(ExitCode::kData, path, ": ", why);
    if (std::string_view(head.data(), kSignature.size()) != kSignature) continue;
    const size_t address_bytes = static_cast<unsigned char>(head[kAddressBytes]);
    const auto version = static_cast<unsigned char>(head[kVersion]);
    if (version > 1 || address_bytes > sizeof(int64_t)) return;
    // The address of the block is the fourth; of none it is all ones.
    const size_t first_address = version == 0 ? 24 : 28;
    const std::string_view address(&head[first_address + 3 * address_bytes], address_bytes);
    if (std::ranges::all_of(address, [](char byte) { return byte == '\xff'; })) return;
    fail(ExitCode::kData, path,
         ": has an HDF5 driver information block, as files in several parts; want one file without "
         "it, write it again");
  }
}

void refuse_link(int64_t file, const std::string& name, const std::string& where) {
  H5L_info_t link{};
  checked(H5Lget_info(file, name.c_str(), &link, H5P_DEFAULT), where, " is not there");
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
  const std::vector<hsize_t> extents = extents_of(dataset, where);
  if (extents.empty()) return;  // one value or none: the caller's complaint names the rank
  const std::vector<hsize_t> chunk = chunk_of(creation.get(), extents.size(), where);
  const int64_t chunk_bytes = bytes_of(dataset, chunk, where);
  int64_t stated_bytes = bytes_of(dataset, extents, where);
  int64_t num_chunks = 1;
  for (size_t i = 0; i < chunk.size(); ++i) {
    num_chunks = times(num_chunks, extents[i] / chunk[i] + (extents[i] % chunk[i] != 0));
  }
  if (!chunk.empty()) stated_bytes = times(chunk_bytes, static_cast<hsize_t>(num_chunks));
  const int64_t ratio = ratio_of_filters(creation.get(), chunk_bytes, where);
  if (stated_bytes == 0) return;

  const auto expect_room = [&](int64_t stored_bytes, const char* what) {
    const auto most = times(stored_bytes, static_cast<hsize_t>(ratio));
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
    checked(H5Dget_num_chunks(dataset, space.get(), &found_chunks), where,
            ": cannot count its chunks");
  }
  if (stored_bytes == 0 || (layout == H5D_CHUNKED && times(1, found_chunks) < num_chunks)) {
    fail(ExitCode::kData, where, ": ", stored_bytes == 0 ? "its" : "some of its",
         " rows were never written; make the file again");
  }
  expect_room(stored_bytes, "its storage");
}

}  // namespace bertha
