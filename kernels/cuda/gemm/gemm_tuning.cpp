// Timing of cuBLASLt's algorithms.
//
// Candidates  the 5 to 8 that the heuristics name, then from the fastest to its neighbors (tile,
//             cluster, order of tiles, the library's own option) as long as one is faster: 20 to
//             800 for a GEMM. Each is checked against sampled elements before it is timed.
// Short runs  alternate between the candidates, so that a change of the clock affects all of them.
// Long runs   of the fastest, 100 ms each, three times: at the power limit, where training runs,
//             the clock depends on the energy of an algorithm, which short runs do not show.
// Cost        some 3 s per large GEMM, 75 s for BERT-large.
// Figure      the twelve GEMMs of a BERT-large layer, T = 24,576, bf16, one H200: 2,936 us tuned,
//             3,039 with the heuristics' first; a step is 2 % faster. All:
//             kernels/measured/gemm.md.

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>

#include "kernels/base/figures.h"
#include "kernels/base/log.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/gemm/gemm_check.h"
#include "kernels/cuda/gemm/gemm_plans.h"
#include "kernels/cuda/handles.h"
#include "kernels/ops/gemm_shape.h"

namespace bertha {
namespace {

constexpr int kCandidates = 32;  // more than the library offers
constexpr size_t kFinalists = 7;
constexpr int kMaxSteps = 8;          // from neighbor to neighbor
constexpr double kMaxSlowdown = 1.1;  // times the best, by two launches
constexpr int kShortRuns = 3;
constexpr double kShortRunUs = 2'000.0;  // the resolution of events is 0.5 us
// Longer than the GPU takes to adjust its clock.
constexpr int kLongRuns = 3;
constexpr double kSettleUs = 40'000.0;  // before each run
constexpr double kLongRunUs = 60'000.0;
constexpr int kMaxLaunches = 1'000;  // in a run
// Inverse scales of fp8: far from 1 one by one, and together of order one.
// The library reads a scale at a 16-byte aligned address alone.
constexpr float4 kInverseScales[] = {{4.0f, 0.0f, 0.0f, 0.0f}, {0.125f, 0.0f, 0.0f, 0.0f}};
// Operands change from launch to launch, and all of them are four times the L2 cache.
constexpr int64_t kRotatedBytes = int64_t{200} << 20;
constexpr int kMaxSets = 16;

/// Several sets of operands with random values.
class TuningOperands {
 public:
  TuningOperands(CudaDevice& device, cudaStream_t stream, const GemmPlan& plan)
      : stream_(stream), dtype_(plan.key.dtype), d_count_(plan.m * plan.n) {
    const bool aux = has_aux(plan.key.epilogue);
    const DType a = plan.key.a_dtype;
    const DType b = plan.key.b_dtype;
    const int64_t set_bytes = plan.m * plan.k * size_bytes(a) + plan.n * plan.k * size_bytes(b) +
                              (aux ? 2 : 1) * d_count_ * size_bytes(dtype_);
    float4* scales = nullptr;
    if (is_fp8(a)) {
      buffers_.push_back(device.allocate(sizeof(kInverseScales)));
      scales = static_cast<float4*>(buffers_.back().data());
      BERTHA_CUDA_CHECK(cudaMemcpyAsync(scales, kInverseScales, sizeof(kInverseScales),
                                        cudaMemcpyDefault, stream_));
    }
    sets_ = std::clamp<int>(static_cast<int>(kRotatedBytes / set_bytes) + 1, 2, kMaxSets);
    for (int set = 0; set < sets_; ++set) {
      operands_.push_back({.a = random(device, a, plan.m * plan.k),
                           .b = random(device, b, plan.n * plan.k),
                           .d = random(device, dtype_, d_count_),
                           .bias = random(device, dtype_, plan.m),
                           .aux = aux ? random(device, dtype_, d_count_) : nullptr,
                           .a_inverse_scale = scales,
                           .b_inverse_scale = scales == nullptr ? nullptr : scales + 1});
    }
    before_ = random(device, dtype_, d_count_);
    samples_ = device.allocate(static_cast<int64_t>(sizeof(GemmSample)) * kGemmSamples);
    wrong_ = device.allocate(sizeof(int));
    reset_output(plan);
    GemmOperands plain = operands(0);
    if (!has_bias(plan.key.epilogue)) plain.bias = nullptr;
    sample_gemm(stream_, plan, plain, samples());
    BERTHA_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }

