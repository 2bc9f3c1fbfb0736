#pragma once

#include <cstring>
#include <vector>

#include "kernels/base/bench/case_parts.h"
#include "kernels/bench/op_cases.h"

namespace bertha {

template <class T>
std::vector<char> bytes_of(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
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

inline BenchTensor scalar_sum(const char* name, DType dtype) {
  return {
      .name = name, .extents = {1}, .io = false, .dtype = dtype, .is_result = true, .terms = 4096};
}

/// The state of an update in progress.
BenchTensor lamb_state();

/// How much of a batch the reference computes.
struct Part {
  int64_t tokens = 0;
  int64_t seqs = 0;
  int64_t masked = 0;
};

Part checked_part(const BenchBatch& batch);

void add_linear(const BenchModel& model, const BenchBatch& batch, std::vector<OpCase>& cases);
void add_residual_ln(const Rows& rows, float dropout, std::vector<OpCase>& cases);
/// Rounding to fp8, in both layouts.
void add_quantize(const Rows& rows, std::vector<OpCase>& cases);
void add_embedding(const BenchModel& model, const BenchBatch& batch, std::vector<OpCase>& cases);
/// The heads' operations other than GEMMs: gather, scatter, dGELU, the loss.
void add_heads(const BenchModel& model, const BenchBatch& batch, std::vector<OpCase>& cases);
/// The optimizer over all parameters, as with one rank.
void add_optimizer(const BenchModel& model, std::vector<OpCase>& cases);

}  // namespace bertha
