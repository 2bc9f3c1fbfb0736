#include "kernels/cuda/attention/choice.h"

#include "kernels/base/divide.h"
#include "kernels/cuda/cuda_backend.h"

namespace bertha {
namespace {

using Variant = CudaOptions::AttentionVariant;

constexpr int64_t kMaxPersistentHeadSize = 64;
constexpr int64_t kMaxTokens = 512;  // whose keys and values fit into shared memory
constexpr int64_t kDropoutTokensStep =
    128;  // a head's mask bits then begin at multiples of 16 bytes

/// When to split: sequences with more tokens than a part have several parts, and a batch has at
/// most this number of tokens of a head per SM. With more tokens, other items fill the time of the
/// longest sequence, while backward has the cost of its parts of dQ, 4 bytes per element and part,
/// written and read.
struct SplitRule {
  int64_t part_tokens;
  int64_t most_tokens_of_sm;

  bool takes(int64_t max_seq_tokens, const AttentionBatchSize& size) const {
    return max_seq_tokens > part_tokens &&
           size.tokens * size.heads <= most_tokens_of_sm * size.sm_count;
  }
};
constexpr SplitRule kSplitForward{.part_tokens = 192, .most_tokens_of_sm = 512};
constexpr SplitRule kSplitBackward{.part_tokens = 128, .most_tokens_of_sm = 320};

/// Why the persistent kernels of either direction do not support a call; "" = they do.
std::string unsupported(const AttentionCall& call) {
  if (!has_tensor_cores(call.io)) return concat(name(call.io), ", want f16 or bf16");
  if (call.head_size > kMaxPersistentHeadSize) {
    return concat("a head size of ", call.head_size, ", want at most ", kMaxPersistentHeadSize);
  }
  if (call.max_seq_tokens > kMaxTokens) {
    return concat("sequences of up to ", call.max_seq_tokens, " tokens, want at most ", kMaxTokens);
  }
  return call.is_aligned ? "" : "a view that is not aligned to 16 bytes";
}

/// The same of the backward kernel, which copies mask bits by TMA.
std::string unsupported_backward(const AttentionCall& call) {
  std::string why = unsupported(call);
  if (!why.empty() || !call.has_dropout || call.max_seq_tokens % kDropoutTokensStep == 0) {
    return why;
  }
  return concat("dropout with sequences of up to ", call.max_seq_tokens,
                " tokens, want a multiple of ", kDropoutTokensStep);
}

const char* word(Variant chosen) {
  if (chosen == Variant::kSplit) return "split";
  return chosen == Variant::kPersistent ? "persistent" : "grouped";
}

}  // namespace

bool has_tensor_cores(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

int64_t padded_head_size(int64_t head_size) { return round_up(head_size, 8); }

bool needs_padded_heads(DType dtype, int64_t head_size) {
  return has_tensor_cores(dtype) && padded_head_size(head_size) != head_size;
}

AttentionKernels choose_attention(Variant asked, const AttentionCall& call) {
  if (call.head_size > kMaxHeadSize) {
    fail(ExitCode::kUsage, "attention has kernels for head sizes up to ", kMaxHeadSize, ", found ",
         call.head_size, "; use more heads.");
  }
  if (asked == Variant::kGrouped) return {};
  const std::string why = unsupported_backward(call);
  if (asked != Variant::kAuto) {
    if (why.empty()) return {.forward = asked, .backward = asked};
    fail(ExitCode::kUsage, "attention is ", word(asked), ", but these kernels do not support ", why,
         "; set it to auto or grouped.");
  }
  if (why.empty()) return {.forward = Variant::kPersistent, .backward = Variant::kPersistent};
  return {.forward = unsupported(call).empty() ? Variant::kPersistent : Variant::kGrouped,
          .one_launch =
              has_tensor_cores(call.io) && call.is_aligned && call.max_seq_tokens <= kMaxTokens};
}

AttentionKernels for_batch(const AttentionKernels& chosen, Variant asked, int64_t max_seq_tokens,
                           const AttentionBatchSize& size) {
  AttentionKernels taken = chosen;
  if (asked != Variant::kAuto) return taken;
  if (chosen.forward == Variant::kPersistent && kSplitForward.takes(max_seq_tokens, size)) {
    taken.forward = Variant::kSplit;
  }
  if (chosen.backward == Variant::kPersistent && kSplitBackward.takes(max_seq_tokens, size)) {
    taken.backward = Variant::kSplit;
  }
  return taken;
}

std::string text(const AttentionKernels& kernels) {
  if (kernels.forward == kernels.backward) return word(kernels.forward);
  return concat(word(kernels.forward), " forward, ", word(kernels.backward), " backward");
}

std::string attention_kernels(const CudaOptions& options, const AttentionCall& call) {
  const std::string kernels = text(choose_attention(options.attention, call));
  const std::string why = options.attention == Variant::kAuto ? unsupported_backward(call) : "";
  std::string reasons;
  if (!why.empty()) {
    reasons =
        concat(has_tensor_cores(call.io) ? "slower" : "without tensor cores, many times slower",
               launches_ignore_lengths(options, call) ? ": " : ", without graphs: ", why);
  }
  if (needs_padded_heads(call.io, call.head_size)) {
    reasons += concat(why.empty() ? "slower: " : "; ", "heads of ", call.head_size,
                      " are copied to heads of ", padded_head_size(call.head_size));
  }
  return reasons.empty() ? kernels : concat(kernels, " (", reasons, ")");
}

bool launches_ignore_lengths(const CudaOptions& options, const AttentionCall& call) {
  const AttentionKernels kernels = choose_attention(options.attention, call);
  return kernels.one_launch ||
         (kernels.forward != Variant::kGrouped && kernels.backward != Variant::kGrouped);
}

}  // namespace bertha
