#include "tests/cuda/gpu.h"

namespace bertha::testing {

const TestBackend& gpu() {
  static const TestBackend backend = make_gpu({});
  return backend;
}

const TestBackend& cpu() {
  static const TestBackend backend = [] {
    TestBackend made;
    made.device = make_cpu_device(2);
    made.stream = made.device->make_stream();
    made.ops = make_cpu_ops(*made.device, *made.stream);
    return made;
  }();
  return backend;
}

TestBackend make_gpu(const CudaOptions& options) {
  TestBackend made;
  made.device = make_cuda_device(0, kernels_to_test());
  made.stream = made.device->make_stream();
  made.ops = make_cuda_ops(*made.device, *made.stream, options);
  return made;
}

}  // namespace bertha::testing
