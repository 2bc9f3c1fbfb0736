// Timing of the library's algorithms.
//
// Candidates  the library's heuristics, 5 to 8 of them, and then from the fastest to its neighbors
//             (tile, cluster, order of tiles, the library's own option) as long as one is faster: 20
//             to 800 for a product, none of them wrong so far.
// Final       the fastest by short turns run 100 ms each, and three times: under its power limit,
//             where a step of training is, the card's clock follows what the algorithm draws, which
//             2 ms in turn with others do not show. Chosen by short turns alone, the same candidates
//             made a step of BERT-large 2 % slower than the heuristics' best, tuned on another card
//             (95.5 beside 93.6 ms); chosen in the final, 2 % faster (94.0 beside 96.1 ms).
// Cost        some 3 s per large product, 75 s for BERT-large.
//
// NVIDIA H200, cublasLt 13.1, bf16, T = 24,576 tokens (decoder 3,840 rows), random operands,
// 2026-11-22, in the final; first: what the heuristics name first.
//
//   product                     first  tuned     TFLOP/s
//                                (us)   (us)     (tuned)
//   QKV forward, bias             257    228         677
//   projection forward             87     81         635
//   FFN1 forward, bias, gelu      419    391         527
//   FFN2 forward                  325    321         642
//   FFN2 data gradient, gelu'     385    373         552
//   FFN1 data gradient, adds      309    309         668
//   projection data gradient       86     82         630
//   QKV data gradient, adds       243    241         642
//   FFN2 weight gradient          296    296         697
//   FFN1 weight gradient          309    301         684
//   projection weight gradient     84     83         622
//   QKV weight gradient           240    230         671
//   these twelve                3,039  2,936         632   x 24 layers: 70.5 ms
//   decoder forward, bias         417    365         658
//   decoder data gradient         389    355         676
//   decoder weight gradient       407    369         650
//
// The day before, in short turns: an algorithm tuned for T = 24,576 is within about 1 % of those tuned
// for T = 24,320, 22,528 and 12,288; alignments of 256 instead of 16 bytes and split sums in the type
// of D do not change which are offered.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "kernels/base/log.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/gemm/gemm_check.h"
#include "kernels/cuda/gemm/gemm_plans.h"
#include "kernels/cuda/handles.h"

