#include "harness/backend_cuda.h"

namespace bertha {

bool has_cuda_backend() { return false; }

std::vector<std::string> visible_gpus() { return {}; }

int64_t smallest_gpu_bytes() { return 0; }

std::unique_ptr<Backend> make_cuda_backend(int, const CudaConfig&, World&, Grouping) {
  fail(ExitCode::kEnvironment, "this program has no CUDA backend");
}

}  // namespace bertha
