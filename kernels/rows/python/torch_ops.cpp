// The kernels of torch.ops.bertha_kernels.*, which src/bertha_kernels/torch_ops.py defines, on
// PyTorch's stable ABI: one library for every PyTorch from 2.10 on.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <tuple>

#include "kernels/rows/python/call.h"

namespace bertha::python {
namespace {

// --- softmax and log-softmax over the last axis -----------------------------------------------------

int64_t last_extent(const Tensor& x) { return x.dim() > 0 ? x.size(x.dim() - 1) : 1; }

Tensor softmax(const Tensor& x, bool is_log) {
  Call call("softmax", x, Kernels::kSoftmax, last_extent(x));
  Tensor y = call.new_like_x();
  BerthaSoftmaxFwd args{};
  args.x = call.x();
  args.y = call.like_x(y);
  args.scale = 1.0;
  args.is_log = is_log;
  call.run(bertha_softmax_fwd, args);
  return y;
}

Tensor softmax_backward(const Tensor& dy, const Tensor& y, bool is_log) {
  Call call("softmax_backward", y, Kernels::kSoftmax, last_extent(y));
  Tensor dx = call.new_like_x();
  BerthaSoftmaxBwd args{};
  args.dy = call.like_x(dy);
  args.y = call.x();
  args.dx = call.like_x(dx);
  args.scale = 1.0;
  args.is_log = is_log;
  call.run(bertha_softmax_bwd, args);
  return dx;
}

// --- LayerNorm over the last `columns` elements -----------------------------------------------------

/// y; writes the statistics if they are wanted.
Tensor run_layer_norm(const Tensor& x, const OptionalTensor& gamma, const OptionalTensor& beta,
                      int64_t columns, double epsilon, OptionalTensor* statistics) {
  Call call("layer_norm", x, Kernels::kRows, columns);
  const Tensor y = call.new_like_x();
  BerthaLayerNormFwd args{};
  args.x = call.x();
  args.gamma = call.vector(gamma);
  args.beta = call.vector(beta);
  args.y = call.like_x(y);
  args.epsilon = epsilon;
  if (statistics != nullptr) {
    *statistics = call.new_statistics(args.x.extents[0]);
    call.set_statistics(**statistics, args.mean, args.rstd);
  }
  call.run(bertha_layer_norm_fwd, args);
  return in_dtype_of(x, y);
}

std::tuple<Tensor, Tensor> layer_norm(const Tensor& x, const OptionalTensor& gamma,
                                      const OptionalTensor& beta, int64_t columns, double epsilon) {
  OptionalTensor statistics;
  const Tensor y = run_layer_norm(x, gamma, beta, columns, epsilon, &statistics);
  return {y, *statistics};
}

Tensor layer_norm_inference(const Tensor& x, const OptionalTensor& gamma,
                            const OptionalTensor& beta, int64_t columns, double epsilon) {
  return run_layer_norm(x, gamma, beta, columns, epsilon, nullptr);
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& dy, const Tensor& x,
                                                       const Tensor& statistics,
                                                       const OptionalTensor& gamma, int64_t columns,
                                                       bool wants_parameters) {
  Call call("layer_norm_backward", x, Kernels::kRows, columns);
  const Tensor dx = call.new_like_x();
  const Tensor& like = gamma.has_value() ? *gamma : statistics;
  const Tensor dgamma = call.new_sums(wants_parameters ? columns : 0, call.computed_code(like));
  const Tensor dbeta = call.new_sums(wants_parameters ? columns : 0, call.computed_code(like));
  BerthaLayerNormBwd args{};
  args.dy = call.like_x(dy);
  args.x = call.x();
  call.set_statistics(statistics, args.mean, args.rstd);
  args.gamma = call.vector(gamma);
  args.dx = call.like_x(dx);
  if (wants_parameters) {
    args.dgamma = call.vector(dgamma);
    args.dbeta = call.vector(dbeta);
  }
  call.run(bertha_layer_norm_bwd, args);
  return {in_dtype_of(x, dx), in_dtype_of(like, dgamma), in_dtype_of(like, dbeta)};
}

// --- channels: PReLU, BatchNorm + Add + ReLU --------------------------------------------------------

int64_t second_extent(const Tensor& x) { return x.dim() > 1 ? x.size(1) : 1; }

int64_t slopes_of(const Tensor& slope, const Tensor& x) {
  return slope.numel() == 1 ? 1 : second_extent(x);
}

Tensor prelu(const Tensor& x, const Tensor& slope) {
  Call call("prelu", x, Kernels::kChannels, slopes_of(slope, x));
  const Tensor y = call.new_like_x();
  BerthaPreluFwd args{};
  args.x = call.x();
  args.slope = call.vector(slope);
  args.y = call.like_x(y);
  call.run(bertha_prelu_fwd, args);
  return in_dtype_of(x, y);
}

std::tuple<Tensor, Tensor> prelu_backward(const Tensor& dy, const Tensor& x, const Tensor& slope) {
  Call call("prelu_backward", x, Kernels::kChannels, slopes_of(slope, x));
  const Tensor dx = call.new_like_x();
  Tensor dslope = call.new_sums(slope.numel(), call.computed_code(slope));
  BerthaPreluBwd args{};
  args.dy = call.like_x(dy);
  args.x = call.x();
  args.slope = call.vector(slope);
  args.dx = call.like_x(dx);
  args.dslope = call.vector(dslope);
  call.run(bertha_prelu_bwd, args);
  if (slope.dim() == 0) dslope = torch::stable::reshape(dslope, slope.sizes());
  return {in_dtype_of(x, dx), in_dtype_of(slope, dslope)};
}

using BatchNormResults = std::tuple<Tensor, Tensor, Tensor>;  // y, mask, statistics

/// `args` has what is not a tensor. Running statistics have to be dense.
BatchNormResults run_batch_norm(const Tensor& x, const OptionalTensor& addend, const Tensor& gamma,
                                const Tensor& beta, const Tensor& running_mean,
                                const Tensor& running_var, BerthaBatchNormReluFwd args) {
  Call call("batch_norm_add_relu", x, Kernels::kChannels, second_extent(x));
  const Tensor y = call.new_like_x();
  const Tensor mask = call.new_sums((x.numel() + 7) / 8, aoti_torch_dtype_uint8());
  const Tensor statistics = call.new_statistics(second_extent(x));
  args.x = call.x();
  args.addend = call.like_x(addend);
  args.gamma = call.vector(gamma);
  args.beta = call.vector(beta);
  args.running_mean = call.vector(running_mean);
  args.running_var = call.vector(running_var);
  args.y = call.like_x(y);
  args.mask = call.vector(mask);
  call.set_statistics(statistics, args.mean, args.rstd);
  call.run(bertha_batch_norm_relu_fwd, args);
  return {in_dtype_of(x, y), mask, statistics};
}

/// Updates the running statistics in place.
BatchNormResults batch_norm_add_relu(const Tensor& x, const OptionalTensor& addend,
                                     const Tensor& gamma, const Tensor& beta, Tensor running_mean,
                                     Tensor running_var, double momentum, double epsilon) {
  const bool is_mean_dense = running_mean.is_contiguous();
  const bool is_var_dense = running_var.is_contiguous();
  const Tensor mean = is_mean_dense ? running_mean : torch::stable::contiguous(running_mean);
  const Tensor var = is_var_dense ? running_var : torch::stable::contiguous(running_var);
  BerthaBatchNormReluFwd args{};
  args.momentum = static_cast<float>(momentum);
  args.epsilon = static_cast<float>(epsilon);
  BatchNormResults results = run_batch_norm(x, addend, gamma, beta, mean, var, args);
  if (!is_mean_dense) torch::stable::copy_(running_mean, mean);
  if (!is_var_dense) torch::stable::copy_(running_var, var);
  return results;
}

BatchNormResults batch_norm_add_relu_inference(const Tensor& x, const OptionalTensor& addend,
                                               const Tensor& gamma, const Tensor& beta,
                                               const Tensor& running_mean,
                                               const Tensor& running_var, double epsilon) {
  BerthaBatchNormReluFwd args{};
  args.uses_running = 1;
  args.epsilon = static_cast<float>(epsilon);
  return run_batch_norm(x, addend, gamma, beta, running_mean, running_var, args);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_add_relu_backward(
    const Tensor& dy, const Tensor& x, const Tensor& mask, const Tensor& statistics,
    const Tensor& gamma, bool wants_addend, bool uses_running) {
  Call call("batch_norm_add_relu_backward", x, Kernels::kChannels, second_extent(x));
  const Tensor dx = call.new_like_x();
  const Tensor daddend =
      wants_addend ? call.new_like_x() : call.new_vector(0, call.computed_code(x));
  const Tensor dgamma = call.new_sums(second_extent(x), aoti_torch_dtype_float32());
  const Tensor dbeta = call.new_sums(second_extent(x), aoti_torch_dtype_float32());
  BerthaBatchNormReluBwd args{};
  args.dy = call.like_x(dy);
  args.x = call.x();
  args.mask = call.vector(mask);
  call.set_statistics(statistics, args.mean, args.rstd);
  args.gamma = call.vector(gamma);
  args.dx = call.like_x(dx);
  if (wants_addend) args.daddend = call.like_x(daddend);
  args.dgamma = call.vector(dgamma);
  args.dbeta = call.vector(dbeta);
  args.uses_running = uses_running;
  call.run(bertha_batch_norm_relu_bwd, args);
  return {in_dtype_of(x, dx), in_dtype_of(x, daddend), dgamma, dbeta};
}

void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("softmax", TORCH_BOX(&softmax));
  library.impl("softmax_backward", TORCH_BOX(&softmax_backward));
  library.impl("layer_norm", TORCH_BOX(&layer_norm));
  library.impl("layer_norm_inference", TORCH_BOX(&layer_norm_inference));
  library.impl("layer_norm_backward", TORCH_BOX(&layer_norm_backward));
  library.impl("prelu", TORCH_BOX(&prelu));
  library.impl("prelu_backward", TORCH_BOX(&prelu_backward));
  library.impl("batch_norm_add_relu", TORCH_BOX(&batch_norm_add_relu));
  library.impl("batch_norm_add_relu_inference", TORCH_BOX(&batch_norm_add_relu_inference));
  library.impl("batch_norm_add_relu_backward", TORCH_BOX(&batch_norm_add_relu_backward));
}

}  // namespace
}  // namespace bertha::python

STABLE_TORCH_LIBRARY_IMPL(bertha_kernels, CPU, library) { bertha::python::implement(library); }
STABLE_TORCH_LIBRARY_IMPL(bertha_kernels, CUDA, library) { bertha::python::implement(library); }
