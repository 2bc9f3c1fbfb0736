#include "kernels/base/cuda/cuda_op_set.h"
#include "kernels/cuda/attention/side_streams.h"
#include "kernels/cuda/chosen_options.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/gemm/gemm_plans.h"

namespace bertha {

std::unique_ptr<Ops> make_cuda_ops(Device& device, Stream& stream, const CudaOptions& options) {
  auto ops = std::make_unique<CudaOpSet<Ops>>(device, stream);
  ops->context().state<ChosenOptions>().options = options_for(ops->context().kernels, options);
  // Now, not in a step that may be timed or captured: they allocate, and read the plan file.
  ops->context().state<GemmPlans>();
  ops->context().state<SideStreams>();
  return ops;
}

CudaOptions options_on(Device& device, const CudaOptions& options) {
  return options_for(as_cuda(device).kernels(), options);
}

std::string gelu_gemms(Device& device, const CudaOptions& options, const FeedForward& model) {
  return gelu_gemms_text(options, model, as_cuda(device).sm_count());
}

}  // namespace bertha
