#include "kernels/rows/python/call.h"

#include <torch/csrc/stable/ops.h>

#include <stdexcept>
#include <string>

namespace bertha::python {
namespace {

using torch::headeronly::MemoryFormat;

int32_t code_of(const Tensor& tensor) {
  int32_t code = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &code));
  return code;
}

bool is_16_bits(int32_t code) {
  return code == aoti_torch_dtype_bfloat16() || code == aoti_torch_dtype_float16();
}

int32_t bertha_dtype(const Tensor& tensor) {
  const int32_t code = code_of(tensor);
  if (code == aoti_torch_dtype_float32()) return BERTHA_F32;
  if (code == aoti_torch_dtype_bfloat16()) return BERTHA_BF16;
  if (code == aoti_torch_dtype_float16()) return BERTHA_F16;
  if (code == aoti_torch_dtype_float64()) return BERTHA_F64;
  if (code == aoti_torch_dtype_uint8()) return BERTHA_U8;
  throw std::runtime_error(std::string("found a tensor of dtype ") +
                           torch::headeronly::toString(tensor.scalar_type()) +
                           ", want Float, Half, BFloat16 or Double");
}

std::string device_of(const Tensor& tensor) {
  return tensor.is_cpu() ? "cpu" : "cuda:" + std::to_string(tensor.get_device_index());
}

bool is_channels_last(const Tensor& tensor) {
  if (tensor.dim() != 4 || tensor.is_contiguous()) return false;
  int64_t wanted = 1;
  for (const int64_t axis : {1, 3, 2, 0}) {  // from the innermost in memory
    const int64_t extent = tensor.size(axis);
    if (extent != 1 && tensor.stride(axis) != wanted) return false;
    wanted *= extent;
  }
  return true;
}

BerthaTensor vector_of(const Tensor& dense) {
  return {.data = dense.data_ptr(),
          .extents = {dense.numel()},
          .strides = {},
          .dtype = bertha_dtype(dense),
          .rank = 1};
}

}  // namespace

Call::Call(const char* operation, const Tensor& x, Kernels kernels, int64_t extent)
    : operation_(operation),
      given_(x),
      kernels_(kernels),
      extent_(extent),
      widens_(kernels != Kernels::kSoftmax && is_16_bits(code_of(x)) && x.is_cpu()),
      is_channels_last_(kernels == Kernels::kChannels && is_channels_last(x)),
      x_(dense(x, is_channels_last_)) {
  const int64_t elements = x.numel();
  if (kernels_ != Kernels::kChannels && elements > 0 && (extent < 1 || elements % extent != 0)) {
    throw std::runtime_error(std::string(operation) + ": columns is " + std::to_string(extent) +
                             ", want a divisor of x's " + std::to_string(elements) + " elements");
  }
}

BerthaTensor Call::like_x(const OptionalTensor& tensor) {
  return tensor.has_value() ? form(dense(*tensor, is_channels_last_)) : BerthaTensor{};
}

BerthaTensor Call::vector(const OptionalTensor& tensor) {
  if (tensor.has_value() && tensor->dim() > 1) {
    throw std::runtime_error(std::string(operation_) + ": a parameter has several axes, want one");
  }
  return tensor.has_value() ? vector_of(dense(*tensor, false)) : BerthaTensor{};
}

void Call::set_statistics(const Tensor& both, BerthaTensor& mean, BerthaTensor& rstd) {
  mean = vector(both);
  mean.extents[0] /= 2;
  rstd = mean;
  const int64_t bytes = mean.dtype == BERTHA_F64 ? 8 : 4;
  rstd.data = static_cast<char*>(mean.data) + mean.extents[0] * bytes;
}

Tensor Call::make(int64_t rank, const int64_t* extents, const int64_t* strides,
                  int32_t code) const {
  AtenTensorHandle made = nullptr;
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(x_.get(), &device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(rank, extents, strides, code, device_type,
                                                  x_.get_device_index(), &made));
  return Tensor(made);
}

Tensor Call::new_like_x() const {
  return make(x_.dim(), x_.sizes().data(), x_.strides().data(), code_of(x_));
}

Tensor Call::new_vector(int64_t elements, int32_t code) const {
  const int64_t stride = 1;
  return make(1, &elements, &stride, code);
}

Tensor Call::new_sums(int64_t elements, int32_t code) const {
  Tensor sums = new_vector(elements, code);
  return x_.numel() > 0 ? sums : torch::stable::zero_(sums);
}

Tensor Call::new_statistics(int64_t count) const {
  const int32_t f64 = aoti_torch_dtype_float64();
  return new_sums(2 * count, code_of(x_) == f64 ? f64 : aoti_torch_dtype_float32());
}

int32_t Call::computed_code(const Tensor& tensor) const {
  const int32_t code = code_of(tensor);
  return widens_ && is_16_bits(code) ? aoti_torch_dtype_float32() : code;
}

Tensor in_dtype_of(const Tensor& wanted, const Tensor& computed) {
  if (code_of(wanted) == code_of(computed)) return computed;
  return torch::stable::to(computed, wanted.scalar_type());
}

BerthaTensor Call::form(const Tensor& dense) const {
  BerthaTensor seen = vector_of(dense);
  const int64_t elements = seen.extents[0];
  if (kernels_ == Kernels::kChannels) {
    int64_t outer = 1;
    if (extent_ > 1) outer = is_channels_last_ ? elements / extent_ : dense.size(0);
    seen.extents[0] = outer;
    seen.extents[2] = elements > 0 ? elements / (outer * extent_) : 0;
    seen.rank = 3;
  } else {
    seen.extents[0] = extent_ > 0 ? elements / extent_ : 0;
    seen.rank = 2;
  }
  seen.extents[1] = extent_;
  return seen;
}

Tensor Call::dense(const Tensor& tensor, bool is_channels_last_wanted) {
  if (tensor.is_cpu() != given_.is_cpu() ||
      tensor.get_device_index() != given_.get_device_index()) {
    throw std::runtime_error(std::string(operation_) + ": found a tensor on " + device_of(tensor) +
                             ", want all on " + device_of(given_));
  }
  const bool is_narrow = computed_code(tensor) != code_of(tensor);
  const bool is_dense = is_channels_last_wanted ? is_channels_last(tensor) : tensor.is_contiguous();
  if (is_dense && !is_narrow) return tensor;
  copies_.push_back(torch::stable::contiguous(
      is_narrow ? torch::stable::to(tensor, torch::headeronly::ScalarType::Float) : tensor,
      is_channels_last_wanted ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous));
  return copies_.back();
}

}  // namespace bertha::python
