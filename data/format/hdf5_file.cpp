#include "data/format/hdf5_file.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "data/files/byte_file.h"
#include "data/format/hdf5_calls.h"
#include "data/format/hdf5_storage.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Opens files without locking them.
Hdf5Id access_properties() {
  Hdf5Id properties = own(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "cannot set up HDF5 file access");
  checked(H5Pset_file_locking(properties.get(), false, true),
          "cannot switch HDF5 file locking off");
  // Closing the file closes whatever is still open inside of it.
  checked(H5Pset_fclose_degree(properties.get(), H5F_CLOSE_STRONG),
          "cannot set up HDF5 file access");
  return properties;
}

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
  return Hdf5Element::kOther;
}

hid_t stored_type(Hdf5Element element) {
  BERTHA_CHECK(element != Hdf5Element::kOther, "no stored type for kOther");
  return element == Hdf5Element::kI8 ? H5T_STD_I8LE : H5T_STD_I16LE;
}

Hdf5Id ragged_type(Hdf5Element element) {
  return own(H5Tvlen_create(stored_type(element)), H5Tclose, "cannot make an HDF5 list type");
}

// --- the file in memory: callbacks of the library's core driver ---

void* image_allocate(size_t size_bytes, H5FD_file_image_op_t, void* image) {
  return static_cast<FileImage*>(image)->resize(size_bytes);
}

void* image_resize(void*, size_t size_bytes, H5FD_file_image_op_t, void* image) {
  return static_cast<FileImage*>(image)->resize(size_bytes);
}

void* image_copy(void*, const void*, size_t, H5FD_file_image_op_t, void*) { return nullptr; }

/// The bytes stay with the FileImage, which outlives the library's file.
herr_t image_free(void*, H5FD_file_image_op_t, void*) { return 0; }
void* image_share(void* image) { return image; }
herr_t image_unshare(void*) { return 0; }

/// Lets the library write into `image` instead of a file.
Hdf5Id memory_access_properties(FileImage& image) {
  Hdf5Id properties = access_properties();
  constexpr size_t kExactGrowth = 1;  // FileImage grows in larger steps by itself
  checked(H5Pset_fapl_core(properties.get(), kExactGrowth, false),
          "cannot set up an HDF5 file in memory");
  H5FD_file_image_callbacks_t callbacks{image_allocate, image_copy,    image_resize, image_free,
                                        image_share,    image_unshare, &image};
  checked(H5Pset_file_image_callbacks(properties.get(), &callbacks),
          "cannot set up an HDF5 file in memory");
  // The format of HDF5 1.10: its structures carry checksums, and the library does not survive
  // every wrong bit in those of older formats.
  checked(H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V110, H5F_LIBVER_V110),
          "cannot choose the HDF5 1.10 file format");
  return properties;
}

/// HDF5 1.14 frees the lists that it was given to write when memory ends meanwhile.
Hdf5Id lists_stay_ours() {
  constexpr auto kSentence = "cannot set up writing to an HDF5 file";
  Hdf5Id properties = own(H5Pcreate(H5P_DATASET_XFER), H5Pclose, kSentence);
  const H5MM_free_t free_nothing = [](void*, void*) {};
  checked(H5Pset_vlen_mem_manager(properties.get(), nullptr, nullptr, free_nothing, nullptr),
          kSentence);
  return properties;
}

/// The size of the file; refuses what is no file, and what the library must not open.
int64_t checked_bytes(const std::string& path) {
  const ByteFile file(path);
  if (file.size_bytes() == 0) {
    fail(ExitCode::kData, path, ": empty file (0 bytes), want an HDF5 file; make it again");
  }
  refuse_driver_information(file, path);
  return file.size_bytes();
}

}  // namespace

// --- identifiers ---