namespace bertha {
namespace {

constexpr int kCandidates = 32;  // more than the library offers
constexpr size_t kFinalists = 7;
constexpr int kMostSteps = 8;       // from neighbor to neighbor
constexpr double kPromising = 1.1;  // times the best, by two launches
// Short turns alternate, so that a change of the clock meets all.
constexpr int kShortTurns = 3;
constexpr double kShortTurnUs = 2'000.0;  // long beside the resolution of events, 0.5 us
// Long beside the card's control of its clock.
constexpr int kFinalTurns = 3;
constexpr double kSettleUs = 40'000.0;  // before each turn
constexpr double kFinalTurnUs = 60'000.0;
constexpr int kMostLaunches = 1'000;  // in a turn
// Operands change from launch to launch, and all of them are four times the second-level cache.
constexpr int64_t kRotatedBytes = int64_t{200} << 20;
constexpr int kMostSets = 16;

class TimingEvent {
 public:
  TimingEvent() { BERTHA_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~TimingEvent() { cudaEventDestroy(event_); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Operands of its own for each of a few sets, with random values.
class Workbench {
 public:
  Workbench(CudaDevice& device, cudaStream_t stream, const GemmPlan& plan)
      : stream_(stream), dtype_(plan.key.dtype), d_count_(plan.m * plan.n) {
    const bool aux =
        plan.key.epilogue == GemmEpilogue::kGeluBias || plan.key.epilogue == GemmEpilogue::kDgelu;
    const int64_t set_bytes =
        (plan.m * plan.k + plan.n * plan.k + (aux ? 2 : 1) * d_count_) * size_bytes(dtype_);
    sets_ = std::clamp<int>(static_cast<int>(kRotatedBytes / set_bytes) + 1, 2, kMostSets);
    for (int set = 0; set < sets_; ++set) {
      operands_.push_back({.a = random(device, plan.m * plan.k),
                           .b = random(device, plan.n * plan.k),
                           .d = random(device, d_count_),
                           .bias = random(device, plan.m),
                           .aux = aux ? random(device, d_count_) : nullptr});
    }
    before_ = random(device, d_count_);
    samples_ = device.allocate(static_cast<int64_t>(sizeof(GemmSample)) * kGemmSamples);
    wrong_ = device.allocate(sizeof(int));
    reset_output(plan);
    sample_product(stream_, plan, product_operands(plan), samples());
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

  /// Whether what launch 0 wrote is the product.
  bool is_right(const GemmPlan& plan) {
    int wrong = 0;
    BERTHA_CUDA_CHECK(cudaMemsetAsync(wrong_.data(), 0, sizeof(int), stream_));
    count_wrong(stream_, plan, operands(0), samples(), static_cast<int*>(wrong_.data()));
    BERTHA_CUDA_CHECK(
        cudaMemcpyAsync(&wrong, wrong_.data(), sizeof(int), cudaMemcpyDefault, stream_));
    BERTHA_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return wrong == 0;
  }

 private:
  void* random(CudaDevice& device, int64_t count) {
    buffers_.push_back(device.allocate(count * size_bytes(dtype_)));
    void* data = buffers_.back().data();
    fill_with_random(stream_, dtype_, data, count, static_cast<uint32_t>(buffers_.size()));
    return data;
  }

  GemmOperands product_operands(const GemmPlan& plan) const {
    GemmOperands o = operands(0);
    const bool bias =
        plan.key.epilogue == GemmEpilogue::kBias || plan.key.epilogue == GemmEpilogue::kGeluBias;
    if (!bias) o.bias = nullptr;
    return o;
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

GemmAlgorithm words_of(const cublasLtMatmulAlgo_t& algorithm) {
  GemmAlgorithm words;
  std::memcpy(words.data(), &algorithm, sizeof(algorithm));
  return words;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The algorithms of one product in competition. The library's first choice stays in front, to be
/// compared with.
class Contest {
 public:
  Contest(GemmPlans& plans, GemmPlan& plan, CudaDevice& device, cudaStream_t stream)
      : plans_(plans), plan_(plan), stream_(stream), bench_(device, stream, plan) {}

  /// Those among the choices that are new and compute the product.
  std::vector<Candidate> right_among(std::span<const cublasLtMatmulAlgo_t> choices) {
    std::vector<Candidate> right;
    for (const cublasLtMatmulAlgo_t& choice : choices) {
      if (!seen_.insert(words_of(choice)).second) continue;
      ++tried_;
      plan_.algorithm = choice;
      bench_.reset_output(plan_);
      if (try_run() && bench_.is_right(plan_)) {
        right.push_back({.algorithm = choice});
      } else {
        ++wrong_;
      }
    }
    for (Candidate& candidate : right) candidate.us = time_us(candidate, 2);
    return right;
  }

  /// Short turns of those in the contest and these; the fastest stay.
  void take_turns(std::span<const Candidate> newcomers) {
    in_.insert(in_.end(), newcomers.begin(), newcomers.end());
    std::vector<std::vector<double>> times(in_.size());
    for (int turn = 0; turn < kShortTurns; ++turn) {
      for (size_t i = 0; i < in_.size(); ++i) {
        times[i].push_back(time_us(in_[i], launches_in(kShortTurnUs, in_[i])));
      }
    }
    set_medians(times);
    std::sort(in_.begin() + 1, in_.end(), faster);
    in_.resize(std::min<size_t>(in_.size(), 1 + kFinalists));
  }

  /// Long turns, in which the clock settles to what the algorithm draws.
  void final() {
    std::vector<std::vector<double>> times(in_.size());
    for (int turn = 0; turn < kFinalTurns; ++turn) {
      for (size_t i = 0; i < in_.size(); ++i) {
        time_us(in_[i], launches_in(kSettleUs, in_[i]));
        times[i].push_back(time_us(in_[i], launches_in(kFinalTurnUs, in_[i])));
      }
    }
    set_medians(times);
  }

  const Candidate& first() const { return in_.front(); }
  const Candidate& best() const { return *std::min_element(in_.begin(), in_.end(), faster); }
  int tried() const { return tried_; }
  int wrong() const { return wrong_; }

 private:
  bool try_run() {
    try {
      plans_.run(plan_, bench_.operands(0));
    } catch (const Error&) {
      return false;  // an algorithm that the library offers and then refuses
    }
    return true;
  }

  /// Of a launch.
  double time_us(const Candidate& candidate, int launches) {
    plan_.algorithm = candidate.algorithm;
    BERTHA_CUDA_CHECK(cudaEventRecord(begin_.get(), stream_));
    for (int i = 0; i < launches; ++i) plans_.run(plan_, bench_.operands(i));
    BERTHA_CUDA_CHECK(cudaEventRecord(end_.get(), stream_));
    BERTHA_CUDA_CHECK(cudaEventSynchronize(end_.get()));
    float ms = 0.0f;
    BERTHA_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
    return static_cast<double>(ms) * 1000.0 / launches;
  }

  static int launches_in(double us, const Candidate& candidate) {
    return std::clamp(static_cast<int>(us / std::max(candidate.us, 1.0)), 2, kMostLaunches);
  }

  void set_medians(std::span<const std::vector<double>> times) {
    for (size_t i = 0; i < in_.size(); ++i) in_[i].us = median(times[i]);
  }

  GemmPlans& plans_;
  GemmPlan& plan_;
  cudaStream_t stream_;
  Workbench bench_;
  TimingEvent begin_;
  TimingEvent end_;
  std::set<GemmAlgorithm> seen_;
  std::vector<Candidate> in_;
  int tried_ = 0;
  int wrong_ = 0;
};

}  // namespace

GemmTuning GemmPlans::tune(const GemmKey& key) {
  GemmPlan plan(key);
  const std::vector<cublasLtMatmulAlgo_t> first_choices = heuristics(plan, kCandidates);
  if (first_choices.empty()) return {};

  Contest contest(*this, plan, device_, stream_);
  const std::vector<Candidate> right = contest.right_among(first_choices);
  if (right.empty()) {
    fail(ExitCode::kEnvironment, "none of ", contest.tried(),
         " algorithms of cublasLt computes a product of T = ", key.rows, ", K = ", key.inputs,
         ", N = ", key.outputs, " in ", name(key.dtype), "; the library or the GPU is broken.");
  }
  contest.take_turns(right);

  // From the fastest to its fastest neighbor, as long as that is any faster.
  for (int step = 0; step < kMostSteps; ++step) {
    const Candidate best = contest.best();
    plan.algorithm = best.algorithm;
    std::vector<Candidate> around = contest.right_among(neighbors(plan));
    std::erase_if(around, [&](const Candidate& one) { return one.us > kPromising * best.us; });
    if (around.empty()) break;
    std::sort(around.begin(), around.end(), faster);
    around.resize(std::min<size_t>(around.size(), kFinalists));
    contest.take_turns(around);
    if (words_of(contest.best().algorithm) == words_of(best.algorithm)) break;
  }
  contest.final();

  TunedGemm& tuned = tuned_[key];
  tuned.algorithm = words_of(contest.best().algorithm);
  tuned.us = contest.best().us;
  plans_.clear();  // nearby keys may be better served now
  return {.candidates = contest.tried(),
          .wrong = contest.wrong(),
          .first_us = contest.first().us,
          .tuned_us = contest.best().us};
}

void tune_gemms(Device& device, Stream& stream, std::span<const GemmShape> shapes,
                const std::string& path,
                const std::function<void(const GemmShape&, const GemmTuning&)>& progress) {
  auto* cuda_device = dynamic_cast<CudaDevice*>(&device);
  BERTHA_CHECK(cuda_device != nullptr, "device is ", device.description(), ", want a CUDA device");
  const CudaOptions options{.gemm_plans_path = std::filesystem::exists(path) ? path : ""};
  GemmPlans plans(*cuda_device, native(stream), options);
  for (const GemmShape& shape : shapes) {
    progress(shape, plans.tune(gemm_key(shape, options.gemm_sm_count)));
    plans.save(path);
  }
}

}  // namespace bertha
