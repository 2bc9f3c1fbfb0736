#include "harness/backend.h"

#include <set>
#include <sstream>
#include <vector>

#include "harness/backend_cuda.h"
#include "harness/comm/gpu_plan.h"
#include "harness/comm/rank_name.h"
#include "kernels/base/joined.h"
#include "kernels/base/log.h"
#include "kernels/cpu/cpu_backend.h"

namespace bertha {
namespace {

/// The GPUs that every rank sees, in rank order: "machine host node_rank bus_id bus_id ...".
std::vector<RankGpus> gather_gpus(World& world, const std::vector<std::string>& visible) {
  std::ostringstream text;
  text << machine_name() << ' ' << own_host() << ' ' << world.node_rank();
  for (const std::string& bus_id : visible) text << ' ' << bus_id;
  std::vector<RankGpus> ranks;
  for (const std::string& sent : world.gather_texts(text.str())) {
    std::istringstream received(sent);
    RankGpus rank;
    received >> rank.machine >> rank.host >> rank.node_rank;
    for (std::string bus_id; received >> bus_id;) rank.bus_ids.push_back(bus_id);
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

/// Hosts on which a rank sees no GPU, "node3, node7"; "" = none.
std::string hosts_without(World& world, bool sees_gpu) {
  std::set<std::string> hosts;
  for (const std::string& host : world.gather_texts(sees_gpu ? "" : own_host())) {
    if (!host.empty()) hosts.insert(host);
  }
  return joined(hosts, ", ");
}

/// Whether the backend is CUDA; the same on every rank.
bool decide_auto(World& world, bool sees_gpu) {
  const bool any_sees = world.agree_max(sees_gpu ? 1 : 0) == 1;
  const std::string without = any_sees ? hosts_without(world, sees_gpu) : "";
  if (!without.empty()) {
    fail(ExitCode::kEnvironment,
         "train.backend is auto, but some ranks see a GPU and none is available on ", without,
         "; see `nvidia-smi` there, or set train.backend to cpu.");
  }
  if (world.rank() == 0) {
    log_line(LogLevel::kInfo,
             concat("train.backend is auto: ",
                    any_sees             ? "cuda"
                    : has_cuda_backend() ? "cpu, because no GPU is available"
                                         : "cpu, because this program has no CUDA backend"));
  }
  return any_sees;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, World& world, Grouping grouping) {
    try {
      device_ = make_cpu_device(threads);
      stream_ = device_->make_stream();
      ops_ = make_cpu_ops(*device_, *stream_);
    } catch (const Error& error) {
      fail(error.code, error.what(), "; train.threads_per_rank sets the number of threads");
    }
    collectives_ =
        make_grouped_collectives(grouping, world, *device_, [this](Level, World& ranks, Stream*) {
          return ranks.make_host_collectives(*device_);  // each call ends before it returns
        });
  }

  std::string attention_kernels(const AttentionCall&) const override { return ""; }
  bool can_record_passes(const AttentionCall&) const override { return false; }
  std::string gelu_gemm_kernels(const FeedForward&) const override { return ""; }
  bool has_fp8() const override { return true; }
};

}  // namespace

RankGpu choose_gpu(ComputeBackend backend, World& world) {
  if (backend == ComputeBackend::kCpu) return {};
  if (backend == ComputeBackend::kCuda && !has_cuda_backend()) {
    fail(ExitCode::kEnvironment,
         "the backend is cuda, but this program was built without CUDA; set train.backend "
         "(--backend) to cpu or auto.");
  }
  const std::vector<std::string> visible = visible_gpus();
  if (backend == ComputeBackend::kAuto && !decide_auto(world, !visible.empty())) return {};
  const int ordinal = plan_gpu(gather_gpus(world, visible), world.rank());
  return {.ordinal = ordinal, .bus_id = visible[static_cast<size_t>(ordinal)]};
}

std::unique_ptr<Backend> make_backend(const RankGpu& gpu, const CudaConfig& cuda, int threads,
                                      World& world, Grouping grouping) {
  if (!gpu.is_none()) return make_cuda_backend(gpu.ordinal, cuda, world, grouping);
  return std::make_unique<CpuBackend>(threads, world, grouping);
}

}  // namespace bertha