  /// The operands of launch `i`; those of launch 0 are checked.
  const GemmOperands& operands(int i) const { return operands_[static_cast<size_t>(i % sets_)]; }

  /// What launch 0 must write: NaN where it overwrites, known values where it adds.
  void reset_output(const GemmPlan& plan) {
    const auto bytes = static_cast<size_t>(d_count_ * size_bytes(dtype_));
    const GemmOperands& o = operands(0);
    if (plan.key.accumulate == Accumulate::kYes) {
      BERTHA_CUDA_CHECK(cudaMemcpyAsync(o.d, before_, bytes, cudaMemcpyDeviceToDevice, stream_));
    } else {
      BERTHA_CUDA_CHECK(cudaMemsetAsync(o.d, 0xFF, bytes, stream_));
    }
    if (plan.key.epilogue == GemmEpilogue::kGeluBias) {
      BERTHA_CUDA_CHECK(cudaMemsetAsync(o.aux, 0xFF, bytes, stream_));
    }
  }

  /// Whether launch 0 wrote the GEMM.
  bool is_correct(const GemmPlan& plan) {
    int wrong = 0;
    BERTHA_CUDA_CHECK(cudaMemsetAsync(wrong_.data(), 0, sizeof(int), stream_));
    count_wrong(stream_, plan, operands(0), samples(), static_cast<int*>(wrong_.data()));
    BERTHA_CUDA_CHECK(
        cudaMemcpyAsync(&wrong, wrong_.data(), sizeof(int), cudaMemcpyDefault, stream_));
    BERTHA_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return wrong == 0;
  }

 private:
  void* random(CudaDevice& device, DType dtype, int64_t count) {
    buffers_.push_back(device.allocate(count * size_bytes(dtype)));
    void* data = buffers_.back().data();
    fill_with_random(stream_, dtype, data, count, static_cast<uint32_t>(buffers_.size()));
    return data;
  }

  GemmSample* samples() { return static_cast<GemmSample*>(samples_.data()); }

  cudaStream_t stream_;
  DType dtype_;
  int64_t d_count_;
  int sets_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<GemmOperands> operands_;
  void* before_ = nullptr;
  Buffer samples_;
  Buffer wrong_;
};

struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  double us = 0.0;
};

bool faster(const Candidate& one, const Candidate& other) { return one.us < other.us; }

GemmAlgorithm bytes_of(const cublasLtMatmulAlgo_t& algorithm) {
  GemmAlgorithm words;
  std::memcpy(words.data(), &algorithm, sizeof(algorithm));
  return words;
}

/// The search for the fastest algorithm of one GEMM. The library's first choice stays in front, to
/// be compared with.
class AlgorithmSearch {
 public:
  AlgorithmSearch(GemmPlans& plans, GemmPlan& plan, CudaDevice& device, cudaStream_t stream)
      : plans_(plans),
        plan_(plan),
        stream_(stream),
        operands_(device, stream, plan),
        begin_(device.make_event()),
        end_(device.make_event()) {}

  /// Those among the choices that are new and compute the GEMM.
  std::vector<Candidate> correct_among(std::span<const cublasLtMatmulAlgo_t> choices) {
    std::vector<Candidate> correct;
    for (const cublasLtMatmulAlgo_t& choice : choices) {
      if (!seen_.insert(bytes_of(choice)).second) continue;
      ++tried_;
      plan_.algorithm = choice;
      operands_.reset_output(plan_);
      if (try_run() && operands_.is_correct(plan_)) {
        correct.push_back({.algorithm = choice});
      } else {
        ++wrong_;
      }
    }
    for (Candidate& candidate : correct) candidate.us = time_us(candidate, 2);
    return correct;
  }

