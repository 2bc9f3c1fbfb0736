#include "kernels/cuda/attention/side_streams.h"
#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/gemm/gemm_plans.h"
#include "kernels/cuda/operations.h"

namespace bertha {
namespace {

class CudaOps final : public Ops {
 public:
  CudaOps(CudaDevice& device, Stream& stream, const CudaOptions& options)
      : context_(device, native(stream), options) {
    // Now, not in a step that may be timed or captured: they allocate, and read the plan file.
    context_.state<GemmPlans>();
    context_.state<SideStreams>();
  }

 private:
  void enqueue(AnyArgs any) override {
    std::visit([&](const auto* args) { run_cuda(context_, *args); }, any);
  }

  CudaContext context_;
};

CudaDevice& as_cuda(Device& device) {
  auto* cuda_device = dynamic_cast<CudaDevice*>(&device);
  BERTHA_CHECK(cuda_device != nullptr, "device is ", device.description(), ", want a CUDA device");
  return *cuda_device;
}

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(Device& device, Stream& stream, const CudaOptions& options) {
  return std::make_unique<CudaOps>(as_cuda(device), stream, options);
}

std::string gelu_gemms(Device& device, const CudaOptions& options, const FeedForward& model) {
  return gelu_gemms_text(options, model, as_cuda(device).sm_count());
}

}  // namespace bertha