Hdf5Id::Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Hdf5Id& Hdf5Id::operator=(Hdf5Id&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

Hdf5Id::~Hdf5Id() { close_now(); }

bool Hdf5Id::close_now() {
  if (id_ < 0) return true;
  const auto lock = enter_library();
  return close_(std::exchange(id_, -1)) >= 0;
}

// --- reading ---

Hdf5Input::Hdf5Input(const std::string& path) : path_(path), file_bytes_(checked_bytes(path)) {
  const ReadCall call(path_, file_bytes_);
  prepare_library();
  const Hdf5Id access = access_properties();
  file_ = own(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, path,
              ": not a readable HDF5 file, it is damaged or of another kind; make it again");
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

Hdf5Dataset Hdf5Input::describe(const std::string& name) const {
  const ReadCall call(path_, file_bytes_);
  const std::string where = concat(path_, ": dataset ", name);
  refuse_link(file_.get(), name, where);
  const Hdf5Id dataset = open_dataset(name);
  check_storage(dataset.get(), file_bytes_, where);
  const Hdf5Id type =
      own(H5Dget_type(dataset.get()), H5Tclose, path_, ": dataset ", name, " has no type");
  const Hdf5Id space =
      own(H5Dget_space(dataset.get()), H5Sclose, path_, ": dataset ", name, " has no extents");
  Hdf5Dataset info;
  info.type_text = type_text(type.get());
  if (H5Tget_class(type.get()) == H5T_VLEN) {
    const Hdf5Id base(H5Tget_super(type.get()), H5Tclose);
    info.rows = Hdf5Rows::kRagged;
    info.element = element_of(base.get());
  } else {
    info.element = element_of(type.get());
  }
  std::array<hsize_t, H5S_MAX_RANK> extents{};
  const int rank = checked(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), path_,
                           ": dataset ", name, " has no extents");
  info.extents.assign(extents.begin(), extents.begin() + rank);
  return info;
}

void Hdf5Input::read_native(const std::string& name, int64_t first_row, int64_t num_rows,
                            int64_t memory_type, int64_t num_values, void* values) const {
  if (num_values == 0) return;
  const Hdf5Id dataset = open_dataset(name);
  expect_chunks_of(dataset.get(), concat(path_, ": dataset ", name));
  const Hdf5Id space =
      own(H5Dget_space(dataset.get()), H5Sclose, path_, ": dataset ", name, " has no extents");
  const int rank = H5Sget_simple_extent_ndims(space.get());
  BERTHA_CHECK(rank == 1 || rank == 2, path_, ": dataset ", name, " has rank ", rank);
  std::array<hsize_t, 2> extents{1, 1};
  H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  const std::array<hsize_t, 2> start{static_cast<hsize_t>(first_row), 0};
  const std::array<hsize_t, 2> count{static_cast<hsize_t>(num_rows), extents[1]};
  BERTHA_CHECK(count[0] * (rank == 2 ? count[1] : 1) == static_cast<hsize_t>(num_values), path_,
               ": dataset ", name, ": ", num_values, " values for ", num_rows, " rows");
  checked(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(),
                              nullptr),
          path_, ": dataset ", name, " has no rows ", first_row, "..");
  const Hdf5Id memory =
      own(H5Screate_simple(rank, count.data(), nullptr), H5Sclose, "cannot make HDF5 extents");
  checked(H5Dread(dataset.get(), memory_type, memory.get(), space.get(), H5P_DEFAULT, values),
          path_, ": cannot read dataset ", name, " from row ", first_row, ", the file is damaged");
}

void Hdf5Input::read(const std::string& name, int64_t first_row, int64_t num_rows,
                     std::span<int8_t> values) const {
  const ReadCall call(path_, file_bytes_);
  read_native(name, first_row, num_rows, H5T_NATIVE_INT8, std::ssize(values), values.data());
}

void Hdf5Input::read(const std::string& name, int64_t first_row, int64_t num_rows,
                     std::span<int16_t> values) const {
  const ReadCall call(path_, file_bytes_);
  read_native(name, first_row, num_rows, H5T_NATIVE_INT16, std::ssize(values), values.data());
}

std::vector<std::byte> Hdf5Input::read_descriptors(const std::string& name,
                                                   int64_t num_rows) const {
  const ReadCall call(path_, file_bytes_);
  std::vector<std::byte> descriptors(static_cast<size_t>(num_rows * kRowDescriptorBytes));
  const Hdf5Id type = descriptor_type();
  read_native(name, 0, num_rows, type.get(), num_rows, descriptors.data());
  return descriptors;
}

