#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "data/pipeline/sample_order.h"
#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/cuda/cuda_options.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

// The enumerations of the configuration. words() lists the words that files, options and messages
// use for the enumerators, in the same order.

template <class... Word>
constexpr std::array<std::string_view, sizeof...(Word)> make_words(Word... word) {
  return {word...};
}

enum class GeluForm : uint8_t { kTanh, kErf };
constexpr auto words(GeluForm) { return make_words("tanh", "erf"); }

constexpr auto words(SampleOrder) { return make_words("windowed", "published"); }

constexpr auto words(ExchangePadding) { return make_words("off", "allgather", "lengths"); }

/// Which tokens of a training sample are masked: those its shard lists, or new ones each epoch.
enum class Masking : uint8_t { kStored, kDynamic };
constexpr auto words(Masking) { return make_words("stored", "dynamic"); }

/// What the losses of a step are averaged over.
enum class LossMeanRule : uint8_t {
  kGlobal,  // all masked tokens (sequences) of the step: the same for every number of ranks
  kLocal,   // mean over ranks and micro-batches of their own means, as published
};
constexpr auto words(LossMeanRule) { return make_words("global", "local"); }

/// Rows that the encoder's last layer computes after its attention.
enum class LastLayer : uint8_t { kNeededRows, kAllRows };
constexpr auto words(LastLayer) { return make_words("needed_rows", "all_rows"); }

enum class ComputeBackend : uint8_t { kAuto, kCpu, kCuda };
constexpr auto words(ComputeBackend) { return make_words("auto", "cpu", "cuda"); }

enum class Precision : uint8_t { kAuto, kFp32, kBf16, kFp16, kFp8 };
constexpr auto words(Precision) { return make_words("auto", "fp32", "bf16", "fp16", "fp8"); }

/// Choices of optimizer.name: AdamW is LAMB without the trust ratio.
enum class OptimizerName : uint8_t { kLamb, kAdamw };
constexpr auto words(OptimizerName) { return make_words("lamb", "adamw"); }

/// How the learning rate changes after optimizer.base_learning_rate.
enum class Schedule : uint8_t {
  kPolynomial,  // as published: the warm-up does not shift it
  kLinear,      // from the end of the warm-up
  kCosine,
  kConstant,
  kWsd,  // warm-up, stable, decay: constant, then linear over optimizer.decay_steps
};
constexpr auto words(Schedule) {
  return make_words("polynomial", "linear", "cosine", "constant", "wsd");
}

/// When gradients are clipped, relative to the reduction over ranks.
enum class ClipTime : uint8_t { kAfter, kBefore };
constexpr auto words(ClipTime) { return make_words("after", "before"); }

constexpr auto words(SpikeRule) { return make_words("warn", "skip", "rewind"); }

/// Which tensors get weight decay and the trust ratio, and whether the published code treats query,
/// key and value, one tensor here, as one parameter or three with a trust ratio each.
enum class DecayRule : uint8_t {
  kReference,   // all but LayerNorm and biases; three
  kNvidiaFmha,  // reference, and the QKV bias; three
  kNvidiaTe,    // reference, and the gamma of the attention LayerNorm; one
  kBaidu,       // reference, and the QKV bias and both LayerNorm gammas of every layer; one
};
constexpr auto words(DecayRule) {
  return make_words("reference", "nvidia_fmha", "nvidia_te", "baidu");
}

enum class LossScaling : uint8_t { kOff, kDynamic };
constexpr auto words(LossScaling) { return make_words("off", "dynamic"); }

enum class ShardGroup : uint8_t { kAuto, kNode, kWorld };
constexpr auto words(ShardGroup) { return make_words("auto", "node", "world"); }

/// What happens if weights lack the pooler or a head: an error, or new ones from the seed.
enum class MissingHeads : uint8_t { kRefuse, kFresh };
constexpr auto words(MissingHeads) { return make_words("refuse", "fresh"); }

/// What happens if a config.json next to the weights states a GELU, epsilon or number of heads that
/// differs from the configured one: an error, or a note.
enum class StatedDifferences : uint8_t { kRefuse, kAllow };
constexpr auto words(StatedDifferences) { return make_words("refuse", "allow"); }

constexpr auto words(CudaKernels) { return make_words("auto", "portable"); }

constexpr auto words(CudaOptions::AttentionVariant) {
  return make_words("auto", "grouped", "persistent", "split");
}

constexpr auto words(CudaOptions::GeluGemms) { return make_words("auto", "own", "library"); }

constexpr auto words(CudaOptions::EmbeddingGradient) { return make_words("sorted", "atomic"); }

enum class CudaGraphs : uint8_t { kAuto, kOff };
constexpr auto words(CudaGraphs) { return make_words("auto", "off"); }

enum class GradientTransport : uint8_t { kAuto, kNccl, kCopies };
constexpr auto words(GradientTransport) { return make_words("auto", "nccl", "copies"); }

enum class Division : uint8_t { kClosed, kOpen };
constexpr auto words(Division) { return make_words("closed", "open"); }

enum class SubmissionStatus : uint8_t { kCloud, kOnprem, kPreview, kResearch };
constexpr auto words(SubmissionStatus) {
  return make_words("cloud", "onprem", "preview", "research");
}

template <class Enum>
concept Choice = requires {
  words(Enum{});
};

template <Choice Enum>
inline constexpr auto kChoiceWords = words(Enum{});

template <Choice Enum>
constexpr std::string_view word_of(Enum value) {
  return kChoiceWords<Enum>.at(static_cast<size_t>(value));
}

/// The value that `word` names, if any.
template <Choice Enum>
constexpr std::optional<Enum> choice_of(std::string_view word) {
  const auto found = std::ranges::find(kChoiceWords<Enum>, word);
  if (found == kChoiceWords<Enum>.end()) return std::nullopt;
  return static_cast<Enum>(found - kChoiceWords<Enum>.begin());
}

}  // namespace bertha
