#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/comm/grouped_collectives.h"
#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "kernels/base/device.h"
#include "kernels/collectives.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/gemm_shape.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// Device, maths and rank communication of one rank. Nothing above asks which kind it is.
struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Collectives> collectives;
};

/// Where the maths of one rank will run, the same kind on every rank. Known before the backend is
/// made, because a rank takes its cores near its GPU.
struct BackendChoice {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int gpu_ordinal = 0;
  std::string gpu_bus_id = "";  // "0000:1b:00.0"; "" on the CPU
};

/// What train.backend names. auto is cuda when this program has it and every rank sees a GPU, cpu
/// when none does; rank 0 logs which. All ranks call it.
///
/// Errors    Error(kEnvironment): cuda without a CUDA backend or a GPU, GPUs on some ranks only,
///           fewer GPUs than ranks on a node.
BackendChoice choose_backend(const TrainConfig& config, World& world);

/// The backend that was chosen, with that many compute threads on the CPU. All ranks call it.
/// Error(kEnvironment) with a sentence when it cannot be had.
Backend make_backend(const BackendChoice& choice, const CudaConfig& cuda, int threads, World& world,
                     Grouping grouping = Grouping::kFlat);

/// The attention kernels that a model takes, for logs: "grouped"; "" on the CPU, which has one
/// kind. Error(kUsage) with a sentence where cuda.attention names kernels that cannot serve the
/// model.
std::string describe_attention(const BackendChoice& choice, const Backend& backend,
                               const CudaConfig& cuda, const AttentionCall& call);

/// Whether the model's passes are recorded as graphs, as cuda.graphs allows: on a GPU with
/// attention kernels that serve batches of any lengths by the same launches. Errors as
/// describe_attention.
bool can_record_passes(const BackendChoice& choice, const Backend& backend, const CudaConfig& cuda,
                       const AttentionCall& call);

/// The kernels that GEMMs with a GELU take in a model's feed-forward blocks, for logs: "own from
/// 1921 tokens"; "" on the CPU, which has one kind. Tokens are those of a micro-batch.
/// Error(kUsage) with a sentence where cuda.gelu_gemms names kernels that cannot serve the model,
/// and for fp8 on a GPU that runs portable kernels.
std::string describe_gelu_gemms(const BackendChoice& choice, const Backend& backend,
                                const CudaConfig& cuda, const FeedForward& model);

/// Whether operations run in fp8: everywhere but on a GPU with portable kernels.
bool has_fp8(const BackendChoice& choice, const Backend& backend);

}  // namespace bertha
