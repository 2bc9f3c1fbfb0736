#include "harness/doctor/measure.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "data/files/new_file.h"
#include "harness/backend.h"
#include "harness/backend_cuda.h"
#include "harness/comm/binding.h"
#include "harness/comm/rank_name.h"
#include "harness/config/build_info.h"
#include "harness/doctor/neighbors.h"
#include "kernels/base/seconds_since.h"
#include "kernels/bench/gemm_roof.h"
#include "kernels/cpu/cpu_backend.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Long enough for a GPU to reach its sustained clocks.
constexpr double kGpuGemmFlops = 1.2e12;  // one GEMM of 8192 rows, columns and products
constexpr int64_t kGpuGemms = 700;        // about a second on an H200
constexpr std::chrono::milliseconds kBetweenLooks{50};
constexpr double kCpuGemmFlops = 2.2e9;  // one of 1024: 50 ms on a core
constexpr int64_t kCpuGemms = 48;        // a short disturbance affects only a few of them
constexpr int64_t kCopyBytes = int64_t{128} << 20;  // larger than the caches
constexpr double kCopySeconds = 0.3;
constexpr int64_t kGpuReduceElements = int64_t{64} << 20;  // f32
constexpr int64_t kHostReduceElements = int64_t{2} << 20;  // f32
constexpr int kReductions = 10;
constexpr int kLatencyReductions = 100;
constexpr int64_t kOutputBytes = int64_t{64} << 20;

double gemm_flops(const Backend& backend, int threads, double flops, int64_t launches) {
  OpBench<Ops> bench({.device = &backend.device(),
                      .stream = &backend.stream(),
                      .ops = &backend.ops(),
                      .make_reference = make_cpu_ops,
                      .io = backend.device().has_io(DType::kBF16) ? DType::kBF16 : DType::kF32,
                      .reference_threads = threads});
  return gemm_roof(bench, flops, launches);
}

/// Bytes per second from one buffer to the other.
double copy_bytes(const Backend& backend, const Buffer& from, const Buffer& to) {
  double copied = -static_cast<double>(kCopyBytes);  // the first copy is a warm-up
  Clock::time_point begin;
  do {
    if (copied <= 0) begin = Clock::now();
    backend.device().copy(backend.stream(), to.data(), from.data(), kCopyBytes);
    backend.stream().wait_on_host();
    copied += static_cast<double>(kCopyBytes);
  } while (copied == 0 || seconds_since(begin) < kCopySeconds);
  return copied / seconds_since(begin);
}

/// Mean seconds of `count` all-reduces of `elements` f32. All ranks of `world` call it.
double reduce_seconds(const Backend& backend, World& world, int64_t elements, int count) {
  Collectives& collectives = backend.collectives();
  const Buffer memory = backend.device().allocate(elements * size_bytes(DType::kF32));
  const View values(memory.data(), DType::kF32, {elements});
  collectives.all_reduce_sum(values);
  collectives.stream().wait_on_host();
  world.barrier();
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < count; ++i) collectives.all_reduce_sum(values);
  collectives.stream().wait_on_host();
  return seconds_since(begin) / count;
}

/// The bus bandwidth; -1 for a single rank. All ranks of `world` call it.
double reduce_bytes(const Backend& backend, World& world, int64_t elements) {
  if (world.size() == 1) return -1;
  const double share = 2.0 * (world.size() - 1) / world.size();
  const auto bytes = static_cast<double>(elements * size_bytes(DType::kF32));
  return share * bytes / reduce_seconds(backend, world, elements, kReductions);
}

/// Polls the state of a GPU while it computes.
class GpuWatch {
 public:
  explicit GpuWatch(const std::string& bus_id)
      : state_(read_gpu_state(bus_id)), thread_([this, bus_id](const std::stop_token& end) {
          for (; !end.stop_requested(); std::this_thread::sleep_for(kBetweenLooks)) {
            state_ = combined(state_, read_gpu_state(bus_id));
          }
        }) {}

  GpuState stop() {
    thread_.request_stop();
    thread_.join();
    return state_;
  }

 private:
  GpuState state_;
  std::jthread thread_;  // last member: it uses the others
};

