#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "kernels/base/dtype.h"
#include "kernels/base/error.h"

namespace bertha {

/// A contiguous row-major tensor somebody else owns: pointer, dtype and up to four extents.
/// A View is a small value; passing it by const reference promises nothing about its elements:
/// the contract of each operation says which views it writes.
struct View {
  static constexpr int kMaxRank = 4;

  View() = default;
  View(void* data_in, DType dtype_in, std::span<const int64_t> extents_in)
      : data(data_in), dtype(dtype_in), rank(static_cast<int>(extents_in.size())) {
    BERTHA_CHECK(rank <= kMaxRank, "rank ", rank, ", want at most ", kMaxRank);
    std::ranges::copy(extents_in, extents.begin());
  }
  View(void* data_in, DType dtype_in, std::initializer_list<int64_t> extents_in)
      : View(data_in, dtype_in, std::span(extents_in.begin(), extents_in.size())) {}

  int64_t extent(int axis) const { return extents[static_cast<size_t>(axis)]; }

  int64_t elements() const {
    int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) product *= extent(axis);
    return rank == 0 ? 0 : product;
  }

  bool has_data() const { return data != nullptr; }

  int64_t bytes() const { return elements() * size_bytes(dtype); }

  /// Typed pointer to the first element; the dtype must be T's.
  template <class T>
  T* as() const {
    BERTHA_CHECK(dtype == kDTypeOf<T>, "view is ", name(dtype), ", want ", name(kDTypeOf<T>));
    return static_cast<T*>(data);
  }

  /// Rows [begin, begin + count) of the first axis.
  View rows(int64_t begin, int64_t count) const {
    BERTHA_CHECK(rank >= 1 && begin >= 0 && count >= 0 && begin + count <= extent(0), "rows [",
                 begin, ", ", begin + count, ") of a view with ", rank >= 1 ? extent(0) : 0,
                 " rows");
    View part = *this;
    const int64_t row_elements = extent(0) == 0 ? 0 : elements() / extent(0);
    part.data = static_cast<char*>(data) + begin * row_elements * size_bytes(dtype);
    part.extents[0] = count;
    return part;
  }

  /// The same elements under other extents.
  View reshaped(std::initializer_list<int64_t> new_extents) const {
    const View other(data, dtype, new_extents);
    BERTHA_CHECK(other.elements() == elements(), "reshape of ", shape_text(), " to ",
                 other.shape_text());
    return other;
  }

  /// Dtype and shape for messages: "f32 [3,16]".
  std::string shape_text() const {
    std::string text = concat(name(dtype), " [");
    for (int axis = 0; axis < rank; ++axis) {
      text += concat(axis == 0 ? "" : ",", extent(axis));
    }
    return text + "]";
  }

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> extents{};
};

}  // namespace bertha
