#pragma once

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/bench/op_cases.h"

namespace bertha {

// Shared by the files of cases, one per family of operations.

inline constexpr Accumulate kAdd = Accumulate::kYes;

template <class T>
std::vector<char> bytes_of(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Compared with the reference; each element sums up so many terms.
inline BenchTensor as_result(BenchTensor tensor, int64_t terms) {
  tensor.is_result = true;
  tensor.terms = terms;
  return tensor;
}

inline BenchTensor scalar_sum(const char* name, DType dtype) {
  return {
      .name = name, .extents = {1}, .io = false, .dtype = dtype, .is_result = true, .terms = 4096};
}

/// An array of these values.
template <class T>
BenchTensor given(const char* name, const std::vector<T>& values) {
  return {.name = name,
          .extents = {std::ssize(values)},
          .io = false,
          .dtype = kDTypeOf<T>,
          .bytes = bytes_of(values)};
}

/// An i32 array whose leading values the reference sees.
inline BenchTensor ids(const char* name, const std::vector<int32_t>& values, int64_t checked) {
  BenchTensor made = given(name, values);
  made.checked = {checked};
  made.passes = 1;
  return made;
}

/// {seed, step} of dropout.
inline BenchTensor random_state() { return given<uint64_t>("random", {20, 7}); }

/// That of an update in progress.
BenchTensor lamb_state();

/// How much of a batch the reference computes.
struct Part {
  int64_t tokens = 0;
  int64_t seqs = 0;
  int64_t masked = 0;
};

Part checked_part(const BenchBatch& batch);

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
inline OpCase backward_case(const OpCase& forward, const char* operation,
                            const std::vector<BenchTensor>& more,
                            std::function<void(const OpCall&)> call) {
  OpCase op{.operation = operation,
            .shape = forward.shape,
            .tensors = forward.tensors,
            .call = std::move(call),
            .prepare = forward.call};
  for (BenchTensor& tensor : op.tensors) tensor.is_result = false;
  op.tensors.insert(op.tensors.end(), more.begin(), more.end());
  return op;
}

void add_linear(const BenchModel& model, const BenchBatch& batch, std::vector<OpCase>& cases);
void add_residual_ln(const Rows& rows, float dropout, std::vector<OpCase>& cases);
void add_layer_norm(const Rows& rows, std::vector<OpCase>& cases);
/// To fp8, in both layouts.
void add_quantize(const Rows& rows, std::vector<OpCase>& cases);
void add_embedding(const BenchModel& model, const BenchBatch& batch, std::vector<OpCase>& cases);
/// The heads' operations other than GEMMs: gather, scatter, dGELU, the loss.
void add_heads(const BenchModel& model, const BenchBatch& batch, std::vector<OpCase>& cases);
/// Over all parameters, as with one rank.
void add_optimizer(const BenchModel& model, std::vector<OpCase>& cases);

}  // namespace bertha
