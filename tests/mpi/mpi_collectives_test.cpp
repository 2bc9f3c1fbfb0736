#include "harness/comm/world.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

// Elements per shard: empty, ragged, below and above the one-round path (4 KiB) and the round of
// an exchange (1 MiB).
constexpr int64_t kShardSizes[] = {0, 1, 7, 33, 511, 1025, 140001};

class MpiCollectivesTest : public ::testing::Test {
 protected:
  int rank() const { return testing::world().rank(); }
  int size() const { return testing::world().size(); }
  Collectives& collectives() { return *collectives_; }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Collectives> collectives_ = testing::world().make_host_collectives(*device_);
};

/// Values of one rank that everybody can recompute: random in magnitude, so that a sum in another
/// order has other bits.
template <class T>
std::vector<T> values_of(int rank, int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(1000 + rank));
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    const double magnitude = std::ldexp(1.0, static_cast<int>(random() % 24));
    value = static_cast<T>((static_cast<double>(random()) / 4294967296.0 - 0.5) * magnitude);
  }
  return values;
}

/// The sum in rank order, by one rank alone.
template <class T>
std::vector<T> serial_sum(int ranks, int64_t count) {
  std::vector<T> sum = values_of<T>(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> values = values_of<T>(rank, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

template <class T>
View view_of(std::vector<T>& values) {
  return View(values.data(), kDTypeOf<T>, {static_cast<int64_t>(values.size())});
}

template <class T>
std::vector<T> slot(const std::vector<T>& full, int rank, int64_t count) {
  const auto begin = full.begin() + rank * count;
  return std::vector<T>(begin, begin + count);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
void check_reduce_scatter(Collectives& collectives, int64_t count) {
  const int rank = collectives.rank();
  const int64_t total = count * collectives.size();
  const std::vector<T> mine = values_of<T>(rank, total);
  const std::vector<T> want = slot(serial_sum<T>(collectives.size(), total), rank, count);

  std::vector<T> full = mine;
  std::vector<T> shard(static_cast<size_t>(count), T{99});
  collectives.reduce_scatter_sum(view_of(full), view_of(shard));
  EXPECT_TRUE(same_bits(shard, want)) << count;
  EXPECT_TRUE(same_bits(full, mine)) << "the full view was written, " << count;

  std::vector<T> in_place = mine;
  const View all = view_of(in_place);
  collectives.reduce_scatter_sum(all, all.rows(rank * count, count));
  EXPECT_TRUE(same_bits(slot(in_place, rank, count), want)) << count << " in place";
}

template <class T>
void check_all_gather(Collectives& collectives, int64_t count) {
  const int rank = collectives.rank();
  std::vector<T> want;
  for (int r = 0; r < collectives.size(); ++r) {
    const std::vector<T> part = values_of<T>(r, count);
    want.insert(want.end(), part.begin(), part.end());
  }
  std::vector<T> shard = values_of<T>(rank, count);
  std::vector<T> full(want.size(), T{99});
  collectives.all_gather(view_of(shard), view_of(full));
  EXPECT_TRUE(same_bits(full, want)) << count;

  std::vector<T> in_place(want.size(), T{99});
  std::copy(shard.begin(), shard.end(), in_place.begin() + rank * count);
  const View all = view_of(in_place);
  collectives.all_gather(all.rows(rank * count, count), all);
  EXPECT_TRUE(same_bits(in_place, want)) << count << " in place";
}

template <class T>
void check_all_reduce_sum(Collectives& collectives, int64_t count) {
  std::vector<T> values = values_of<T>(collectives.rank(), count);
  collectives.all_reduce_sum(view_of(values));
  EXPECT_TRUE(same_bits(values, serial_sum<T>(collectives.size(), count))) << count;
}

TEST_F(MpiCollectivesTest, ReduceScatterHasTheBitsOfTheSumInRankOrder) {
  for (const int64_t count : kShardSizes) {
    check_reduce_scatter<double>(collectives(), count);
    check_reduce_scatter<float>(collectives(), count);
    check_reduce_scatter<int64_t>(collectives(), count);
  }
}

TEST_F(MpiCollectivesTest, AllGatherKeepsEveryShardAtItsRank) {
  for (const int64_t count : kShardSizes) {
    check_all_gather<double>(collectives(), count);
    check_all_gather<float>(collectives(), count);
    check_all_gather<uint8_t>(collectives(), count);
  }
}

TEST_F(MpiCollectivesTest, AllReduceHasTheBitsOfTheSumInRankOrder) {
  for (const int64_t count : kShardSizes) {
    check_all_reduce_sum<double>(collectives(), count);
    check_all_reduce_sum<float>(collectives(), count);
    check_all_reduce_sum<int64_t>(collectives(), count);
  }
}

TEST_F(MpiCollectivesTest, AllReduceHasTheMaximumOfEachElement) {
  for (const int64_t count : kShardSizes) {
    std::vector<int32_t> values;
    std::vector<int32_t> want;
    for (int64_t i = 0; i < count; ++i) {
      const auto largest_at = static_cast<int>(i) % size();
      const auto offset = static_cast<int32_t>(i) - 3;
      values.push_back(offset + (rank() == largest_at ? 1000 : rank()));
      want.push_back(offset + 1000);
    }
    collectives().all_reduce_max(view_of(values));
    EXPECT_EQ(values, want) << count;
  }
}

TEST_F(MpiCollectivesTest, MaximumOfFloatsIsRefused) {
  std::vector<float> values(4);
  EXPECT_THROW(collectives().all_reduce_max(view_of(values)), Error);
}

TEST_F(MpiCollectivesTest, SumOfHalvesIsRefused) {
  std::vector<uint8_t> bytes(8);
  EXPECT_THROW(collectives().all_reduce_sum(View(bytes.data(), DType::kF16, {4})), Error);
  EXPECT_THROW(collectives().all_reduce_sum(View(bytes.data(), DType::kBF16, {4})), Error);
}

TEST_F(MpiCollectivesTest, ShardOfAnotherSizeIsRefused) {
  std::vector<float> full(static_cast<size_t>(2 * size()));
  std::vector<float> shard(3);
  EXPECT_THROW(collectives().reduce_scatter_sum(view_of(full), view_of(shard)), Error);
  EXPECT_THROW(collectives().all_gather(view_of(shard), view_of(full)), Error);
}

}  // namespace
}  // namespace bertha
