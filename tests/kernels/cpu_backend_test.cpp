#include "kernels/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/host_tensor.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/gather_scatter.h"
#include "tests/support/exit_within.h"

// Let an impossible allocation return null under the sanitizers, as it does without.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
// The threads of OpenBLAS, which is not instrumented, agree unseen.
extern "C" const char* __tsan_default_options() {
  return "allocator_may_return_null=1:ignore_noninstrumented_modules=1";
}

namespace bertha {
namespace {

TEST(CpuDevice, AllocatesZeroedAlignedMemory) {
  const std::unique_ptr<Device> device = make_cpu_device(2);
  EXPECT_EQ(device->description(), "cpu, 2 threads");
  EXPECT_EQ(device->allocate(0).bytes(), 0);
  for (const int64_t bytes : {1, 255, 256, 100001}) {
    const Buffer buffer = device->allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
    const char* begin = static_cast<const char*>(buffer.data());
    EXPECT_EQ(std::count(begin, begin + bytes, 0), bytes);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The stacks of the threads fit, and not what their GEMMs take.
void make_operations() {
  // As the program does: newer versions of OpenBLAS try for ever to start threads.
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
  const std::unique_ptr<Device> device = make_cpu_device(4);
  make_cpu_ops(*device, *device->make_stream());
}

TEST(CpuDeviceDeathTest, SaysAtTheStartThatThereIsNoMemoryForGemms) {
  EXPECT_EXIT(exit_within(int64_t{200} << 20, make_operations), testing::ExitedWithCode(6),
              "out of memory for the GEMMs of 4 threads");
}
#endif

TEST(CpuDevice, NamesTheBytesThatItCannotAllocate) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  EXPECT_THAT(error_of([&] { device->allocate(int64_t{1} << 60); }, ExitCode::kMemory),
              HasSubstr("1152921504606846976"));
}

TEST(CpuDevice, TellsTheMemoryInUse) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const int64_t before = device->used_memory_bytes();
  EXPECT_GT(before, 1 << 20);
  const Buffer buffer = device->allocate(64 << 20);  // zeroed, so it is resident
  EXPECT_GT(device->used_memory_bytes(), before + (48 << 20));
  EXPECT_LT(device->used_memory_bytes(), device->total_memory_bytes());
}

TEST(CpuDevice, RefusesZeroThreads) { EXPECT_THROW(make_cpu_device(0), Error); }

TEST(CpuOps, RunAtOnceOnTheDevicesThreads) {
  const std::unique_ptr<Device> device = make_cpu_device(2);
  const std::unique_ptr<Stream> stream = device->make_stream();
  const std::unique_ptr<Ops> ops = make_cpu_ops(*device, *stream);
  HostTensor<float> values({33});
  ops->run(Fill{.values = values.view(), .value = 2.5});
  EXPECT_EQ(values.values, std::vector<float>(33, 2.5f));
  HostTensor<float> copied({33});
  device->copy(*stream, copied.values.data(), values.values.data(), 33 * 4);
  EXPECT_EQ(copied.values, values.values);
}

TEST(CpuOps, ValidateBeforeTheyRun) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::unique_ptr<Stream> stream = device->make_stream();
  const std::unique_ptr<Ops> ops = make_cpu_ops(*device, *stream);
  EXPECT_THROW(ops->run(Fill{.values = View(nullptr, DType::kF32, {4})}), Error);
}

TEST(CpuOps, RefuseSixteenBitTensorsWithASentence) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::unique_ptr<Stream> stream = device->make_stream();
  const std::unique_ptr<Ops> ops = make_cpu_ops(*device, *stream);
  HostTensor<int32_t> indices({1});
  uint16_t source[2] = {0, 0};
  uint16_t picked[2] = {0, 0};
  EXPECT_THAT(error_of(
                  [&] {
                    ops->run(GatherRows{.source = View(source, DType::kBF16, {1, 2}),
                                        .indices = indices.view(),
                                        .picked = View(picked, DType::kBF16, {1, 2})});
                  },
                  ExitCode::kUsage),
              AllOf(HasSubstr("source is bf16"), HasSubstr("needs f32;")));
}

}  // namespace
}  // namespace bertha
