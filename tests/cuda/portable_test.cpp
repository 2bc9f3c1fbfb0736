#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"
#include "kernels/ops/linear.h"
#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

constexpr FeedForward kBlocks{
    .io = DType::kBF16, .hidden = 1024, .feed_forward = 4096, .fp8 = false};

/// A device that portable kernels were asked for, on any GPU.
TestBackend portable_gpu() {
  TestBackend made;
  made.device = make_cuda_device(0, CudaKernels::kPortable);
  made.stream = made.device->make_stream();
  made.ops = make_cuda_ops(*made.device, *made.stream, {});
  return made;
}

template <class Work>
std::string refusal_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kUsage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(CudaPortable, TheDeviceNamesItsKernels) {
  EXPECT_THAT(portable_gpu().device->description(), EndsWith(", portable kernels"));
  EXPECT_THAT(gpu().device->description(), EndsWith(" kernels"));
}

TEST(CudaPortable, AutoIsGroupedAttentionAndTheLibrarysGemms) {
  const TestBackend gpu = portable_gpu();
  const CudaOptions options = options_on(*gpu.device, {});
  EXPECT_EQ(options.attention, CudaOptions::AttentionVariant::kGrouped);
  EXPECT_EQ(options.gelu_gemms, CudaOptions::GeluGemms::kLibrary);
  EXPECT_EQ(gelu_gemms(*gpu.device, options, kBlocks), "library");
}

TEST(CudaPortable, OtherKernelsAndFp8AreRefused) {
  const TestBackend gpu = portable_gpu();
  const auto refusal_of_ops = [&](const CudaOptions& options) {
    return refusal_of([&] { make_cuda_ops(*gpu.device, *gpu.stream, options); });
  };
  EXPECT_THAT(refusal_of_ops({.attention = CudaOptions::AttentionVariant::kSplit}),
              HasSubstr("attention is split"));
  EXPECT_THAT(refusal_of_ops({.gelu_gemms = CudaOptions::GeluGemms::kOwn}),
              HasSubstr("gelu_gemms is own"));
  const HostTensor<float> square({16, 16});
  const DeviceTensor x(gpu, DType::kE4M3, square);
  const DeviceTensor y(gpu, DType::kBF16, square);
  const DeviceTensor scale(gpu, DType::kF32, HostTensor<float>({1}));
  const LinearFwd gemm{.x = x.view(),
                       .weight = x.view(),
                       .bias = View(),
                       .y = y.view(),
                       .pre_activation = View(),
                       .x_inverse_scale = scale.view(),
                       .weight_inverse_scale = scale.view()};
  EXPECT_THAT(refusal_of([&] { gpu.ops->run(gemm); }),
              HasSubstr("in fp8 needs the kernels of sm_90a"));
}

}  // namespace
}  // namespace bertha::testing
