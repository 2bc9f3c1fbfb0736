#include "data/format/hdf5_input.h"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "data/files/byte_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// `where` begins the messages below: file and dataset.

std::string integer_text(hid_t type) {
  return concat(H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int", H5Tget_precision(type),
                H5Tget_order(type) == H5T_ORDER_BE ? " (big-endian)" : "");
}

std::string type_text(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return integer_text(type);
    case H5T_FLOAT:
      return concat("float", 8 * H5Tget_size(type));
    case H5T_VLEN: {
      const Hdf5Id base(H5Tget_super(type), H5Tclose);
      return concat("variable-length ", type_text(base.get()));
    }
    case H5T_STRING:
      return "string";
    default:
      return "a type that is neither integer nor list";
  }
}

Hdf5Element element_of(hid_t type) {
  if (H5Tequal(type, H5T_STD_I8LE) > 0) return Hdf5Element::kI8;
  if (H5Tequal(type, H5T_STD_I16LE) > 0) return Hdf5Element::kI16;
  if (H5Tequal(type, H5T_STD_I32LE) > 0) return Hdf5Element::kI32;
  return Hdf5Element::kOther;
}

/// Refuses a file whose superblock (version 0 or 1) has a driver information block, because the
/// library allocates the size that it states. Files in several parts have one, shards do not.
void refuse_driver_information(const ByteFile& file, const std::string& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  constexpr size_t kVersion = 8, kAddressBytes = 13;  // places in the superblock
  constexpr int64_t kMaxBytes = 60;                   // to the end of its fourth address
  constexpr int64_t kFirstOtherPlace = 512;           // after a block that a user put first
  std::array<char, kMaxBytes> head{};
  for (int64_t at = 0; at + kMaxBytes <= file.size_bytes();
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
         ": has an HDF5 driver information block, as files in several parts have; want one file "
         "without it, write it again");
  }
}

/// The size of the file. Refuses folders, devices and files that the library must not open.
int64_t checked_bytes(const std::string& path) {
  const ByteFile file(path);
  if (file.size_bytes() == 0) {
    fail(ExitCode::kData, path, ": empty file (0 bytes), want an HDF5 file; prepare it again");
  }
  refuse_driver_information(file, path);
  return file.size_bytes();
}

void refuse_link(hid_t file, const std::string& name, const std::string& where) {
  H5L_info_t link{};
  checked(H5Lget_info(file, name.c_str(), &link, H5P_DEFAULT), where, " does not exist");
  if (link.type == H5L_TYPE_HARD) return;
  fail(ExitCode::kData, where,
       " is a soft or external link, want the dataset itself; write the file again without links");
}

// --- how the values of a dataset are stored ---

/// a * b, or the largest number when that is more.
int64_t times(int64_t a, hsize_t b) {
  int64_t product = 0;
  const bool too_large = __builtin_mul_overflow(a, b, &product);
  return too_large ? std::numeric_limits<int64_t>::max() : product;
}

/// Maximum ratio of a chunk of the given bytes to its storage; 0: the filter is not supported.
int64_t max_ratio(H5Z_filter_t filter, int64_t chunk_bytes) {
  switch (filter) {
    case H5Z_FILTER_SHUFFLE:
    case H5Z_FILTER_FLETCHER32:
      return 1;
    case H5Z_FILTER_DEFLATE:
      return 1032;  // 258 bytes take at least 2 bits
    case kLzfFilter:
      return 88;  // 264 bytes take at least 3
    case H5Z_FILTER_NBIT:
      return 32;  // an int32 takes at least a bit
    case H5Z_FILTER_SZIP:
      return 8192;  // 64 blocks of 32 equal int32 take at least a byte
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
    const int64_t ratio = max_ratio(filter, chunk_bytes);
    most = std::max(most, ratio);
    if (ratio > 0 && H5Zfilter_avail(filter) > 0) continue;
    fail(ExitCode::kData, where, " is stored with the filter ",
         name[0] == 0 ? concat(filter) : name.data(),
         ratio > 0 ? ", which this HDF5 library lacks"
                   : ", want none or those that come with HDF5 and h5py",
         "; rewrite the file with `h5repack -f NONE` on a machine with that filter");
  }
  return most;
}

/// How the values of an open dataset are arranged.
struct Arrangement {
  Hdf5Id creation;
  std::vector<hsize_t> extents;  // none of a scalar
  std::vector<hsize_t> chunk;    // none without chunks
  int64_t value_bytes = 0;       // for a list, the bytes of its descriptor

  int64_t bytes_of(const std::vector<hsize_t>& block) const {
    return std::accumulate(block.begin(), block.end(), value_bytes, times);
  }
};