  /// Short runs of the candidates and `added`; the fastest stay.
  void time_short_runs(std::span<const Candidate> added) {
    candidates_.insert(candidates_.end(), added.begin(), added.end());
    std::vector<std::vector<double>> times(candidates_.size());
    for (int run = 0; run < kShortRuns; ++run) {
      for (size_t i = 0; i < candidates_.size(); ++i) {
        times[i].push_back(time_us(candidates_[i], launches_in(kShortRunUs, candidates_[i])));
      }
    }
    set_medians(times);
    std::sort(candidates_.begin() + 1, candidates_.end(), faster);
    candidates_.resize(std::min<size_t>(candidates_.size(), 1 + kFinalists));
  }

  /// Long runs, in which the clock settles.
  void time_long_runs() {
    std::vector<std::vector<double>> times(candidates_.size());
    for (int run = 0; run < kLongRuns; ++run) {
      for (size_t i = 0; i < candidates_.size(); ++i) {
        time_us(candidates_[i], launches_in(kSettleUs, candidates_[i]));
        times[i].push_back(time_us(candidates_[i], launches_in(kLongRunUs, candidates_[i])));
      }
    }
    set_medians(times);
  }

  const Candidate& first() const { return candidates_.front(); }
  const Candidate& best() const { return *std::ranges::min_element(candidates_, faster); }
  int tried() const { return tried_; }
  int wrong() const { return wrong_; }

 private:
  bool try_run() {
    try {
      plans_.run(plan_, operands_.operands(0));
    } catch (const Error&) {
      return false;  // an algorithm that the library offers and then refuses
    }
    return true;
  }

  /// Of a launch.
  double time_us(const Candidate& candidate, int launches) {
    plan_.algorithm = candidate.algorithm;
    BERTHA_CUDA_CHECK(cudaEventRecord(native(*begin_), stream_));
    for (int i = 0; i < launches; ++i) plans_.run(plan_, operands_.operands(i));
    BERTHA_CUDA_CHECK(cudaEventRecord(native(*end_), stream_));
    end_->wait_on_host();
    return end_->ms_since(*begin_) * 1000.0 / launches;
  }

  static int launches_in(double us, const Candidate& candidate) {
    return std::clamp(static_cast<int>(us / std::max(candidate.us, 1.0)), 2, kMaxLaunches);
  }

  void set_medians(std::span<const std::vector<double>> times) {
    for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].us = percentile(times[i], 0.5);
  }

  GemmPlans& plans_;
  GemmPlan& plan_;
  cudaStream_t stream_;
  TuningOperands operands_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
  std::set<GemmAlgorithm> seen_;
  std::vector<Candidate> candidates_;
  int tried_ = 0;
  int wrong_ = 0;
};

// Thread blocks of a cluster, first along m, then along n; larger ones leave SMs idle.
constexpr std::array kClusterShapes = {CUBLASLT_CLUSTER_SHAPE_AUTO,  CUBLASLT_CLUSTER_SHAPE_1x1x1,
                                       CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1,
                                       CUBLASLT_CLUSTER_SHAPE_2x2x1, CUBLASLT_CLUSTER_SHAPE_4x1x1,
                                       CUBLASLT_CLUSTER_SHAPE_1x4x1};
constexpr size_t kMostTiles = CUBLASLT_MATMUL_TILE_END;

/// One more value for `attribute` of `algorithm`, in `found`.
template <class Value>
void vary(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
          Value value, std::vector<cublasLtMatmulAlgo_t>& found) {
  Value now{};
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &now, sizeof(now), &written) !=
          CUBLAS_STATUS_SUCCESS ||
      now == value) {
    return;
  }
  cublasLtMatmulAlgo_t changed = algorithm;
  if (cublasLtMatmulAlgoConfigSetAttribute(&changed, attribute, &value, sizeof(value)) ==
      CUBLAS_STATUS_SUCCESS) {
    found.push_back(changed);
  }
}

