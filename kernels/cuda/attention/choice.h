#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/dtype.h"
#include "kernels/cuda/cuda_backend.h"

namespace bertha {

/// What decides which attention kernels can serve a call. Nothing of one batch is in it: a run has
/// the same kernels, and so the same roundings, in every step and after it was resumed.
struct AttentionCall {
  DType io;
  int64_t head_size;       // D
  int64_t max_seq_tokens;  // S: sequences are at most so long
  bool is_aligned = true;  // every io view, and mask of a head, is at a multiple of 16 bytes
};

/// The kernels of each direction: grouped or persistent, never auto. They save the same things
/// between the directions, so any two go together.
struct AttentionKernels {
  CudaOptions::AttentionVariant forward = CudaOptions::AttentionVariant::kGrouped;
  CudaOptions::AttentionVariant backward = CudaOptions::AttentionVariant::kGrouped;
};

/// How far the persistent kernels of one direction are: not in this program, for those who ask for
/// them, or what auto takes too, because they are measured to be faster.
enum class Persistent : uint8_t { kAbsent, kOnRequest, kPreferred };

struct PersistentKernels {
  Persistent forward = Persistent::kAbsent;
  Persistent backward = Persistent::kAbsent;
};

/// Those of this program.
inline constexpr PersistentKernels kPersistentKernels{.forward = Persistent::kPreferred,
                                                      .backward = Persistent::kPreferred};

/// The rule. The grouped kernels serve every call. The persistent ones serve f16 and bf16, head
/// size 64, S up to 512 and views aligned to 16 bytes, on the one compute capability that
/// CudaDevice takes; a direction that has none is grouped. auto takes the preferred ones where they
/// serve.
///
/// Errors    Error(kUsage): persistent is asked for and cannot serve the call, or this program has
///           no persistent kernels. Who names kernels measures them or repeats a run with them:
///           others in their place would cost hours before anyone sees it, and auto is there for
///           everybody else.
AttentionKernels choose_attention(CudaOptions::AttentionVariant asked, const AttentionCall& call,
                                  const PersistentKernels& persistent = kPersistentKernels);

/// "grouped", "persistent", or "persistent forward, grouped backward".
std::string text(const AttentionKernels& kernels);

}  // namespace bertha
