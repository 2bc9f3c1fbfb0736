// Timing of the library's algorithms.
//
// NVIDIA H200, cublasLt 13.1, bf16, T = 24,576 tokens (decoder 3,712 rows), random operands,
// 2026-11-21. The card ran at its power limit (630 W, 1.9 GHz), as it does in training: short
// runs on a cool card are up to 15 % faster.
//
//   product                     first  tuned     TFLOP/s
//                                (us)   (us)     (tuned)
//   QKV forward, bias             262    221         701
//   projection forward             90     81         635
//   FFN1 forward, bias, gelu      428    367         561
//   FFN2 forward                  317    306         673
//   FFN2 data gradient, gelu'     393    356         580
//   FFN1 data gradient, adds      308    297         694
//   projection data gradient       90     81         640
//   QKV data gradient, adds       245    232         665
//   FFN2 weight gradient, adds    275    275         749
//   FFN1 weight gradient, adds    314    313         658
//   proj. weight gradient, adds    87     81         639
//   QKV weight gradient, adds     236    232         666
//   these twelve                3,046  2,843         652   x 24 layers: 68.2 ms
//   decoder forward, bias         403    403         575
//   decoder data gradient         336    336         691
//   decoder weight gradient       373    349         666
//
// Of 32 algorithms asked for, the library offers 5 to 8; alignments of 256 instead of 16 bytes and
// split sums in the type of D do not change which. It takes 0.15 to 0.3 s per product. An algorithm
// tuned for T = 24,576 is within about 1 % of those tuned for T = 24,320, 22,528 and 12,288.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "kernels/base/log.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/gemm_check.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/handles.h"

namespace bertha {
namespace {

constexpr int kCandidates = 32;  // more than the library offers
constexpr int kFinalists = 4;
constexpr int kFirstBatches = 3;
constexpr int kFinalBatches = 9;
constexpr double kBatchUs = 2000.0;  // long beside the resolution of events, 0.5 us
constexpr int kMostLaunches = 50;    // per batch
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
    const bool aux = plan.key.epilogue == GemmEpilogue::kGeluBias ||
                     plan.key.epilogue == GemmEpilogue::kGeluGradient;
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

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

bool GemmPlans::try_run(const GemmPlan& plan, const GemmOperands& operands) {
  try {
    run(plan, operands);
  } catch (const Error&) {
    return false;  // an algorithm that the library offers and then refuses
  }
  return true;
}

GemmTuning GemmPlans::tune(const GemmKey& key) {
  GemmTuning result;
  GemmPlan plan(key);
  std::vector<Candidate> right;
  const std::vector<cublasLtMatmulAlgo_t> choices = heuristics(plan, kCandidates);
  result.candidates = static_cast<int>(choices.size());
  if (choices.empty()) return result;

  Workbench bench(device_, stream_, plan);
  for (const cublasLtMatmulAlgo_t& choice : choices) {
    plan.algorithm = choice;
    bench.reset_output(plan);
    if (try_run(plan, bench.operands(0)) && bench.is_right(plan)) {
      right.push_back({.algorithm = choice});
    } else {
      ++result.wrong;
    }
  }
  if (right.empty()) {
    fail(ExitCode::kEnvironment, "none of ", result.candidates,
         " algorithms of cublasLt computes a product of T = ", key.rows, ", K = ", key.inputs,
         ", N = ", key.outputs, " in ", name(key.dtype), "; the library or the GPU is broken.");
  }

  const TimingEvent begin;
  const TimingEvent end;
  const auto time_us = [&](const Candidate& candidate, int launches) {
    plan.algorithm = candidate.algorithm;
    BERTHA_CUDA_CHECK(cudaEventRecord(begin.get(), stream_));
    for (int i = 0; i < launches; ++i) run(plan, bench.operands(i));
    BERTHA_CUDA_CHECK(cudaEventRecord(end.get(), stream_));
    BERTHA_CUDA_CHECK(cudaEventSynchronize(end.get()));
    float ms = 0.0f;
    BERTHA_CUDA_CHECK(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    return static_cast<double>(ms) * 1000.0 / launches;
  };
  // Batches of different candidates alternate, so that a change of the clock meets all of them.
  const auto time_all = [&](std::span<Candidate> candidates, int batches) {
    std::vector<std::vector<double>> times(candidates.size());
    for (int batch = 0; batch < batches; ++batch) {
      for (size_t i = 0; i < candidates.size(); ++i) {
        const double guess = std::max(candidates[i].us, 1.0);
        const int launches = std::clamp(static_cast<int>(kBatchUs / guess), 2, kMostLaunches);
        times[i].push_back(time_us(candidates[i], launches));
      }
    }
    for (size_t i = 0; i < candidates.size(); ++i) candidates[i].us = median(times[i]);
  };
  for (Candidate& candidate : right) candidate.us = time_us(candidate, 2);
  time_all(right, kFirstBatches);
  // The library's first choice stays in front, to be compared with.
  std::sort(right.begin() + 1, right.end(),
            [](const Candidate& one, const Candidate& other) { return one.us < other.us; });
  right.resize(std::min<size_t>(right.size(), 1 + kFinalists));
  time_all(right, kFinalBatches);
  const Candidate& best = *std::min_element(
      right.begin(), right.end(),
      [](const Candidate& one, const Candidate& other) { return one.us < other.us; });
  result.first_us = right.front().us;
  result.tuned_us = best.us;

  TunedGemm& tuned = tuned_[key];
  std::memcpy(tuned.algorithm.data(), &best.algorithm, sizeof(best.algorithm));
  tuned.us = best.us;
  plans_.clear();  // nearby keys may be better served now
  return result;
}

void tune_gemms(Device& device, Stream& stream, std::span<const GemmShape> shapes,
                const std::string& path,
                const std::function<void(const GemmShape&, const GemmTuning&)>& progress) {
  auto* cuda_device = dynamic_cast<CudaDevice*>(&device);
  BERTHA_CHECK(cuda_device != nullptr, "device is ", device.description(), ", want a CUDA device");
  const CudaOptions options{.gemm_plans_path = std::filesystem::exists(path) ? path : ""};
  GemmPlans plans(*cuda_device, native(stream), options);
  for (const GemmShape& shape : shapes) {
    progress(shape, plans.tune(gemm_key(shape, options.gemm_multiprocessors)));
    plans.save(path);
  }
}

}  // namespace bertha
