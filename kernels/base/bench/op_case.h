#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/view.h"

namespace bertha {

/// One tensor of a benchmarked operation, and how it is checked. The operation runs at full extents
/// on the device; the reference computes the leading `checked` extents, which differ in the first
/// axis at most, from the same values.
struct BenchTensor {
  std::string name;
  std::vector<int64_t> extents;
  std::vector<int64_t> checked = {};  // empty: the same
  bool io = true;                     // has the dtype that is benchmarked, otherwise `dtype`
  DType dtype = DType::kF32;
  double scale = 0;              // random values in [-scale, scale); 0 = zeros
  std::vector<char> bytes = {};  // these values instead (of the checked part, if it repeats)
  double passes = 0;             // how often the operation reads or writes it, per element
  bool is_result = false;        // compared with the reference
  int64_t terms = 1;             // summed up in f32 per compared element
  int64_t roundings = 1;         // to the benchmarked dtype, one after another
  // While checking, rows beyond the checked ones are zero (i32: the id -1), so that sums over all
  // rows equal the reference's.
  bool is_empty_beyond = false;
  // Rows beyond the checked ones repeat them, so that means over all rows equal the reference's.
  // The full extent is a multiple of the checked one.
  bool repeats = false;
  double repeated = 1;                  // ratio of a compared sum over all rows to the reference's
  bool is_absent_in_reference = false;  // the reference gets a view without data
};

/// Where an operation runs: full, or the checked part of it.
enum class Extent : uint8_t { kFull, kChecked };

/// Place of the tensor of this name. Error(kInternal) if no tensor has it.
size_t place_of(std::string_view name, std::span<const BenchTensor> described);

/// One run of an operation of `Set`, which is an OpSet.
template <class Set>
struct BenchCall {
  Set& ops;
  std::span<const BenchTensor> described;  // BenchCase::tensors
  std::span<const View> tensors;           // in the same order
  Extent extent;

  const View& operator[](std::string_view name) const { return tensors[place_of(name, described)]; }
};

/// An operation at one shape.
template <class Set>
struct BenchCase {
  std::string operation;  // "linear_fwd"
  std::string shape;      // "24576x3072x1024, bias"
  std::vector<BenchTensor> tensors;
  std::function<void(const BenchCall<Set>&)> call;
  std::function<void(const BenchCall<Set>&)> prepare = {};  // runs before each call, untimed
  double flops = 0;  // GEMM FLOPs, 2 per multiply-add; 0 = memory-bound

  BenchTensor& operator[](std::string_view name) { return tensors[place_of(name, tensors)]; }
};

/// Bytes that the contract makes an operation on these tensors read and write, each once.
double bytes_moved(const std::vector<BenchTensor>& tensors, DType io);

}  // namespace bertha
