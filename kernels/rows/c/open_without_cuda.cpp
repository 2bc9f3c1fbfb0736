#include "kernels/rows/c/open_cuda.h"

namespace bertha {
namespace {

[[noreturn]] void fail_without_cuda() {
  fail(ExitCode::kEnvironment,
       "this library was built without CUDA; build it where nvcc 12.5 or newer is on PATH");
}

}  // namespace

std::unique_ptr<Device> open_cuda_device(int) { fail_without_cuda(); }
StreamOps open_cuda_ops(Device&, void*) { fail_without_cuda(); }

}  // namespace bertha
