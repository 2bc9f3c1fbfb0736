#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/operations.h"

namespace bertha {
namespace {

class CudaOps final : public Ops {
 public:
  CudaOps(CudaDevice& device, Stream& stream, const CudaOptions& options)
      : context_(device, native(stream), options) {}

 private:
  void do_run(const EmbeddingFwd& args) override { run_cuda(context_, args); }
  void do_run(const EmbeddingBwd& args) override { run_cuda(context_, args); }
  void do_run(const LinearFwd& args) override { run_cuda(context_, args); }
  void do_run(const LinearBwdData& args) override { run_cuda(context_, args); }
  void do_run(const LinearBwdWeight& args) override { run_cuda(context_, args); }
  void do_run(const ActivationBwd& args) override { run_cuda(context_, args); }
  void do_run(const AttentionFwd& args) override { run_cuda(context_, args); }
  void do_run(const AttentionBwd& args) override { run_cuda(context_, args); }
  void do_run(const ResidualLnFwd& args) override { run_cuda(context_, args); }
  void do_run(const ResidualLnBwd& args) override { run_cuda(context_, args); }
  void do_run(const LayerNormFwd& args) override { run_cuda(context_, args); }
  void do_run(const LayerNormBwd& args) override { run_cuda(context_, args); }
  void do_run(const SoftmaxFwd& args) override { run_cuda(context_, args); }
  void do_run(const SoftmaxBwd& args) override { run_cuda(context_, args); }
  void do_run(const GatherRows& args) override { run_cuda(context_, args); }
  void do_run(const ScatterAddRows& args) override { run_cuda(context_, args); }
  void do_run(const CrossEntropy& args) override { run_cuda(context_, args); }
  void do_run(const SumOfSquares& args) override { run_cuda(context_, args); }
  void do_run(const ClipLocal& args) override { run_cuda(context_, args); }
  void do_run(const LambPrepare& args) override { run_cuda(context_, args); }
  void do_run(const LambMoments& args) override { run_cuda(context_, args); }
  void do_run(const LambApply& args) override { run_cuda(context_, args); }
  void do_run(const Cast& args) override { run_cuda(context_, args); }
  void do_run(const Fill& args) override { run_cuda(context_, args); }
  void do_run(const Scale& args) override { run_cuda(context_, args); }
  void do_run(const GradientScale& args) override { run_cuda(context_, args); }
  void do_run(const PreluFwd& args) override { run_cuda(context_, args); }
  void do_run(const PreluBwd& args) override { run_cuda(context_, args); }
  void do_run(const BatchNormReluFwd& args) override { run_cuda(context_, args); }
  void do_run(const BatchNormReluBwd& args) override { run_cuda(context_, args); }

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
