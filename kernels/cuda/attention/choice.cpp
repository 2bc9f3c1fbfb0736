#include "kernels/cuda/attention/choice.h"

namespace bertha {
namespace {

using Variant = CudaOptions::AttentionVariant;

constexpr int64_t kHeadSize = 64;
constexpr int64_t kMostTokens = 512;  // whose keys and values fit into shared memory
constexpr int64_t kDropoutTokensStep =
    128;  // a head's mask bits then begin at multiples of 16 bytes

// Sequences of more tokens have several parts; a batch is split up to so many tokens of a head for
// each SM. One sequence of 512 is then as much as an SM's share of the batch, and in backward its
// chain of 32 pairs of tiles is longer than the share, whose sequences are shorter.
constexpr int64_t kForwardPartTokens = 192;
constexpr int64_t kBackwardPartTokens = 128;
constexpr int64_t kSplitTokensOfSm = 512;

/// Why the persistent kernels of either direction cannot serve a call; "" = they can.
std::string unsupported(const AttentionCall& call) {
  if (call.io != DType::kF16 && call.io != DType::kBF16) {
    return concat(name(call.io), ", want f16 or bf16");
  }
  if (call.head_size != kHeadSize) {
    return concat("a head size of ", call.head_size, ", want ", kHeadSize);
  }
  if (call.max_seq_tokens > kMostTokens) {
    return concat("sequences of up to ", call.max_seq_tokens, " tokens, want at most ",
                  kMostTokens);
  }
  return call.is_aligned ? "" : "a view that is not aligned to 16 bytes";
}

/// The same of the backward kernel, which copies mask bits by TMA.
std::string unsupported_backward(const AttentionCall& call) {
  const std::string why = unsupported(call);
  if (!why.empty() || !call.has_dropout || call.max_seq_tokens % kDropoutTokensStep == 0)
    return why;
  return concat("dropout with sequences of up to ", call.max_seq_tokens,
                " tokens, want a multiple of ", kDropoutTokensStep);
}

const char* word(Variant chosen) {
  if (chosen == Variant::kSplit) return "split";
  return chosen == Variant::kPersistent ? "persistent" : "grouped";
}

}  // namespace

AttentionKernels choose_attention(Variant asked, const AttentionCall& call) {
  if (asked == Variant::kGrouped) return {};
  const std::string why = unsupported_backward(call);
  if (asked != Variant::kAuto) {
    if (why.empty()) return {.forward = asked, .backward = asked};
    fail(ExitCode::kUsage, "cuda.attention is ", word(asked), ", but these kernels do not support ",
         why, "; set cuda.attention to auto or grouped.");
  }
  if (why.empty()) return {.forward = Variant::kPersistent, .backward = Variant::kPersistent};
  return {.forward = unsupported(call).empty() ? Variant::kPersistent : Variant::kGrouped};
}

AttentionKernels for_batch(const AttentionKernels& chosen, Variant asked, int64_t max_seq_tokens,
                           const AttentionBatchSize& size) {
  AttentionKernels taken = chosen;
  if (asked != Variant::kAuto || size.tokens * size.heads > kSplitTokensOfSm * size.sm_count) {
    return taken;
  }
  if (chosen.forward == Variant::kPersistent && max_seq_tokens > kForwardPartTokens) {
    taken.forward = Variant::kSplit;
  }
  if (chosen.backward == Variant::kPersistent && max_seq_tokens > kBackwardPartTokens) {
    taken.backward = Variant::kSplit;
  }
  return taken;
}

std::string text(const AttentionKernels& kernels) {
  if (kernels.forward == kernels.backward) return word(kernels.forward);
  return concat(word(kernels.forward), " forward, ", word(kernels.backward), " backward");
}

std::string attention_kernels(const CudaOptions& options, const AttentionCall& call) {
  return text(choose_attention(options.attention, call));
}

}  // namespace bertha
