#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/arguments.h"
#include "kernels/base/bench/op_case.h"

namespace bertha {

// Shared by the files of cases, one per family of operations.

inline constexpr Accumulate kAdd = Accumulate::kYes;

/// Compared with the reference; each element is a sum of `terms`.
inline BenchTensor as_result(BenchTensor tensor, int64_t terms) {
  tensor.is_result = true;
  tensor.terms = terms;
  return tensor;
}

/// Rows of `columns` elements, of which the reference computes the first `checked`.
struct Rows {
  int64_t rows;
  int64_t checked;
  int64_t columns;
  DType statistics = DType::kF32;

  BenchTensor matrix(const char* name, double scale, double passes) const {
    return {.name = name,
            .extents = {rows, columns},
            .checked = {checked, columns},
            .scale = scale,
            .passes = passes};
  }
  BenchTensor result(const char* name, double passes) const {
    return as_result(matrix(name, 0, passes), columns);
  }
  BenchTensor vector(const char* name, double scale) const {
    return {.name = name, .extents = {columns}, .scale = scale};
  }
  /// A gradient that sums over all rows.
  BenchTensor row_sum(const char* name) const { return as_result(vector(name, 1), checked); }
  BenchTensor statistic(const char* name) const {
    return {.name = name,
            .extents = {rows},
            .checked = {checked},
            .io = false,
            .dtype = statistics,
            .passes = 1,
            .is_result = true,
            .terms = columns};
  }
  BenchTensor mask(double passes) const {
    return {.name = "mask",
            .extents = {rows, columns / 8},
            .checked = {checked, columns / 8},
            .io = false,
            .dtype = DType::kU8,
            .passes = passes,
            .is_result = true};
  }
  BenchTensor gradient() const {
    BenchTensor tensor = matrix("dy", 1, 1);
    tensor.is_empty_beyond = true;
    return tensor;
  }
  std::string text() const { return concat(rows, "x", columns); }
};

/// A gradient, which runs after `forward` on the forward pass's tensors and `more`.
template <class Set>
BenchCase<Set> backward_case(const BenchCase<Set>& forward, const char* operation,
                             const std::vector<BenchTensor>& more,
                             decltype(BenchCase<Set>::call) call) {
  BenchCase<Set> op{.operation = operation,
                    .shape = forward.shape,
                    .tensors = forward.tensors,
                    .call = std::move(call),
                    .prepare = forward.call};
  for (BenchTensor& tensor : op.tensors) tensor.is_result = false;
  op.tensors.insert(op.tensors.end(), more.begin(), more.end());
  return op;
}

}  // namespace bertha
