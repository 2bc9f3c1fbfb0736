#include "harness/backend_cuda.h"

#include <algorithm>
#include <future>
#include <iterator>

#include "harness/comm/copy_collectives.h"
#include "harness/comm/nccl_collectives.h"
#include "harness/comm/solo_collectives.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/attention.h"

namespace bertha {
namespace {

/// Adds "cuda." to errors of the kernels, which begin with a field of CudaOptions, named as its
/// key.
template <class Work>
auto with_key(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    fail(error.code, error.code == ExitCode::kUsage ? "cuda." : "", error.what());
  }
}

std::vector<std::string> read_bus_ids() {
  std::vector<std::string> bus_ids;
  const int count = count_cuda_devices();
  for (int ordinal = 0; ordinal < count; ++ordinal) bus_ids.push_back(cuda_bus_id(ordinal));
  return bus_ids;
}

std::unique_ptr<Device> open_gpu(int ordinal, CudaKernels kernels) {
  try {
    return make_cuda_device(ordinal, kernels);
  } catch (const Error& error) {
    fail(error.code, error.what(), "; or set train.backend to cpu.");
  }
}

std::unique_ptr<Collectives> make_level(const CudaConfig& config, Device& device, Level level,
                                        World& ranks, Stream* stream, bool log) {
  if (ranks.size() == 1) return make_solo_collectives(device);
  auto nccl = make_nccl_collectives(
      ranks, device, {.max_ctas = static_cast<int>(config.nccl_max_ctas), .stream = stream});
  if (level == Level::kBetweenNodes || config.exchange == GradientTransport::kNccl) return nccl;
  const bool always = config.exchange == GradientTransport::kCopies;
  return make_copy_collectives(
      ranks, device, std::move(nccl),
      {.use = always ? CopyOptions::Use::kAlways : CopyOptions::Use::kWherePossible, .log = log});
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int gpu_ordinal, CudaConfig config, World& world, Grouping grouping)
      : config_(std::move(config)) {
    device_ = open_gpu(gpu_ordinal, config_.kernels);
    stream_ = device_->make_stream();
    options_ = with_key([&] { return options_on(*device_, asked_options()); });
    ops_ = make_cuda_ops(*device_, *stream_, options_);
    collectives_ = make_grouped_collectives(
        grouping, world, *device_,
        [&, log = world.rank() == 0](Level level, World& ranks, Stream* stream) {
          return make_level(config_, *device_, level, ranks, stream, log);
        });
  }

  std::string attention_kernels(const AttentionCall& call) const override {
    return with_key([&] { return bertha::attention_kernels(options_, call); });
  }

  bool can_record_passes(const AttentionCall& call) const override {
    return config_.graphs == CudaGraphs::kAuto && launches_ignore_lengths(options_, call);
  }

  std::string gelu_gemm_kernels(const FeedForward& model) const override {
    if (model.fp8 && !has_fp8()) {
      fail(ExitCode::kUsage,
           "train.precision is fp8, which needs the kernels of sm_90a (H100, H200), "
           "and the device is ",
           device_->description(),
           "; set train.precision to bf16, and cuda.kernels to auto on such a GPU.");
    }
    return with_key([&] { return gelu_gemms(*device_, options_, model); });
  }

  bool has_fp8() const override { return runs_sm90a_kernels(*device_); }

 private:
  CudaOptions asked_options() const {
    return {.embedding_gradient = config_.embedding_gradient,
            .attention = config_.attention,
            .gelu_gemms = config_.gelu_gemms,
            .gemm_plans_path = config_.gemm_plans,
            .tune_gemms = config_.tune_gemms,
            .gemm_sm_count = static_cast<int>(config_.gemm_sm_count),
            .fp8_fast_wgrad = config_.fp8_fast_wgrad};
  }

  CudaConfig config_;
  CudaOptions options_;  // resolved for this GPU
};

}  // namespace

bool has_cuda_backend() { return true; }

// Queried once: if the driver failed then, later calls throw the same error.
std::vector<std::string> visible_gpus() {
  static const std::shared_future<std::vector<std::string>> bus_ids =
      std::async(std::launch::deferred, read_bus_ids).share();
  return bus_ids.get();
}

int64_t smallest_gpu_bytes() {
  int64_t least = 0;
  for (int ordinal = 0; ordinal < std::ssize(visible_gpus()); ++ordinal) {
    const int64_t bytes = cuda_memory_bytes(ordinal);
    least = least == 0 ? bytes : std::min(least, bytes);
  }
  return least;
}

std::unique_ptr<Backend> make_cuda_backend(int gpu_ordinal, const CudaConfig& config, World& world,
                                           Grouping grouping) {
  return std::make_unique<CudaBackend>(gpu_ordinal, config, world, grouping);
}

}  // namespace bertha
