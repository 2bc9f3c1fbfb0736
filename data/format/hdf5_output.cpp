#include "data/format/hdf5_output.h"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <type_traits>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {

/// The bytes of a file that is written in memory.
class FileImage {
 public:
  /// Null when there is not enough memory; the old bytes are kept then.
  void* resize(size_t size_bytes);
  std::string_view bytes() const { return {bytes_.get(), size_bytes_}; }

 private:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, Free> bytes_;
  size_t size_bytes_ = 0;
  size_t capacity_bytes_ = 0;
};

namespace {

Hdf5Id type_of(Hdf5Element element, Hdf5Rows rows) {
  BERTHA_CHECK(element != Hdf5Element::kOther, "no stored type for kOther");
  const hid_t type = element == Hdf5Element::kI8    ? H5T_STD_I8LE
                     : element == Hdf5Element::kI16 ? H5T_STD_I16LE
                                                    : H5T_STD_I32LE;
  if (rows == Hdf5Rows::kPlain) return own(H5Tcopy(type), H5Tclose, "cannot make an HDF5 type");
  return own(H5Tvlen_create(type), H5Tclose, "cannot make an HDF5 list type");
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
  // The format of HDF5 1.10: its structures carry checksums. Some wrong bits in structures of
  // older formats crash the library.
  checked(H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V110, H5F_LIBVER_V110),
          "cannot choose the HDF5 1.10 file format");
  return properties;
}

/// HDF5 1.14 frees the caller's lists if memory runs out while writing them.
Hdf5Id caller_owned_lists() {
  constexpr auto kSentence = "cannot set up writing to an HDF5 file";
  Hdf5Id properties = own(H5Pcreate(H5P_DATASET_XFER), H5Pclose, kSentence);
  const H5MM_free_t free_nothing = [](void*, void*) {};
  checked(H5Pset_vlen_mem_manager(properties.get(), nullptr, nullptr, free_nothing, nullptr),
          kSentence);
  return properties;
}

}  // namespace

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

Hdf5Output::~Hdf5Output() = default;

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
  Growing dataset{.id = {}, .type = type_of(element, rows), .element = element, .columns = columns};
  dataset.id = own(H5Dcreate2(file_.get(), name.c_str(), dataset.type.get(), space.get(),
                              H5P_DEFAULT, properties.get(), H5P_DEFAULT),
                   H5Dclose, path_, ": cannot create dataset ", name);
  datasets_.emplace(name, std::move(dataset));
}

void Hdf5Output::write_rows(const std::string& name, int64_t num_rows, const void* values) {
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
  const Hdf5Id transfer = caller_owned_lists();
  checked(H5Dwrite(dataset.id.get(), dataset.type.get(), memory.get(), space.get(), transfer.get(),
                   values),
          path_, ": cannot write dataset ", name);
  dataset.num_rows += num_rows;
}

template <class T>
void Hdf5Output::append(const std::string& name, int64_t num_rows, const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, int32_t>) {
    if (datasets_.at(name).element == Hdf5Element::kI16) {
      return append(name, num_rows, std::vector<int16_t>(values.begin(), values.end()));
    }
  }
  write_rows(name, num_rows, values.data());
}
template void Hdf5Output::append(const std::string&, int64_t, const std::vector<int8_t>&);
template void Hdf5Output::append(const std::string&, int64_t, const std::vector<int16_t>&);
template void Hdf5Output::append(const std::string&, int64_t, const std::vector<int32_t>&);

template <class T>
void Hdf5Output::append_lists(const std::string& name, const std::vector<T>& values,
                              const std::vector<int64_t>& offsets) {
  if constexpr (std::is_same_v<T, int32_t>) {
    if (datasets_.at(name).element == Hdf5Element::kI16) {
      return append_lists(name, std::vector<int16_t>(values.begin(), values.end()), offsets);
    }
  }
  std::vector<hvl_t> rows;
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    // The library's struct has no const; writing does not change the elements.
    rows.push_back({.len = static_cast<size_t>(offsets[row + 1] - offsets[row]),
                    .p = const_cast<T*>(values.data() + offsets[row])});
  }
  write_rows(name, std::ssize(rows), rows.data());
}
using Offsets = std::vector<int64_t>;
template void Hdf5Output::append_lists(const std::string&, const std::vector<int8_t>&,
                                       const Offsets&);
template void Hdf5Output::append_lists(const std::string&, const std::vector<int16_t>&,
                                       const Offsets&);
template void Hdf5Output::append_lists(const std::string&, const std::vector<int32_t>&,
                                       const Offsets&);

std::string_view Hdf5Output::close() {
  const auto lock = enter_library();
  for (auto& [name, dataset] : datasets_) {
    if (!dataset.id.close_now()) {
      fail_in_library(ExitCode::kInternal, path_, ": cannot end dataset " + name);
    }
  }
  datasets_.clear();
  if (!file_.close_now()) {
    fail_in_library(ExitCode::kInternal, path_, ": cannot end the file");
  }
  return image_->bytes();
}

}  // namespace bertha
