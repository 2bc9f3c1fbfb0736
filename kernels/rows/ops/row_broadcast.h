#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/view.h"

namespace bertha {

/// Where the row of a broadcast operand lies that goes with a row of x. Both have the same axes;
/// each of the operand's has x's extent or 1. Without data, it lies nowhere.
struct RowBroadcast {
  static constexpr int kOuterAxes = View::kMaxRank - 1;

  RowBroadcast(const View& operand, const View& x) {
    if (!operand.has_data()) return;
    const int columns_axis = x.rank - 1;
    column_stride = operand.extent(columns_axis) == 1 ? 0 : 1;
    int64_t stride = operand.extent(columns_axis);
    for (int axis = columns_axis - 1, slot = 0; axis >= 0; --axis, ++slot) {
      extents[slot] = x.extent(axis) > 0 ? x.extent(axis) : 1;
      strides[slot] = operand.extent(axis) == 1 ? 0 : stride;
      stride *= operand.extent(axis);
    }
  }

  /// Index of the operand's first element for this row of x.
  BERTHA_HOST_DEVICE int64_t row_offset(int64_t row) const {
    int64_t offset = 0;
    int64_t rest = row;
    for (int slot = 0; slot < kOuterAxes - 1; ++slot) {
      offset += rest % extents[slot] * strides[slot];
      rest /= extents[slot];
    }
    return offset + rest * strides[kOuterAxes - 1];
  }

  int64_t extents[kOuterAxes] = {1, 1, 1};  // extents of x, the innermost axis of rows first
  int64_t strides[kOuterAxes] = {0, 0, 0};  // strides of the operand; 0 if it is broadcast
  int64_t column_stride = 0;                // 1, or 0 if one value applies to the whole row
};

}  // namespace bertha
