#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/rows/c/bertha_kernels.h"

namespace bertha::python {

using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// Calls a function of the C interface on a tensor's device, there on PyTorch's current stream. The
/// device is opened at its first use. Throws the message of a call that fails.
void run_where(const Tensor& tensor,
               const std::function<int32_t(BerthaKernels*, void* stream)>& function);

/// What the kernels of an operation accept.
enum class Kernels : uint8_t {
  kSoftmax,  // rows of any dtype
  kRows,     // rows; on the CPU no 16 bits
  kChannels  // row-major or channels-last; on the CPU no 16 bits
};

/// One call of an operation: turns tensors of PyTorch into arguments of the C interface. It copies
/// tensors that are not dense, and converts 16 bits to float32 if the kernels do not accept them.
/// The C interface checks dtypes and extents, this class the rest; both throw std::runtime_error.
class Call {
 public:
  /// `extent` is the number of columns or channels. One channel has all elements.
  Call(const char* operation, const Tensor& x, Kernels kernels, int64_t extent);

  /// Arguments, without data for a missing tensor; valid as long as the call.
  BerthaTensor x() const { return form(x_); }  // [R, columns], or [N, channels, S] of prelu.h
  BerthaTensor like_x(const OptionalTensor& tensor);  // the same form
  BerthaTensor vector(const OptionalTensor& tensor);
  /// The two halves of new_statistics().
  void set_statistics(const Tensor& both, BerthaTensor& mean, BerthaTensor& rstd);

  /// New tensors; those like x have the dtype that is computed in.
  Tensor new_like_x() const;
  Tensor new_vector(int64_t elements, int32_t code) const;
  /// Overwritten by the kernel; zeros if x is empty, because no kernel runs then.
  Tensor new_sums(int64_t elements, int32_t code) const;
  /// Means and 1 / standard deviations of all rows or channels.
  Tensor new_statistics(int64_t count) const;
  /// PyTorch's code of the dtype that the kernels have instead of a tensor's.
  int32_t computed_code(const Tensor& tensor) const;

  /// Calls a C function where x is, unless x is empty.
  template <class Args>
  void run(int32_t (*function)(BerthaKernels*, void*, const Args*), const Args& args) const {
    if (x_.numel() == 0) return;
    run_where(
        x_, [&](BerthaKernels* kernels, void* stream) { return function(kernels, stream, &args); });
  }

 private:
  BerthaTensor form(const Tensor& dense) const;
  Tensor dense(const Tensor& tensor, bool is_channels_last);
  Tensor make(int64_t rank, const int64_t* extents, const int64_t* strides, int32_t code) const;

  const char* operation_;
  const Tensor& given_;
  Kernels kernels_;
  int64_t extent_;
  bool widens_;
  bool is_channels_last_;
  std::vector<Tensor> copies_;
  Tensor x_;
};

/// `computed`, or a copy in the dtype of `wanted`.
Tensor in_dtype_of(const Tensor& wanted, const Tensor& computed);

}  // namespace bertha::python
