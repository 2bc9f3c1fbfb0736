// Timing of cuBLASLt's algorithms at the first use of a GEMM.
//
// Candidates  those that the heuristics name, then the fastest one's neighbors (tile, cluster,
//             order, the library's own option) as long as one is faster by two launches: some 350.
// Long runs   of the seven fastest, 100 ms each: at the power limit, where training runs, the
//             clock depends on the energy of an algorithm, which short runs do not show.
// Check       on operands of -1, 0 and 1, whose sums are exact in any order, the chosen one writes
//             the bytes of the library's first choice.
// Figure      2.3 s a GEMM; an fp8 step of BERT-large takes 64.4 ms with the file, 64.7 without.

#include <algorithm>
#include <bit>
#include <set>

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/handles.h"
#include "kernels/base/fp8.h"
#include "kernels/base/log.h"
#include "kernels/base/philox.h"
#include "kernels/cuda/gemm/gemm_plans.h"

namespace bertha {
namespace {

constexpr size_t kFinalists = 7;
constexpr int kMaxSteps = 8;  // from neighbor to neighbor
constexpr double kLongRunUs = 100'000.0;
// Operands change from launch to launch, and all of them are four times the L2 cache.
constexpr int64_t kRotatedBytes = int64_t{200} << 20;
constexpr int64_t kPeriod = 1'000'003;  // operands repeat after this number of values; a prime

GemmAlgorithm bytes_of(const cublasLtMatmulAlgo_t& algorithm) {
  return std::bit_cast<GemmAlgorithm>(algorithm);
}

struct Candidate {
  cublasLtMatmulAlgo_t algorithm;
  double us;  // a launch
};

class AlgorithmTimer {
 public:
  AlgorithmTimer(GemmPlans& plans, GemmPlan& plan, CudaDevice& device, cudaStream_t stream)
      : plans_(plans), plan_(plan), device_(device), stream_(stream) {
    const int64_t set_bytes = plan.m * plan.k * size_bytes(plan.key.a_dtype) +
                              plan.n * plan.k * size_bytes(plan.key.b_dtype) + d_bytes();
    const int64_t sets = std::clamp<int64_t>(kRotatedBytes / set_bytes + 1, 2, 16);
    const float one = 1.0f;
    copy(one_.data(), &one, sizeof(one));
    for (int64_t set = 0; set < sets; ++set) sets_.push_back(make_set(false));
  }

  /// Adds those among the choices that are new and run; the fastest stay, in order.
  void add(std::span<const cublasLtMatmulAlgo_t> choices, std::vector<Candidate>& fastest) {
    for (const cublasLtMatmulAlgo_t& choice : choices) {
      if (!seen_.insert(bytes_of(choice)).second) continue;
      try {
        fastest.push_back({choice, time_us(choice, 2)});
      } catch (const Error&) {  // offered by the library, then refused
      }
    }
    std::ranges::sort(fastest, {}, &Candidate::us);
    fastest.resize(std::min(fastest.size(), kFinalists));
  }

  void time_long_run(Candidate& one) {
    const int launches = std::clamp(static_cast<int>(kLongRunUs / std::max(one.us, 1.0)), 2, 2000);
    time_us(one.algorithm, launches / 2);  // the clock settles
    one.us = time_us(one.algorithm, launches / 2);
  }

  /// D for operands with exact sums.
  std::vector<char> output_of(const cublasLtMatmulAlgo_t& algorithm) {
    if (!exact_) exact_ = make_set(true);
    const Buffer written = device_.allocate(d_bytes());
    char* const d = static_cast<char*>(written.data());
    copy(d, exact_->d, d_bytes());
    GemmOperands operands = *exact_;
    operands.d = d;
    plan_.algorithm = algorithm;
    plans_.run(plan_, operands);
    std::vector<char> output(static_cast<size_t>(written.bytes()));
    copy(output.data(), d, written.bytes());
    BERTHA_CUDA_CHECK(cudaStreamSynchronize(stream_));
    return output;
  }

 private:
  void copy(void* to, const void* from, int64_t bytes) {
    BERTHA_CUDA_CHECK(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_));
  }

  int64_t d_bytes() const { return plan_.m * plan_.n * size_bytes(plan_.key.dtype); }

  /// Device memory of values in [-0.5, 0.5): zeros, or few distinct values, would run faster than
  /// real data. Or of -1 and 1 among three times as many zeros, for exact sums, also in 8 bits.
  void* values(DType dtype, int64_t count, bool is_exact) {
    const int64_t period = std::min(count, kPeriod);
    std::vector<char> first(static_cast<size_t>(period * size_bytes(dtype)));
    for (int64_t i = 0; i < period; ++i) {
      const uint32_t bits = random_block(buffers_.size(), 0, 0, i).elem[0];
      const double sign = bits % 8 == 0 ? 1 : bits % 8 == 1 ? -1 : 0;
      set_element(first.data(), dtype, i, is_exact ? sign : bits * 0x1p-32 - 0.5);
    }
    buffers_.push_back(device_.allocate(count * size_bytes(dtype)));
    char* const data = static_cast<char*>(buffers_.back().data());
    copy(data, first.data(), std::ssize(first));
    for (int64_t done = std::ssize(first); done < buffers_.back().bytes(); done *= 2) {
      copy(data + done, data, std::min(done, buffers_.back().bytes() - done));
    }
    return data;
  }

