#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/base/device.h"
#include "kernels/base/divide.h"

namespace bertha {

/// Allocates views one after another in a buffer. The same code runs twice: once without memory, to
/// determine the size, and once with it, so that the planner's figure equals the allocation.
class Arena {
 public:
  /// Measures only: views have shapes but no data.
  Arena() = default;
  explicit Arena(const Buffer& buffer)
      : base_(static_cast<char*>(buffer.data())), bytes_(buffer.bytes()) {}

  View take(DType dtype, std::initializer_list<int64_t> extents) {
    constexpr int64_t kAlignmentBytes = 256;
    View view(base_ == nullptr ? nullptr : base_ + used_bytes_, dtype, extents);
    used_bytes_ += round_up(view.bytes(), kAlignmentBytes);
    BERTHA_CHECK(base_ == nullptr || used_bytes_ <= bytes_, "arena of ", bytes_, " bytes, want ",
                 used_bytes_);
    return view;
  }

  int64_t used_bytes() const { return used_bytes_; }

 private:
  char* base_ = nullptr;
  int64_t bytes_ = 0;
  int64_t used_bytes_ = 0;
};

}  // namespace bertha
