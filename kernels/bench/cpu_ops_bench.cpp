// Times the operations of one encoder layer on the CPU backend: bertha_bench_cpu_ops --help.
#include <benchmark/benchmark.h>

#include <thread>

#include "kernels/bench/encoder_layer.h"

namespace bertha {
namespace {

using Shape = BenchShape;

constexpr int64_t kTH = Shape::kTokens * Shape::kHidden;
constexpr int64_t kTF = Shape::kTokens * Shape::kFeedForward;

/// Least work of one call: floating-point operations (an addition, a multiplication, an exponential
/// or a root counts one, a draw for dropout none) and bytes that have to move when each tensor is
/// read or written once.
struct Work {
  int64_t flops = 0;
  int64_t bytes = 0;
};

struct Case {
  const char* name;
  void (EncoderLayer::*run)();
  Work work;
};

constexpr int64_t floats(int64_t count) { return 4 * count; }

// Outputs over inputs: 3H/H, H/H, F/H, H/F.
constexpr int64_t kWeights =
    4 * Shape::kHidden * Shape::kHidden + 2 * Shape::kHidden * Shape::kFeedForward;
constexpr int64_t kScores = Shape::kSeqs * Shape::kHeads * Shape::kSeqTokens * Shape::kSeqTokens;
constexpr int64_t kLogits = Shape::kMasked * Shape::kVocab;

constexpr Case kCases[] = {
    // x and y of each product, and what the GELU saves.
    {"linear_forward",
     &EncoderLayer::linear_forward,
     {2 * Shape::kTokens * kWeights, floats(kWeights + 8 * kTH + 3 * kTF)}},
    // dy and x for the weights, dy again and dx for the data, and what the GELU saved.
    {"linear_backward",
     &EncoderLayer::linear_backward,
     {4 * Shape::kTokens * kWeights, floats(2 * kWeights + 16 * kTH + 5 * kTF)}},
    // Two products of D multiply-adds per score; scale, maximum, exponential, sum, division.
    {"attention_forward",
     &EncoderLayer::attention_forward,
     {kScores * (4 * Shape::kHeadSize + 5), floats(4 * kTH)}},
    // Scores again, then four products; exponential, and five per score for softmax's gradient.
    {"attention_backward",
     &EncoderLayer::attention_backward,
     {kScores * (10 * Shape::kHeadSize + 6), floats(8 * kTH)}},
    // Two additions, mean 1, variance 3, normalisation 2, gain and bias 2; two of them per layer.
    {"residual_ln_forward",
     &EncoderLayer::residual_ln_forward,
     {2 * 10 * kTH, floats(2 * 4 * kTH)}},
    // Normalised value 2, times gain 1, two means 3, combination 5, three parameter gradients 4.
    {"residual_ln_backward",
     &EncoderLayer::residual_ln_backward,
     {2 * 15 * kTH, floats(2 * 4 * kTH)}},
    // Two additions and a LayerNorm. Of the tables only the words' rows come from memory.
    {"embedding_forward", &EncoderLayer::embedding_forward, {10 * kTH, floats(3 * kTH)}},
    // As residual_ln_backward without a bias, and three additions into the tables.
    {"embedding_backward", &EncoderLayer::embedding_backward, {17 * kTH, floats(4 * kTH)}},
    // Maximum, difference, exponential, sum; division, scale.
    {"cross_entropy", &EncoderLayer::cross_entropy, {6 * kLogits, floats(2 * kLogits)}},
    // Norm 2, moments 8, direction 7, norms 4, update 2; tensors: g, then g w m v and m v u, then
    // w u and w w.
    {"lamb", &EncoderLayer::lamb, {23 * Shape::kParameters, floats(12 * Shape::kParameters)}},
};

void time_case(benchmark::State& state, const Case& timed) {
  EncoderLayer layer(static_cast<int>(state.range(0)));
  const bool consumes_logits = timed.run == &EncoderLayer::cross_entropy;
  for (auto _ : state) {
    if (consumes_logits) {
      state.PauseTiming();
      layer.restore_logits();
      state.ResumeTiming();
    }
    (layer.*timed.run)();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * timed.work.bytes);
  state.counters["FLOP/s"] = benchmark::Counter(static_cast<double>(timed.work.flops),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void register_cases() {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  for (const Case& timed : kCases) {
    auto* const registered = benchmark::RegisterBenchmark(
        timed.name, [&timed](benchmark::State& state) { time_case(state, timed); });
    registered->ArgName("threads")->Arg(1)->Unit(benchmark::kMicrosecond)->UseRealTime();
    if (cores > 1) registered->Arg(cores);
  }
}

}  // namespace
}  // namespace bertha

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  bertha::register_cases();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
