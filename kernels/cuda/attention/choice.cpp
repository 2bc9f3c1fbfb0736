#include "kernels/cuda/attention/choice.h"

namespace bertha {
namespace {

using Variant = CudaOptions::AttentionVariant;

constexpr int64_t kHeadSize = 64;
constexpr int64_t kMostTokens = 512;  // whose keys and values fit into shared memory

/// Why the persistent kernels cannot serve a call; "" = they can.
std::string obstacle(const AttentionCall& call) {
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

Variant variant(Persistent persistent, Persistent wanted) {
  return persistent >= wanted ? Variant::kPersistent : Variant::kGrouped;
}

const char* word(Variant chosen) {
  return chosen == Variant::kPersistent ? "persistent" : "grouped";
}

}  // namespace

AttentionKernels choose_attention(Variant asked, const AttentionCall& call,
                                  const PersistentKernels& persistent) {
  if (asked == Variant::kGrouped) return {};
  const std::string why = obstacle(call);
  if (asked == Variant::kAuto) {
    if (!why.empty()) return {};
    return {.forward = variant(persistent.forward, Persistent::kPreferred),
            .backward = variant(persistent.backward, Persistent::kPreferred)};
  }
  if (persistent.forward == Persistent::kAbsent && persistent.backward == Persistent::kAbsent) {
    fail(ExitCode::kUsage,
         "attention is to be persistent, but this program has no such kernels; set cuda.attention "
         "to auto or grouped.");
  }
  if (!why.empty()) {
    fail(ExitCode::kUsage, "attention is to be persistent, but these kernels do not take ", why,
         "; set cuda.attention to auto or grouped.");
  }
  return {.forward = variant(persistent.forward, Persistent::kOnRequest),
          .backward = variant(persistent.backward, Persistent::kOnRequest)};
}

std::string text(const AttentionKernels& kernels) {
  if (kernels.forward == kernels.backward) return word(kernels.forward);
  return concat(word(kernels.forward), " forward, ", word(kernels.backward), " backward");
}

std::string attention_kernels(const CudaOptions& options, DType io, int64_t head_size,
                              int64_t max_seq_tokens) {
  return text(choose_attention(
      options.attention, {.io = io, .head_size = head_size, .max_seq_tokens = max_seq_tokens}));
}

}  // namespace bertha