Arrangement arrangement_of(hid_t dataset, const std::string& where) {
  const Hdf5Id space = own(H5Dget_space(dataset), H5Sclose, where, " has no extents");
  const Hdf5Id type = own(H5Dget_type(dataset), H5Tclose, where, " has no type");
  Arrangement found{
      .creation = own(H5Dget_create_plist(dataset), H5Pclose, where, " has no layout"),
      .extents = std::vector<hsize_t>(H5S_MAX_RANK),
      .chunk = {},
      .value_bytes = static_cast<int64_t>(H5Tget_size(type.get()))};
  const int rank = checked(H5Sget_simple_extent_dims(space.get(), found.extents.data(), nullptr),
                           where, " has no extents");
  found.extents.resize(static_cast<size_t>(rank));
  if (H5Pget_layout(found.creation.get()) != H5D_CHUNKED) return found;
  found.chunk.resize(found.extents.size());
  if (H5Pget_chunk(found.creation.get(), rank, found.chunk.data()) != rank ||
      std::ranges::find(found.chunk, 0) != found.chunk.end()) {
    fail(ExitCode::kData, where, " has no chunk size; the file is damaged, prepare it again");
  }
  return found;
}

/// Refuses what Hdf5Input::describe() says of storage.
void check_storage(hid_t dataset, const Arrangement& of, int64_t file_bytes,
                   const std::string& where) {
  const hid_t creation = of.creation.get();
  if (H5Pget_external_count(creation) != 0) {
    fail(ExitCode::kData, where, " has its values in other files; write all values into one file");
  }
  const H5D_layout_t layout = H5Pget_layout(creation);
  if (layout == H5D_VIRTUAL) {
    fail(ExitCode::kData, where,
         " is virtual: its values are in other files; write all values into one file");
  }
  if (of.extents.empty()) return;  // one value or none: the caller's complaint names the rank
  const int64_t chunk_bytes = of.bytes_of(of.chunk);
  int64_t stated_bytes = of.bytes_of(of.extents);
  int64_t num_chunks = 1;
  for (size_t i = 0; i < of.chunk.size(); ++i) {
    num_chunks =
        times(num_chunks, of.extents[i] / of.chunk[i] + (of.extents[i] % of.chunk[i] != 0));
  }
  if (!of.chunk.empty()) stated_bytes = times(chunk_bytes, static_cast<hsize_t>(num_chunks));
  const int64_t ratio = ratio_of_filters(creation, chunk_bytes, where);
  if (stated_bytes == 0) return;

  const auto expect_room = [&](int64_t stored_bytes, const char* what) {
    const auto most = times(stored_bytes, static_cast<hsize_t>(ratio));
    if (stated_bytes <= most && num_chunks <= file_bytes && stored_bytes <= file_bytes) return;
    fail(ExitCode::kData, where, " states ", of.extents[0], " rows, ", stated_bytes,
         " bytes in all, but ", what, " of ", stored_bytes, " bytes can hold at most ", most,
         "; the file is damaged, prepare it again");
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
         " rows were never written; prepare the file again");
  }
  expect_room(stored_bytes, "its storage");
}

}  // namespace

Hdf5Input::Hdf5Input(const std::string& path) : path_(path), file_bytes_(checked_bytes(path)) {
  const ReadCall call(path_, file_bytes_);
  prepare_to_read();
  const Hdf5Id access = access_properties();
  file_ = own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, path,
              ": not a readable HDF5 file, it is damaged or of another kind; prepare it again");
}

Hdf5Input::~Hdf5Input() {
  const ReadCall call(path_, file_bytes_);
  file_.close_now();
}

bool Hdf5Input::has(const std::string& name) const {
  const ReadCall call(path_, file_bytes_);
  return H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT) > 0;
}

Hdf5Id Hdf5Input::open_dataset(const std::string& name) const {
  return own(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), H5Dclose, path_,
             ": cannot open dataset ", name);
}

int64_t Hdf5Input::list_base_bytes() const {
  const Hdf5Id creation =
      own(H5Fget_create_plist(file_.get()), H5Pclose, path_, ": cannot read its file header");
  size_t address_bytes = 0, length_bytes = 0;
  hsize_t user_block_bytes = 0;
  H5Pget_sizes(creation.get(), &address_bytes, &length_bytes);
  H5Pget_userblock(creation.get(), &user_block_bytes);
  if (address_bytes != 8 || length_bytes != 8) {
    fail(ExitCode::kData, path_, ": addresses of ", address_bytes, " bytes and lengths of ",
         length_bytes, " bytes, want 8 and 8; rewrite the file with default HDF5 settings");
  }
  return static_cast<int64_t>(user_block_bytes);
}

