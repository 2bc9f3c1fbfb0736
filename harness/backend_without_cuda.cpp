#include "harness/backend_cuda.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/gemm_shape.h"

namespace bertha {

bool has_cuda_backend() { return false; }

std::vector<std::string> visible_gpus() { return {}; }

Backend make_cuda_backend(int, const CudaConfig&, World&, Grouping) {
  fail(ExitCode::kEnvironment, "this program has no CUDA backend");
}

std::string describe_cuda_attention(const Backend&, const CudaConfig&, const AttentionCall&) {
  fail(ExitCode::kEnvironment, "this program has no CUDA backend");
}

bool can_record_cuda_passes(const Backend&, const CudaConfig&, const AttentionCall&) {
  return false;
}

std::string describe_cuda_gelu_gemms(const Backend&, const CudaConfig&, const FeedForward&) {
  fail(ExitCode::kEnvironment, "this program has no CUDA backend");
}

bool has_cuda_fp8(const Backend&) { return false; }

}  // namespace bertha
