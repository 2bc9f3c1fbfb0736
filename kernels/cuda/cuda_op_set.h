#pragma once

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/operations.h"

namespace bertha {

/// `device` as what make_cuda_device made; anything else is an error.
inline CudaDevice& as_cuda(Device& device) {
  auto* cuda_device = dynamic_cast<CudaDevice*>(&device);
  BERTHA_CHECK(cuda_device != nullptr, "device is ", device.description(), ", want a CUDA device");
  return *cuda_device;
}

/// A set of operations, Ops or RowOps, on a stream of a CUDA device.
template <class Set>
class CudaOpSet final : public Set {
 public:
  CudaOpSet(Device& device, Stream& stream, const CudaOptions& options)
      : context_(as_cuda(device), native(stream), options) {}

  CudaContext& context() { return context_; }

 private:
  void enqueue(typename Set::AnyArgs any) override {
    std::visit([&](const auto* args) { run_cuda(context_, *args); }, any);
  }

  CudaContext context_;
};

}  // namespace bertha
