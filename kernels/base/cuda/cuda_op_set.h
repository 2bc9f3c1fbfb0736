#pragma once

#include "kernels/base/cuda/cuda_device.h"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/op_set.h"

namespace bertha {

/// A set of operations, Ops or RowOps, on a stream of a CUDA device.
template <class Set>
class CudaOpSet final : public Set {
 public:
  CudaOpSet(Device& device, Stream& stream) : context_(as_cuda(device), native(stream)) {}

  CudaContext& context() { return context_; }

 private:
  void enqueue(typename Set::AnyArgs any) override {
    std::visit([&](const auto* args) { run_cuda(context_, *args); }, any);
  }

  CudaContext context_;
};

}  // namespace bertha
