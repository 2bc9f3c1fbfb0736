#pragma once

#include <string>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/ops/attention.h"

namespace bertha {

/// The kernels of each direction: grouped or persistent, never auto. They save the same things
/// between the directions, so any two go together.
struct AttentionKernels {
  CudaOptions::AttentionVariant forward = CudaOptions::AttentionVariant::kGrouped;
  CudaOptions::AttentionVariant backward = CudaOptions::AttentionVariant::kGrouped;
};

/// The rule. The grouped kernels serve every call. The persistent ones serve f16 and bf16, head
/// size 64, S up to 512 and views aligned to 16 bytes, on the one compute capability that
/// CudaDevice takes; their backward serves dropout where S is a multiple of 128. auto takes the
/// persistent kernel of each direction where it serves: it is measured to be faster.
///
/// Errors    Error(kUsage): persistent is asked for and one direction of it cannot serve the call.
///           There is no silent fallback: whoever names kernels measures them or repeats a run
///           with them. auto falls back.
AttentionKernels choose_attention(CudaOptions::AttentionVariant asked, const AttentionCall& call);

/// "grouped", "persistent", or "persistent forward, grouped backward".
std::string text(const AttentionKernels& kernels);

}  // namespace bertha
