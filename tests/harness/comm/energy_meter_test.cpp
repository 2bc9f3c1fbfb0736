#include "harness/comm/energy_meter.h"

#include <gtest/gtest.h>

#include "tests/support/transport_world.h"

namespace bertha {
namespace {

// The stand-in for the driver's library counts half a joule per read of this GPU.
constexpr const char* kGpu = "0000:1b:00.0";

/// Three ranks: all like the one here, or the others know nothing.
class ThreeRanks final : public Transport {
 public:
  explicit ThreeRanks(bool others_know) : factor_(others_know ? 3 : 1) {}
  int rank() const override { return 0; }
  int size() const override { return 3; }
  std::vector<int64_t> sum(std::span<const int64_t> mine) override {
    std::vector<int64_t> sums(mine.begin(), mine.end());
    for (int64_t& value : sums) value *= factor_;
    return sums;
  }
  std::vector<int64_t> all_gather(std::span<const int64_t>) override { return {}; }
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte>) override {
    return {};
  }
  std::vector<std::vector<std::byte>> all_to_all_bytes(std::span<const std::vector<std::byte>>,
                                                       std::span<const int64_t>) override {
    return {};
  }

 private:
  int64_t factor_;
};

TEST(EnergyMeter, CountsFromWhenItWasMadeOverAllRanks) {
  ThreeRanks ranks(/*others_know=*/true);
  testing::TransportWorld world(ranks);
  const EnergyMeter meter(kGpu, world);
  EXPECT_EQ(meter.joules(), 3 * 0.5);
  EXPECT_EQ(meter.joules(), 3 * 1.0);
}

TEST(EnergyMeter, WhereARankDoesNotKnowNothingIsKnown) {
  ThreeRanks ranks(/*others_know=*/false);
  testing::TransportWorld world(ranks);
  EXPECT_EQ(EnergyMeter(kGpu, world).joules(), std::nullopt);
  EXPECT_EQ(EnergyMeter("0000:ff:00.0", world).joules(), std::nullopt);
}

TEST(EnergyMeter, WithoutAGpuNothingIsKnown) {
  SoloTransport alone;
  testing::TransportWorld world(alone);
  EXPECT_EQ(EnergyMeter("", world).joules(), std::nullopt);
}

}  // namespace
}  // namespace bertha
