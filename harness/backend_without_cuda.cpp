#include "harness/backend_cuda.h"

namespace bertha {

bool has_cuda_backend() { return false; }

std::vector<std::string> visible_gpus() { return {}; }

std::unique_ptr<Backend> make_cuda_backend(int, const CudaConfig&, World&, Grouping) {
  fail(ExitCode::kEnvironment, "this program has no CUDA backend");
}

}  // namespace bertha