  GemmOperands make_set(bool is_exact) {
    const GemmKey& key = plan_.key;
    const int64_t count = plan_.m * plan_.n;
    GemmOperands made{.a = values(key.a_dtype, plan_.m * plan_.k, is_exact),
                      .b = values(key.b_dtype, plan_.n * plan_.k, is_exact),
                      .d = values(key.dtype, count, is_exact),
                      .bias = values(key.dtype, plan_.m, is_exact)};
    if (is_fp8(key.a_dtype)) made.a_inverse_scale = made.b_inverse_scale = one_.data();
    return made;
  }

  double time_us(const cublasLtMatmulAlgo_t& algorithm, int launches) {
    plan_.algorithm = algorithm;
    BERTHA_CUDA_CHECK(cudaEventRecord(native(*begin_), stream_));
    for (int i = 0; i < launches; ++i) {
      plans_.run(plan_, sets_[static_cast<size_t>(i) % sets_.size()]);
    }
    BERTHA_CUDA_CHECK(cudaEventRecord(native(*end_), stream_));
    end_->wait_on_host();
    return end_->ms_since(*begin_) * 1000.0 / launches;
  }

  GemmPlans& plans_;
  GemmPlan& plan_;
  CudaDevice& device_;
  cudaStream_t stream_;
  Buffer one_ = device_.allocate(sizeof(float));  // scales of fp8
  std::vector<Buffer> buffers_;
  std::vector<GemmOperands> sets_;
  std::optional<GemmOperands> exact_;
  std::unique_ptr<Event> begin_ = device_.make_event();
  std::unique_ptr<Event> end_ = device_.make_event();
  std::set<GemmAlgorithm> seen_;
};

/// `algorithm` with each of the values 0 to `largest` for one of its attributes.
template <class Value>
void vary(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
          Value largest, std::vector<cublasLtMatmulAlgo_t>& found) {
  for (Value value = 0; value <= largest; ++value) {
    found.push_back(algorithm);
    cublasLtMatmulAlgoConfigSetAttribute(&found.back(), attribute, &value, sizeof(value));
  }
}

}  // namespace

std::vector<cublasLtMatmulAlgo_t> GemmPlans::neighbors(const GemmPlan& plan) const {
  const cublasLtMatmulAlgo_t& here = plan.algorithm;
  std::vector<cublasLtMatmulAlgo_t> found;
  vary(here, CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{CUBLASLT_MATMUL_TILE_END - 1}, found);
  vary(here, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t{CUBLASLT_CLUSTER_SHAPE_1x4x1}, found);
  vary(here, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{63}, found);
  vary(here, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{1}, found);
  GemmPlan candidate(plan.key);
  std::erase_if(found, [&](const cublasLtMatmulAlgo_t& algorithm) {
    candidate.algorithm = algorithm;
    return !serves(candidate);
  });
  return found;
}

void GemmPlans::tune(GemmPlan& plan, std::span<const cublasLtMatmulAlgo_t> choices) {
  const cublasLtMatmulAlgo_t first = choices.front();
  AlgorithmTimer timer(*this, plan, device_, stream_);
  std::vector<Candidate> fastest;
  timer.add(choices, fastest);
  for (int step = 0; step < kMaxSteps && !fastest.empty(); ++step) {
    plan.algorithm = fastest.front().algorithm;
    timer.add(neighbors(plan), fastest);
    if (bytes_of(fastest.front().algorithm) == bytes_of(plan.algorithm)) break;
  }
  for (Candidate& one : fastest) timer.time_long_run(one);
  std::ranges::sort(fastest, {}, &Candidate::us);
  const std::vector<char> wanted = timer.output_of(first);
  const auto right = std::ranges::find_if(
      fastest, [&](const Candidate& one) { return timer.output_of(one.algorithm) == wanted; });
  plan.algorithm = right == fastest.end() ? first : right->algorithm;
  tuned_[plan.key] = bytes_of(plan.algorithm);
  log_line(LogLevel::kInfo,
           concat("tuned a GEMM with T = ", plan.key.rows, ", K = ", plan.key.inputs,
                  ", N = ", plan.key.outputs, ": ", right - fastest.begin(), " faster ones wrong"));
  if (!path_.empty()) save_tuned_gemms(path_, origin_, tuned_);
}

}  // namespace bertha
