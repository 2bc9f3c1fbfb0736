#pragma once

#include <memory>
#include <string>

#include "harness/comm/grouped_collectives.h"
#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "kernels/base/device.h"
#include "kernels/collectives.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/linear.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// The GPU that a rank computes on.
struct RankGpu {
  int ordinal = 0;
  std::string bus_id = "";  // "0000:1b:00.0"; "" = none: the rank computes on the CPU

  bool is_none() const { return bus_id.empty(); }
};

/// The GPU for train.backend, or none; every rank has one, or no rank. auto is cuda if this program
/// has CUDA and every rank sees a GPU, cpu if none does; rank 0 logs which. All ranks call it.
///
/// Errors    Error(kEnvironment): cuda without a CUDA backend or a GPU, GPUs on some ranks only,
///           fewer GPUs than ranks on a node.
RankGpu choose_gpu(ComputeBackend backend, World& world);

/// Device, operations and communication of one rank, and the kernels that it uses for a model.
class Backend {
 public:
  virtual ~Backend() = default;

  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }  // the compute stream
  Ops& ops() const { return *ops_; }
  Collectives& collectives() const { return *collectives_; }

  /// The attention kernels for a model, for logs: "grouped"; "" if there is only one kind.
  /// Error(kUsage) if cuda.attention selects kernels that do not support the model.
  virtual std::string attention_kernels(const AttentionCall& call) const = 0;
  /// Whether the model's passes are recorded as graphs: if cuda.graphs allows it and the attention
  /// kernels use the same launches for batches of any lengths. Errors as above.
  virtual bool can_record_passes(const AttentionCall& call) const = 0;
  /// The kernels of GEMMs with a GELU in a model's feed-forward blocks, for logs: "own from 1921
  /// tokens", counted per micro-batch; "" if there is only one kind.
  /// Error(kUsage) if cuda.gelu_gemms selects kernels that do not support the model, or for fp8
  /// without has_fp8().
  virtual std::string gelu_gemm_kernels(const FeedForward& model) const = 0;
  /// Whether operations can run in fp8: always, except on a GPU with portable kernels.
  virtual bool has_fp8() const = 0;

 protected:
  Backend() = default;

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Collectives> collectives_;
};

/// A backend on `gpu`, or on the CPU with the given number of compute threads. All ranks call it.
/// Error(kEnvironment) if it is not available.
std::unique_ptr<Backend> make_backend(const RankGpu& gpu, const CudaConfig& cuda, int threads,
                                      World& world, Grouping grouping = Grouping::kFlat);

}  // namespace bertha
