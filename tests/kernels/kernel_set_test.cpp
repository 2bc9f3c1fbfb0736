#include "kernels/cuda/cuda_options.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace bertha {
namespace {

using Attention = CudaOptions::AttentionVariant;
using Gelu = CudaOptions::GeluGemms;

TEST(KernelSet, Sm90aNeedsItsGpuAndCodeForIt) {
  const auto chosen = [](int major, int minor, int compiled_for,
                         CudaKernels asked = CudaKernels::kAuto) {
    return choose_kernels(asked, {.major = major, .minor = minor, .compiled_for = compiled_for});
  };
  EXPECT_EQ(chosen(9, 0, 90), KernelSet::kSm90a);
  EXPECT_EQ(chosen(9, 0, 90, CudaKernels::kPortable), KernelSet::kPortable);
  EXPECT_EQ(chosen(9, 0, 80), KernelSet::kPortable);  // as with CUDA_FORCE_PTX_JIT
  EXPECT_EQ(chosen(8, 0, 80), KernelSet::kPortable);
  EXPECT_EQ(chosen(8, 9, 89), KernelSet::kPortable);
  EXPECT_EQ(chosen(10, 0, 80), KernelSet::kPortable);
  EXPECT_EQ(chosen(10, 0, 90), KernelSet::kPortable);
}

TEST(KernelSet, PortableAutoIsGroupedAttentionAndTheLibrary) {
  const CudaOptions same = options_for(KernelSet::kSm90a, {.attention = Attention::kSplit});
  EXPECT_EQ(same.attention, Attention::kSplit);
  EXPECT_EQ(same.gelu_gemms, Gelu::kAuto);
  const CudaOptions portable = options_for(KernelSet::kPortable, {.gemm_sm_count = 7});
  EXPECT_EQ(portable.attention, Attention::kGrouped);
  EXPECT_EQ(portable.gelu_gemms, Gelu::kLibrary);
  EXPECT_EQ(portable.gemm_sm_count, 7);
}

TEST(KernelSet, WhatThePortableLackIsRefused) {
  for (const Attention asked : {Attention::kPersistent, Attention::kSplit}) {
    EXPECT_THROW(options_for(KernelSet::kPortable, {.attention = asked}), Error);
  }
  EXPECT_THROW(options_for(KernelSet::kPortable, {.gelu_gemms = Gelu::kOwn}), Error);
}

}  // namespace
}  // namespace bertha