/// What the algorithm says of itself; 0 where it does not answer.
uint32_t capability(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoCapAttributes_t name) {
  uint32_t value = 0;
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCapGetAttribute(&algorithm, name, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : 0;
}

std::vector<uint32_t> tiles_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::vector<uint32_t> tiles(kMostTiles);
  size_t bytes = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, tiles.data(),
                                        tiles.size() * sizeof(uint32_t), &bytes);
  tiles.resize(status == CUBLAS_STATUS_SUCCESS ? bytes / sizeof(uint32_t) : 0);
  return tiles;
}

}  // namespace

std::vector<cublasLtMatmulAlgo_t> GemmPlans::neighbors(const GemmPlan& plan) const {
  const cublasLtMatmulAlgo_t& here = plan.algorithm;
  std::vector<cublasLtMatmulAlgo_t> found;
  for (const uint32_t tile : tiles_of(here)) {
    vary(here, CUBLASLT_ALGO_CONFIG_TILE_ID, tile, found);
  }
  for (const cublasLtClusterShape_t shape : kClusterShapes) {
    vary(here, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(shape), found);
  }
  const uint32_t options = capability(here, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
  for (uint32_t option = 0; option <= options; ++option) {
    vary(here, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, option, found);
  }
  const uint32_t orders = capability(here, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT);
  for (uint32_t order = 0; order <= orders; ++order) {
    vary(here, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, order, found);
  }

  GemmPlan candidate(plan.key);
  std::erase_if(found, [&](const cublasLtMatmulAlgo_t& algorithm) {
    candidate.algorithm = algorithm;
    return !serves(candidate);
  });
  return found;
}

GemmTuning GemmPlans::tune(const GemmKey& key) {
  GemmPlan plan(key);
  const std::vector<cublasLtMatmulAlgo_t> first_choices = heuristics(plan, kCandidates);
  if (first_choices.empty()) return {};

  AlgorithmSearch search(*this, plan, device_, stream_);
  const std::vector<Candidate> correct = search.correct_among(first_choices);
  if (correct.empty()) {
    fail(ExitCode::kEnvironment, "none of ", search.tried(),
         " algorithms of cuBLASLt computes a GEMM with T = ", key.rows, ", K = ", key.inputs,
         ", N = ", key.outputs, " of ", name(key.a_dtype), " and ", name(key.b_dtype), " to ",
         name(key.dtype), "; the library or the GPU is broken.");
  }
  search.time_short_runs(correct);

  // From the fastest to its fastest neighbor, as long as that is any faster.
  for (int step = 0; step < kMaxSteps; ++step) {
    const Candidate best = search.best();
    plan.algorithm = best.algorithm;
    std::vector<Candidate> around = search.correct_among(neighbors(plan));
    std::erase_if(around, [&](const Candidate& one) { return one.us > kMaxSlowdown * best.us; });
    if (around.empty()) break;
    std::ranges::sort(around, faster);
    around.resize(std::min<size_t>(around.size(), kFinalists));
    search.time_short_runs(around);
    if (bytes_of(search.best().algorithm) == bytes_of(best.algorithm)) break;
  }
  search.time_long_runs();

  TunedGemm& tuned = tuned_[key];
  tuned.algorithm = bytes_of(search.best().algorithm);
  tuned.us = search.best().us;
  plans_.clear();  // nearby keys may be better served now
  return {.candidates = search.tried(),
          .wrong = search.wrong(),
          .first_us = search.first().us,
          .tuned_us = search.best().us};
}

void tune_gemms(Device& device, Stream& stream, std::span<const GemmShape> shapes,
                const std::string& path,
                const std::function<void(const GemmShape&, const GemmTuning&)>& progress) {
  const CudaOptions options{.gemm_plans_path = std::filesystem::exists(path) ? path : ""};
  GemmPlans plans(as_cuda(device), native(stream), options);
  for (const GemmShape& shape : shapes) {
    progress(shape, plans.tune(gemm_key(shape, options.gemm_sm_count)));
    plans.save(path);
  }
}

}  // namespace bertha
