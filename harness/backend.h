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
  std::string bus_id = "";  // "0000:1b:00.0"; "" = none: the rank computes on its cores

  bool is_none() const { return bus_id.empty(); }
};

/// What train.backend names. auto is cuda when this program has it and every rank sees a GPU, cpu
/// when none does; rank 0 logs which. None on every rank, or on no rank. All ranks call it.
///
/// Errors    Error(kEnvironment): cuda without a CUDA backend or a GPU, GPUs on some ranks only,
///           fewer GPUs than ranks on a node.
RankGpu choose_gpu(ComputeBackend backend, World& world);

/// Device, operations and rank communication of one rank, and which kernels serve a model there.
class Backend {
 public:
  virtual ~Backend() = default;

  Device& device() const { return *device_; }
  Stream& stream() const { return *stream_; }  // of compute
  Ops& ops() const { return *ops_; }
  Collectives& collectives() const { return *collectives_; }

  /// The attention kernels that a model runs, for logs: "grouped"; "" where there is one kind.
  /// Error(kUsage) when cuda.attention names kernels that cannot serve the model.
  virtual std::string attention_kernels(const AttentionCall& call) const = 0;
  /// Whether the model's passes are recorded as graphs: where cuda.graphs allows it and the
  /// attention kernels serve batches of any lengths by the same launches. Errors as above.
  virtual bool can_record_passes(const AttentionCall& call) const = 0;
  /// The kernels of GEMMs with a GELU in a model's feed-forward blocks, for logs: "own from 1921
  /// tokens", counted in a micro-batch; "" where there is one kind.
  /// Error(kUsage) when cuda.gelu_gemms names kernels that cannot serve the model, and for fp8
  /// without has_fp8().
  virtual std::string gelu_gemm_kernels(const FeedForward& model) const = 0;
  /// Whether operations run in fp8: everywhere but on a GPU with portable kernels.
  virtual bool has_fp8() const = 0;

 protected:
  Backend() = default;

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Collectives> collectives_;
};

/// A backend on `gpu`, or on the CPU with that many compute threads. All ranks call it.
/// Error(kEnvironment) with a sentence when it cannot be had.
std::unique_ptr<Backend> make_backend(const RankGpu& gpu, const CudaConfig& cuda, int threads,
                                      World& world, Grouping grouping = Grouping::kFlat);

}  // namespace bertha
