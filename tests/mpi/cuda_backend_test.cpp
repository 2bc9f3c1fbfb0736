#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "harness/backend.h"
#include "harness/backend_cuda.h"
#include "harness/comm/binding.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/ops/elementwise.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

TEST(CudaBackend, AutoAndCudaTakeTheGpuOfThePlaceOnTheNode) {
  for (const ComputeBackend word : {ComputeBackend::kAuto, ComputeBackend::kCuda}) {
    const RankGpu gpu = choose_gpu(word, testing::world());
    EXPECT_EQ(gpu.ordinal, testing::world().node_rank());
    EXPECT_THAT(gpu.bus_id, MatchesRegex("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+.[0-9]"));
  }
  EXPECT_TRUE(choose_gpu(ComputeBackend::kCpu, testing::world()).is_none());
}

TEST(CudaBackend, ComputesOnTheGpuAndAddsUpOverRanks) {
  World& world = testing::world();
  const auto backend =
      make_backend(choose_gpu(ComputeBackend::kCuda, world), CudaConfig{}, 1, world);
  Device& device = backend->device();
  Collectives& collectives = backend->collectives();
  const Buffer buffer = device.allocate(100 * int64_t{sizeof(float)});
  const View values(buffer.data(), DType::kF32, {100});
  const std::unique_ptr<Event> computed = device.make_event();
  backend->ops().run(Fill{.values = values, .value = 1.0 + world.rank()});
  backend->stream().record(*computed);
  collectives.stream().wait_for(*computed);
  collectives.all_reduce_sum(values);
  collectives.check();
  std::vector<float> found(100);
  device.copy(collectives.stream(), found.data(), values.data, values.bytes());
  collectives.stream().wait_on_host();
  const int sum = world.size() * (world.size() + 1) / 2;
  EXPECT_EQ(found, std::vector<float>(100, static_cast<float>(sum)));
}

TEST(CudaBackend, KernelsThatTheGpuDoesNotRunAreRefusedByTheirKeys) {
  World& world = testing::world();
  const RankGpu gpu = choose_gpu(ComputeBackend::kCuda, world);
  CudaConfig cuda;
  cuda.kernels = CudaKernels::kPortable;
  const FeedForward model{.io = DType::kBF16, .hidden = 1024, .feed_forward = 4096, .fp8 = true};
  const auto backend = make_backend(gpu, cuda, 1, world);
  EXPECT_FALSE(backend->has_fp8());
  EXPECT_THAT(error_of([&] { backend->gelu_gemm_kernels(model); }, ExitCode::kUsage),
              StartsWith("train.precision is fp8"));
  const auto make = [&] { make_backend(gpu, cuda, 1, world); };
  cuda.gelu_gemms = CudaOptions::GeluGemms::kOwn;
  EXPECT_THAT(error_of(make, ExitCode::kUsage), StartsWith("cuda.gelu_gemms is own"));
  cuda.attention = CudaOptions::AttentionVariant::kSplit;
  EXPECT_THAT(error_of(make, ExitCode::kUsage), StartsWith("cuda.attention is split"));
}

TEST(CudaBackend, CoresNearTheGpuAreTaken) {
  const CoreBinding binding = bind_process(std::getenv, visible_gpus());
  EXPECT_NE(binding.cores, "");
  EXPECT_NE(binding.description, "");
}

}  // namespace
}  // namespace bertha