int64_t Hdf5Input::list_base_bytes() const {
  const ReadCall call(path_, file_bytes_);
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

// --- writing ---

void* FileImage::resize(size_t size_bytes) {
  if (size_bytes > capacity_bytes_) {
    const size_t wanted = std::max(size_bytes, capacity_bytes_ + capacity_bytes_ / 4);
    void* grown = std::realloc(bytes_.get(), wanted);
    if (grown == nullptr) return nullptr;
    static_cast<void>(bytes_.release());
    bytes_.reset(static_cast<char*>(grown));
    capacity_bytes_ = wanted;
  }
  size_bytes_ = size_bytes;
  return bytes_.get();
}

Hdf5Output::Hdf5Output(const std::string& path)
    : path_(path), image_(std::make_unique<FileImage>()) {
  const auto lock = enter_library();
  const Hdf5Id access = memory_access_properties(*image_);
  // No times in the root group either: the same samples give the same bytes.
  const Hdf5Id creation =
      own(H5Pcreate(H5P_FILE_CREATE), H5Pclose, path, ": cannot set up the creation of the file");
  checked(H5Pset_obj_track_times(creation.get(), false), path,
          ": cannot leave times out of the file");
  file_ = own(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, path,
              ": cannot create the file in memory");
}

void Hdf5Output::create(const std::string& name, Hdf5Element element, Hdf5Rows rows,
                        int64_t columns, int64_t rows_per_chunk) {
  const auto lock = enter_library();
  const int rank = columns == 0 ? 1 : 2;
  const std::array<hsize_t, 2> none{0, static_cast<hsize_t>(columns)};
  const std::array<hsize_t, 2> most{H5S_UNLIMITED, static_cast<hsize_t>(columns)};
  const std::array<hsize_t, 2> chunk{static_cast<hsize_t>(rows_per_chunk),
                                     static_cast<hsize_t>(columns)};
  const Hdf5Id space = own(H5Screate_simple(rank, none.data(), most.data()), H5Sclose, path_,
                           ": cannot make extents for dataset ", name);
  const Hdf5Id properties = own(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, path_,
                                ": cannot make properties for dataset ", name);
  checked(H5Pset_chunk(properties.get(), rank, chunk.data()), path_,
          ": cannot set chunks of dataset ", name);
  checked(H5Pset_obj_track_times(properties.get(), false), path_,
          ": cannot switch time stamps off for dataset ", name);
  const Hdf5Id list_type = rows == Hdf5Rows::kRagged ? ragged_type(element) : Hdf5Id();
  const hid_t type = rows == Hdf5Rows::kRagged ? list_type.get() : stored_type(element);
  Growing dataset;
  dataset.id = own(H5Dcreate2(file_.get(), name.c_str(), type, space.get(), H5P_DEFAULT,
                              properties.get(), H5P_DEFAULT),
                   H5Dclose, path_, ": cannot create dataset ", name);
  dataset.columns = columns;
  dataset.rows = rows;
  datasets_.emplace(name, std::move(dataset));
}

void Hdf5Output::write_rows(const std::string& name, int64_t num_rows, Hdf5Element element,
                            const void* values) {
  if (num_rows == 0) return;
  const auto lock = enter_library();
  Growing& dataset = datasets_.at(name);
  const int rank = dataset.columns == 0 ? 1 : 2;
  const auto columns = static_cast<hsize_t>(dataset.columns);
  const std::array<hsize_t, 2> extents{static_cast<hsize_t>(dataset.num_rows + num_rows), columns};
  const std::array<hsize_t, 2> start{static_cast<hsize_t>(dataset.num_rows), 0};
  const std::array<hsize_t, 2> count{static_cast<hsize_t>(num_rows), columns};
  checked(H5Dset_extent(dataset.id.get(), extents.data()), path_, ": cannot write dataset ", name);
  const Hdf5Id space =
      own(H5Dget_space(dataset.id.get()), H5Sclose, path_, ": dataset ", name, " has no extents");
  checked(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(),
                              nullptr),
          path_, ": cannot write dataset ", name);
  const Hdf5Id memory =
      own(H5Screate_simple(rank, count.data(), nullptr), H5Sclose, "cannot make HDF5 extents");
  const Hdf5Id list_type = dataset.rows == Hdf5Rows::kRagged ? ragged_type(element) : Hdf5Id();
  const hid_t type = dataset.rows == Hdf5Rows::kRagged ? list_type.get() : stored_type(element);
  const Hdf5Id transfer = lists_stay_ours();
  checked(H5Dwrite(dataset.id.get(), type, memory.get(), space.get(), transfer.get(), values),
          path_, ": cannot write dataset ", name);
  dataset.num_rows += num_rows;
}

void Hdf5Output::append(const std::string& name, int64_t num_rows, std::span<const int8_t> values) {
  write_rows(name, num_rows, Hdf5Element::kI8, values.data());
}

void Hdf5Output::append(const std::string& name, int64_t num_rows,
                        std::span<const int16_t> values) {
  write_rows(name, num_rows, Hdf5Element::kI16, values.data());
}

namespace {

template <class T>
std::vector<hvl_t> library_rows(std::span<const std::span<const T>> rows) {
  std::vector<hvl_t> result;
  result.reserve(rows.size());
  for (const auto& row : rows) {
    // The library's struct has no const; writing does not change the elements.
    result.push_back(hvl_t{row.size(), const_cast<T*>(row.data())});
  }
  return result;
}

}  // namespace

void Hdf5Output::append_ragged(const std::string& name,
                               std::span<const std::span<const int8_t>> rows) {
  write_rows(name, std::ssize(rows), Hdf5Element::kI8, library_rows(rows).data());
}

void Hdf5Output::append_ragged(const std::string& name,
                               std::span<const std::span<const int16_t>> rows) {
  write_rows(name, std::ssize(rows), Hdf5Element::kI16, library_rows(rows).data());
}

std::string_view Hdf5Output::close() {
  const auto lock = enter_library();
  for (auto& [name, dataset] : datasets_) {
    if (!dataset.id.close_now()) {
      fail_in_library(ExitCode::kInternal, path_, ": cannot end dataset ", name);
    }
  }
  datasets_.clear();
  if (!file_.close_now()) {
    fail_in_library(ExitCode::kInternal, path_, ": cannot end the file");
  }
  return image_->bytes();
}

}  // namespace bertha