void measure_gpu(const Backend& gpu, int threads, World& world, RankFacts& facts) {
  Device& device = gpu.device();
  facts.gpu_free_share = 1 - static_cast<double>(device.used_memory_bytes()) /
                                 static_cast<double>(device.total_memory_bytes());
  world.barrier();
  GpuWatch watch(facts.gpu_bus_id);
  facts.gpu_gemm_flops = gemm_flops(gpu, threads, kGpuGemmFlops, kGpuGemms);
  facts.gpu_state = watch.stop();
  const Buffer pinned = device.allocate_pinned(kCopyBytes);
  const Buffer from = device.allocate(kCopyBytes);
  const Buffer to = device.allocate(kCopyBytes);
  world.barrier();
  facts.gpu_copy_bytes = copy_bytes(gpu, from, to);
  world.barrier();
  facts.host_to_gpu_bytes = copy_bytes(gpu, pinned, to);
}

void measure_host(const Backend& host, int threads, World& world, RankFacts& facts) {
  world.barrier();
  facts.cpu_gemm_flops = gemm_flops(host, threads, kCpuGemmFlops, kCpuGemms);
  const Buffer from = host.device().allocate(kCopyBytes);
  const Buffer to = host.device().allocate(kCopyBytes);
  world.barrier();
  facts.host_copy_bytes = copy_bytes(host, from, to);
  facts.host_reduce_bytes = reduce_bytes(host, world, kHostReduceElements);
  if (world.size() > 1) {
    facts.host_reduce_latency_s = reduce_seconds(host, world, world.size(), kLatencyReductions);
  }
}

/// Measures writing a file as for a checkpoint, and removes it. If the folder does not exist, in
/// which case training creates it, uses the nearest existing parent.
void measure_output(const std::string& folder, RankFacts& facts) {
  fs::path place = fs::absolute(folder);
  while (!fs::exists(place) && place.has_relative_path()) place = place.parent_path();
  const fs::path path = place / fmt::format(".bertha_doctor_{}_{}", own_host(), ::getpid());
  try {
    const Clock::time_point begin = Clock::now();
    write_new_file(path.string(), std::string(kOutputBytes, 'b'));
    facts.output_write_bytes = static_cast<double>(kOutputBytes) / seconds_since(begin);
    fs::remove(path);
    facts.output_free_bytes = static_cast<double>(fs::space(place).available);
  } catch (const std::exception& error) {
    facts.output_trouble = fmt::format("--output-dir {}: {}", folder, error.what());
  }
}

double free_in_shm() {
  std::error_code error;
  const fs::space_info space = fs::space("/dev/shm", error);
  return error ? 0 : static_cast<double>(space.available);
}

double max_open_files() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : -1;
}

}  // namespace

RankFacts measure_rank(const MeasureOptions& options, World& world) {
  const RankGpu gpu = choose_gpu(options.backend, world);
  const int cores = core_share(world).threads;
  RankFacts facts{.rank = world.rank(),
                  .host = own_host(),
                  .machine = machine_name(),
                  .version = version_text(),
                  .cores = cores,
                  .gpus_seen = static_cast<int>(visible_gpus().size()),
                  .gpu_bus_id = gpu.bus_id};
  facts.shm_free_bytes = free_in_shm();
  facts.open_files = max_open_files();
  const std::unique_ptr<World> node = world.make_node_world();
  measure_host(*make_backend({}, {}, cores, world), cores, world, facts);
  if (!gpu.is_none()) {
    const std::unique_ptr<Backend> backend = make_backend(gpu, {}, cores, world);
    facts.gpu = backend->device().description();
    measure_gpu(*backend, cores, world, facts);
    facts.job_reduce_bytes = reduce_bytes(*backend, world, kGpuReduceElements);
    facts.node_reduce_bytes = facts.job_reduce_bytes;
    if (node->size() < world.size()) {
      facts.node_reduce_bytes =
          reduce_bytes(*make_backend(gpu, {}, cores, *node), *node, kGpuReduceElements);
    }
  }
  facts.neighbor_bytes = neighbor_rate(*world.make_transport(), node->rank() == 0);
  if (!options.output_dir.empty() && node->rank() == 0) measure_output(options.output_dir, facts);
  return facts;
}

}  // namespace bertha
