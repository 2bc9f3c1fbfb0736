#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <memory>

#include "kernels/rows/c/bertha_kernels.h"

namespace bertha::python {

/// Where an operation on a tensor runs: its device, there on PyTorch's current stream. A GPU is the
/// calling thread's current one until the place is destroyed.
class Place {
 public:
  /// Opens the device at its first use.
  explicit Place(const torch::stable::Tensor& tensor);

  BerthaKernels* kernels() const { return kernels_.get(); }
  void* stream() const { return stream_; }

 private:
  std::shared_ptr<BerthaKernels> kernels_;
  std::unique_ptr<torch::stable::accelerator::DeviceGuard> guard_;
  void* stream_ = nullptr;
};

/// Throws the message of the calling thread's failed call; nothing for BERTHA_OK.
void check_status(int32_t status);

}  // namespace bertha::python
