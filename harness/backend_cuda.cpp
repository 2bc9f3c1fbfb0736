#include "harness/backend_cuda.h"

#include "harness/comm/copy_collectives.h"
#include "harness/comm/nccl_collectives.h"
#include "harness/comm/solo_collectives.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/attention.h"

namespace bertha {
namespace {

/// Refusals of the kernels begin with a field of CudaOptions, named as the key after "cuda.".
template <class Work>
auto with_key(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    fail(error.code, error.code == ExitCode::kUsage ? "cuda." : "", error.what());
  }
}

std::unique_ptr<Device> open_gpu(int ordinal, CudaKernels kernels) {
  try {
    return make_cuda_device(ordinal, kernels);
  } catch (const Error& error) {
    fail(error.code, error.what(), "; or set train.backend to cpu.");
  }
}

CudaOptions cuda_options(const Backend& backend, const CudaConfig& config) {
  const CudaOptions asked{.embedding_gradient = config.embedding_gradient,
                          .attention = config.attention,
                          .gelu_gemms = config.gelu_gemms,
                          .gemm_plans_path = config.gemm_plans,
                          .tune_gemms = config.tune_gemms,
                          .gemm_sm_count = static_cast<int>(config.gemm_sm_count),
                          .fp8_fast_wgrad = config.fp8_fast_wgrad};
  return with_key([&] { return options_on(*backend.device, asked); });
}

std::unique_ptr<Collectives> make_level(const CudaConfig& config, Device& device, Level level,
                                        World& ranks, Stream* stream, bool log) {
  if (ranks.size() == 1) return make_solo_collectives(device);
  auto nccl = make_nccl_collectives(
      ranks, device, {.max_ctas = static_cast<int>(config.nccl_max_ctas), .stream = stream});
  if (level == Level::kBetweenNodes || config.exchange == GradientExchange::kNccl) return nccl;
  const bool always = config.exchange == GradientExchange::kCopies;
  return make_copy_collectives(
      ranks, device, std::move(nccl),
      {.use = always ? CopyOptions::Use::kAlways : CopyOptions::Use::kWherePossible, .log = log});
}

}  // namespace

bool has_cuda_backend() { return true; }

std::vector<std::string> visible_gpus() {
  std::vector<std::string> bus_ids;
  const int count = count_cuda_devices();
  for (int ordinal = 0; ordinal < count; ++ordinal) bus_ids.push_back(cuda_bus_id(ordinal));
  return bus_ids;
}

Backend make_cuda_backend(int gpu_ordinal, const CudaConfig& config, World& world,
                          Grouping grouping) {
  Backend backend;
  backend.device = open_gpu(gpu_ordinal, config.kernels);
  backend.stream = backend.device->make_stream();
  backend.ops = make_cuda_ops(*backend.device, *backend.stream, cuda_options(backend, config));
  backend.collectives = make_grouped_collectives(
      grouping, world, *backend.device, [&](Level level, World& ranks, Stream* stream) {
        return make_level(config, *backend.device, level, ranks, stream, world.rank() == 0);
      });
  return backend;
}

std::string describe_cuda_attention(const Backend& backend, const CudaConfig& config,
                                    const AttentionCall& call) {
  const CudaOptions options = cuda_options(backend, config);
  return with_key([&] { return attention_kernels(options, call); });
}

bool can_record_cuda_passes(const Backend& backend, const CudaConfig& config,
                            const AttentionCall& call) {
  return config.graphs == CudaGraphs::kAuto &&
         launches_ignore_lengths(cuda_options(backend, config), call);
}

std::string describe_cuda_gelu_gemms(const Backend& backend, const CudaConfig& config,
                                     const FeedForward& model) {
  if (model.fp8 && !has_cuda_fp8(backend)) {
    fail(ExitCode::kUsage,
         "train.precision is fp8, which needs the kernels of sm_90a (H100, H200), "
         "and the device is ",
         backend.device->description(),
         "; set train.precision to bf16, and cuda.kernels to auto on such a GPU.");
  }
  const CudaOptions options = cuda_options(backend, config);
  return with_key([&] { return gelu_gemms(*backend.device, options, model); });
}

bool has_cuda_fp8(const Backend& backend) { return runs_sm90a_kernels(*backend.device); }

}  // namespace bertha
