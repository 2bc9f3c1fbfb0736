#pragma once

#include <memory>
#include <string>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace bertha {

/// Choices between kernels that compute the same; the defaults are the measured best.
struct CudaOptions {
  /// Gradient of the word table: atomic adds of pairs, or f32 sums over positions sorted by id.
  enum class EmbeddingGradient { kAtomic, kSorted };
  EmbeddingGradient embedding_gradient = EmbeddingGradient::kSorted;
  /// Tuned GEMM algorithms of this GPU model and library version; "" = the library's heuristics.
  std::string gemm_plans_path = {};
};

/// GPUs that this process sees; 0 where there is no driver.
/// Error(kEnvironment) when the driver is too old for this program.
int count_cuda_devices();

/// GPU `ordinal` of those visible. Error(kEnvironment) with a sentence when it cannot be used.
std::unique_ptr<Device> make_cuda_device(int ordinal);

/// Operations enqueued on `stream` of `device`; both must outlive them.
///
/// Random    dropout decisions equal those of the CPU backend bit for bit.
/// Exact     repeatable bit for bit, except EmbeddingGradient::kAtomic.
std::unique_ptr<Ops> make_cuda_ops(Device& device, Stream& stream, const CudaOptions& options);

}  // namespace bertha