Hdf5Dataset Hdf5Input::describe(const std::string& name) {
  const ReadCall call(path_, file_bytes_);
  const std::string where = concat(path_, ": dataset ", name);
  refuse_link(file_.get(), name, where);
  const Hdf5Id dataset = open_dataset(name);
  const Arrangement arrangement = arrangement_of(dataset.get(), where);
  check_storage(dataset.get(), arrangement, file_bytes_, where);
  const Hdf5Id type = own(H5Dget_type(dataset.get()), H5Tclose, where, " has no type");
  Hdf5Dataset found{.element = element_of(type.get()),
                    .extents = {arrangement.extents.begin(), arrangement.extents.end()},
                    .type_text = type_text(type.get())};
  if (H5Tget_class(type.get()) == H5T_VLEN) {
    const Hdf5Id base(H5Tget_super(type.get()), H5Tclose);
    found.rows = Hdf5Rows::kRagged;
    found.element = element_of(base.get());
    ragged_elements_[name] = found.element;
    if (!heap_) heap_.emplace(path_, list_base_bytes());
  }
  return found;
}

void Hdf5Input::read_values(const std::string& name, int64_t first_row, int64_t num_rows,
                            int64_t memory_type, int64_t num_values, void* values) const {
  if (num_values == 0) return;
  const std::string where = concat(path_, ": dataset ", name);
  const Hdf5Id dataset = open_dataset(name);
  const Arrangement arrangement = arrangement_of(dataset.get(), where);
  const size_t rank = arrangement.extents.size();
  BERTHA_CHECK(rank == 1 || rank == 2, where, " has rank ", rank);
  const std::array<hsize_t, 2> start{static_cast<hsize_t>(first_row), 0};
  const std::array<hsize_t, 2> count{static_cast<hsize_t>(num_rows),
                                     rank == 2 ? arrangement.extents[1] : 1};
  BERTHA_CHECK(count[0] * count[1] == static_cast<hsize_t>(num_values), where, ": ", num_values,
               " values for ", num_rows, " rows");
  expect_lzf_chunks(static_cast<size_t>(arrangement.bytes_of(arrangement.chunk)));
  const Hdf5Id space = own(H5Dget_space(dataset.get()), H5Sclose, where, " has no extents");
  checked(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(),
                              nullptr),
          where, " has no rows ", first_row, "..");
  const Hdf5Id memory = own(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr),
                            H5Sclose, "cannot make HDF5 extents");
  checked(H5Dread(dataset.get(), memory_type, memory.get(), space.get(), H5P_DEFAULT, values),
          path_, ": cannot read dataset ", name, " from row ", first_row, ", the file is damaged");
}

template <class T>
void Hdf5Input::read(const std::string& name, int64_t first_row, int64_t num_rows,
                     std::vector<T>& values) const {
  const ReadCall call(path_, file_bytes_);
  const hid_t type = std::is_same_v<T, int8_t>    ? H5T_NATIVE_INT8
                     : std::is_same_v<T, int16_t> ? H5T_NATIVE_INT16
                                                  : H5T_NATIVE_INT32;
  read_values(name, first_row, num_rows, type, std::ssize(values), values.data());
}
template void Hdf5Input::read(const std::string&, int64_t, int64_t, std::vector<int8_t>&) const;
template void Hdf5Input::read(const std::string&, int64_t, int64_t, std::vector<int16_t>&) const;
template void Hdf5Input::read(const std::string&, int64_t, int64_t, std::vector<int32_t>&) const;

const std::vector<std::byte>& Hdf5Input::descriptors_of(const std::string& name) {
  if (const auto known = descriptors_.find(name); known != descriptors_.end()) return known->second;
  const ReadCall call(path_, file_bytes_);
  const Arrangement arrangement =
      arrangement_of(open_dataset(name).get(), concat(path_, ": dataset ", name));
  const auto num_rows = static_cast<int64_t>(arrangement.extents.at(0));
  std::vector<std::byte> descriptors(static_cast<size_t>(num_rows * kRowDescriptorBytes));
  read_values(name, 0, num_rows, descriptor_type().get(), num_rows, descriptors.data());
  return descriptors_[name] = std::move(descriptors);
}

template <class T>
RaggedRows<T> Hdf5Input::read_lists(const std::string& name, int64_t first_row, int64_t num_rows) {
  const std::vector<std::byte>& descriptors = descriptors_of(name);
  const auto read = [&]<class Stored>(Stored) {
    return heap_.value().read_rows<T, Stored>(name, descriptors, first_row, num_rows);
  };
  if constexpr (std::is_same_v<T, int8_t>) return read(int8_t{});
  return ragged_elements_.at(name) == Hdf5Element::kI32 ? read(int32_t{}) : read(int16_t{});
}
template RaggedRows<int8_t> Hdf5Input::read_lists(const std::string&, int64_t, int64_t);
template RaggedRows<int16_t> Hdf5Input::read_lists(const std::string&, int64_t, int64_t);
template RaggedRows<int32_t> Hdf5Input::read_lists(const std::string&, int64_t, int64_t);

std::vector<int64_t> Hdf5Input::list_lengths(const std::string& name) {
  return heap_.value().read_lengths(name, descriptors_of(name));
}

}  // namespace bertha
