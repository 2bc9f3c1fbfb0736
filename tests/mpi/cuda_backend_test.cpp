#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "harness/backend.h"
#include "harness/comm/binding.h"
#include "kernels/base/testing/error_of.h"
#include "kernels/ops/elementwise.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

using ::testing::StartsWith;

using Kind = BackendChoice::Kind;

TrainConfig config_of(ComputeBackend backend) {
  TrainConfig config;
  config.backend = backend;
  return config;
}

TEST(CudaBackend, AutoAndCudaTakeTheGpuOfThePlaceOnTheNode) {
  for (const ComputeBackend word : {ComputeBackend::kAuto, ComputeBackend::kCuda}) {
    const BackendChoice choice = choose_backend(config_of(word), testing::world());
    EXPECT_EQ(choice.kind, Kind::kCuda);
    EXPECT_EQ(choice.gpu_ordinal, testing::world().node_rank());
    EXPECT_THAT(choice.gpu_bus_id, ::testing::MatchesRegex("[0-9a-f]+:[0-9a-f]+:[0-9a-f]+.[0-9]"));
  }
  EXPECT_EQ(choose_backend(config_of(ComputeBackend::kCpu), testing::world()).kind, Kind::kCpu);
}

TEST(CudaBackend, ComputesOnTheGpuAndAddsUpOverRanks) {
  World& world = testing::world();
  const BackendChoice choice = choose_backend(config_of(ComputeBackend::kCuda), world);
  const Backend backend = make_backend(choice, CudaConfig{}, 1, world);
  const Buffer buffer = backend.device->allocate(100 * int64_t{sizeof(float)});
  const View values(buffer.data(), DType::kF32, {100});
  const std::unique_ptr<Event> computed = backend.device->make_event();
  backend.ops->run(Fill{.values = values, .value = 1.0 + world.rank()});
  backend.stream->record(*computed);
  backend.collectives->stream().wait_for(*computed);
  backend.collectives->all_reduce_sum(values);
  backend.collectives->check();
  std::vector<float> found(100);
  backend.device->copy(backend.collectives->stream(), found.data(), values.data, values.bytes());
  backend.collectives->stream().wait_on_host();
  const int sum = world.size() * (world.size() + 1) / 2;
  EXPECT_EQ(found, std::vector<float>(100, static_cast<float>(sum)));
}

TEST(CudaBackend, KernelsThatTheGpuDoesNotRunAreRefusedByTheirKeys) {
  World& world = testing::world();
  const BackendChoice choice = choose_backend(config_of(ComputeBackend::kCuda), world);
  CudaConfig cuda;
  cuda.kernels = CudaKernels::kPortable;
  const Backend backend = make_backend(choice, cuda, 1, world);
  FeedForward model{.io = DType::kBF16,
                    .gelu = Activation::kGeluTanh,
                    .hidden = 1024,
                    .feed_forward = 4096,
                    .fp8 = true};
  const auto describe = [&] { describe_gelu_gemms(choice, backend, cuda, model); };
  EXPECT_THAT(error_of(describe, ExitCode::kUsage), StartsWith("train.precision is fp8"));
  model.fp8 = false;
  cuda.gelu_gemms = CudaOptions::GeluGemms::kOwn;
  EXPECT_THAT(error_of(describe, ExitCode::kUsage), StartsWith("cuda.gelu_gemms is own"));
  cuda.attention = CudaOptions::AttentionVariant::kSplit;
  EXPECT_THAT(error_of([&] { make_backend(choice, cuda, 1, world); }, ExitCode::kUsage),
              StartsWith("cuda.attention is split"));
}

TEST(CudaBackend, CoresNearTheGpuAreTaken) {
  World& world = testing::world();
  const BackendChoice choice = choose_backend(config_of(ComputeBackend::kCuda), world);
  const CoreShare share = take_core_share(world, choice.gpu_bus_id);
  EXPECT_GE(share.threads, 1);
  EXPECT_NE(share.description, "");
}

}  // namespace
}  // namespace bertha
