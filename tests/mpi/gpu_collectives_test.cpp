#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/comm/copy_collectives.h"
#include "harness/comm/nccl_collectives.h"
#include "kernels/base/half.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

constexpr DType kNumbers[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64};
// Copies take those of whole 16 bytes.
constexpr int64_t kShardSizes[] = {0, 1, 7, 8, 33, 511, 512, 1025, 300'001, 300'008};
// The least that there is: of the largest shards, those of f32 arrive in two goes or more.
constexpr int64_t kStagingBytes = int64_t{2} << 20;

template <class T>
void append(std::vector<char>& bytes, T value) {
  const char* data = reinterpret_cast<const char*>(&value);
  bytes.insert(bytes.end(), data, data + sizeof(T));
}

std::vector<char> encoded(DType dtype, const std::vector<double>& values) {
  std::vector<char> bytes;
  bytes.reserve(values.size() * 8);
  for (const double value : values) {
    if (dtype == DType::kF64) append(bytes, value);
    if (dtype == DType::kF32) append(bytes, static_cast<float>(value));
    if (dtype == DType::kF16) append(bytes, to_half(value));
    if (dtype == DType::kBF16) append(bytes, to_bfloat16(value));
    if (dtype == DType::kI64) append(bytes, static_cast<int64_t>(value));
    if (dtype == DType::kI32) append(bytes, static_cast<int32_t>(value));
  }
  return bytes;
}

/// Small whole numbers: every sum over up to eight ranks is exact in bf16 too.
std::vector<double> values_of(int rank, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(static_cast<int>(i % 7) - 2) * (rank + 1);
  }
  return values;
}

std::vector<double> sum_of(int ranks, int64_t count) {
  std::vector<double> sum(static_cast<size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<double> values = values_of(rank, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

enum class Kind { kNccl, kCopies };

class GpuCollectivesTest : public ::testing::TestWithParam<Kind> {
 protected:
  static void SetUpTestSuite() {
    World& world = testing::world();
    device_ = make_cuda_device(world.node_rank());
    nccl_ = make_nccl_collectives(world, *device_, {.max_ctas = 8});
    copies_ = make_copy_collectives(
        world, *device_, make_nccl_collectives(world, *device_, {.max_ctas = 8}),
        {.use = CopyOptions::Use::kAlways, .staging_bytes = kStagingBytes});
  }
  static void TearDownTestSuite() {
    copies_.reset();
    nccl_.reset();
    device_.reset();
  }

  void SetUp() override { collectives_ = GetParam() == Kind::kNccl ? nccl_.get() : copies_.get(); }

  static Collectives& collectives() { return *collectives_; }
  static Device& device() { return *device_; }
  static int rank() { return collectives_->rank(); }
  static int size() { return collectives_->size(); }

  /// Elements on the GPU that the collectives' stream has written.
  struct OnGpu {
    OnGpu(DType dtype, const std::vector<double>& values)
        : buffer(device_->allocate(static_cast<int64_t>(values.size()) * size_bytes(dtype))),
          view(buffer.data(), dtype, {static_cast<int64_t>(values.size())}) {
      const std::vector<char> bytes = encoded(dtype, values);
      device_->copy(collectives_->stream(), buffer.data(), bytes.data(), buffer.bytes());
      collectives_->stream().wait_on_host();
    }
    std::vector<char> bytes() const {
      std::vector<char> bytes(static_cast<size_t>(buffer.bytes()));
      device_->copy(collectives_->stream(), bytes.data(), buffer.data(), buffer.bytes());
      collectives_->stream().wait_on_host();
      return bytes;
    }
    Buffer buffer;
    View view;
  };

 private:
  static inline std::unique_ptr<Device> device_;
  static inline std::unique_ptr<Collectives> nccl_;
  static inline std::unique_ptr<Collectives> copies_;
  static inline Collectives* collectives_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Both, GpuCollectivesTest, ::testing::Values(Kind::kNccl, Kind::kCopies),
                         [](const auto& kind) {
                           return std::string(kind.param == Kind::kNccl ? "Nccl" : "Copies");
                         });

std::vector<double> slot(const std::vector<double>& full, int place, int64_t count) {
  const auto begin = full.begin() + place * count;
  return {begin, begin + count};
}

TEST_P(GpuCollectivesTest, ReduceScatterGivesTheExactSumApartAndInPlace) {
  for (const DType dtype : kNumbers) {
    for (const int64_t count : kShardSizes) {
      SCOPED_TRACE(concat(name(dtype), " ", count));
      const std::vector<double> mine = values_of(rank(), count * size());
      const std::vector<double> sum = sum_of(size(), count * size());
      const OnGpu full(dtype, mine);
      const OnGpu shard(dtype, std::vector<double>(static_cast<size_t>(count), 99.0));
      collectives().reduce_scatter_sum(full.view, shard.view);
      EXPECT_TRUE(shard.bytes() == encoded(dtype, slot(sum, rank(), count)));
      EXPECT_TRUE(full.bytes() == encoded(dtype, mine)) << "the full view was written";

      collectives().reduce_scatter_sum(full.view, full.view.rows(rank() * count, count));
      std::vector<double> want = mine;
      std::copy_n(sum.begin() + rank() * count, count, want.begin() + rank() * count);
      EXPECT_TRUE(full.bytes() == encoded(dtype, want)) << "in place";
    }
  }
}

TEST_P(GpuCollectivesTest, AllGatherKeepsEveryShardAtItsRank) {
  for (const DType dtype : kNumbers) {
    for (const int64_t count : kShardSizes) {
      SCOPED_TRACE(concat(name(dtype), " ", count));
      std::vector<double> want;
      for (int r = 0; r < size(); ++r) {
        const std::vector<double> part = values_of(r, count);
        want.insert(want.end(), part.begin(), part.end());
      }
      const OnGpu shard(dtype, values_of(rank(), count));
      const OnGpu full(dtype, std::vector<double>(want.size(), 99.0));
      collectives().all_gather(shard.view, full.view);
      EXPECT_TRUE(full.bytes() == encoded(dtype, want));

      std::vector<double> own(want.size(), 99.0);
      std::copy_n(want.begin() + rank() * count, count, own.begin() + rank() * count);
      const OnGpu in_place(dtype, own);
      collectives().all_gather(in_place.view.rows(rank() * count, count), in_place.view);
      EXPECT_TRUE(in_place.bytes() == encoded(dtype, want)) << "in place";
    }
  }
}

TEST_P(GpuCollectivesTest, AllGatherIntoSharedMemoryFillsAnyPlaceOfIt) {
  constexpr int64_t kCount = 4096;
  const Buffer shared = collectives().allocate_shared(device(), (kCount * size() + 700) * 2);
  for (const int64_t count : {int64_t{1}, int64_t{8}, int64_t{513}, kCount}) {
    for (const int64_t begin : {0, 1, 640}) {
      SCOPED_TRACE(concat(count, " from ", begin));
      std::vector<double> want;
      for (int r = 0; r < size(); ++r) {
        const std::vector<double> part = values_of(r, count);
        want.insert(want.end(), part.begin(), part.end());
      }
      const OnGpu shard(DType::kBF16, values_of(rank(), count));
      const OnGpu found(DType::kBF16, std::vector<double>(want.size(), 99.0));
      const View all(shared.data(), DType::kBF16, {kCount * size() + 700});
      const View full = all.rows(begin, count * size());
      collectives().all_gather(shard.view, full);
      device().copy(collectives().stream(), found.view.data, full.data, full.bytes());
      EXPECT_TRUE(found.bytes() == encoded(DType::kBF16, want));

      const View own = full.rows(rank() * count, count);
      device().copy(collectives().stream(), own.data, found.view.data, own.bytes());
      collectives().all_gather(own, full);
      device().copy(collectives().stream(), found.view.data, full.data, full.bytes());
      std::vector<double> firsts;  // every rank had that of rank 0 in its own slot
      for (int r = 0; r < size(); ++r) {
        firsts.insert(firsts.end(), want.begin(), want.begin() + count);
      }
      EXPECT_TRUE(found.bytes() == encoded(DType::kBF16, firsts)) << "in place";
    }
  }
}

// No rank waits on the host, and each in turn is late by some milliseconds of copies: nothing may
// arrive where another rank still reads, and nobody may read what has not arrived.
TEST_P(GpuCollectivesTest, CallsInARowWaitForEachOther) {
  constexpr int64_t kCount = 40'000;
  constexpr int kRounds = 24;
  Stream& stream = collectives().stream();
  const Buffer shared = collectives().allocate_shared(device(), kCount * size() * 4);
  const View weights(shared.data(), DType::kF32, {kCount * size()});
  const Buffer slow = device().allocate(int64_t{1} << 30);
  std::vector<OnGpu> inputs;
  std::vector<OnGpu> results;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> values = values_of(rank(), kCount * size());
    for (double& value : values) value += round;
    inputs.emplace_back(DType::kF32, values);
    results.emplace_back(DType::kF32, std::vector<double>(values.size(), 99.0));
  }
  const OnGpu full(DType::kF32, std::vector<double>(static_cast<size_t>(kCount * size())));
  const OnGpu shard(DType::kF32, std::vector<double>(static_cast<size_t>(kCount)));
  for (int round = 0; round < kRounds; ++round) {
    const auto i = static_cast<size_t>(round);
    if (round % size() == rank()) {
      for (int k = 0; k < 4; ++k) {
        device().copy(stream, slow.data(), static_cast<char*>(slow.data()) + slow.bytes() / 2,
                      slow.bytes() / 2);
      }
    }
    device().copy(stream, full.view.data, inputs[i].view.data, full.view.bytes());
    collectives().reduce_scatter_sum(full.view, shard.view);
    collectives().all_gather(shard.view, weights);
    device().copy(stream, results[i].view.data, weights.data, weights.bytes());
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> want = sum_of(size(), kCount * size());
    for (double& value : want) value += round * size();
    EXPECT_TRUE(results[static_cast<size_t>(round)].bytes() == encoded(DType::kF32, want))
        << "round " << round;
  }
}

TEST_P(GpuCollectivesTest, SumsOfSixteenBitsAreRoundedAlikeAtEveryRun) {
  constexpr int64_t kCount = 80'000;
  std::vector<double> values(static_cast<size_t>(kCount * size()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<double>(i) + 1000.0 * rank());
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<char> first;
    for (int run = 0; run < 3; ++run) {
      const OnGpu full(dtype, values);
      const OnGpu shard(dtype, std::vector<double>(static_cast<size_t>(kCount)));
      collectives().reduce_scatter_sum(full.view, shard.view);
      if (run == 0) first = shard.bytes();
      EXPECT_TRUE(shard.bytes() == first) << name(dtype);
    }
  }
}

TEST_P(GpuCollectivesTest, AllReduceGivesTheExactSum) {
  for (const DType dtype : kNumbers) {
    for (const int64_t count : kShardSizes) {
      SCOPED_TRACE(concat(name(dtype), " ", count));
      const OnGpu sum(dtype, values_of(rank(), count));
      collectives().all_reduce_sum(sum.view);
      EXPECT_TRUE(sum.bytes() == encoded(dtype, sum_of(size(), count)));
    }
  }
}

TEST_P(GpuCollectivesTest, AllReduceHasTheMaximumOfEachElement) {
  for (const int64_t count : kShardSizes) {
    std::vector<double> want = values_of(0, count);
    for (int other = 1; other < size(); ++other) {
      const std::vector<double> values = values_of(other, count);
      for (size_t i = 0; i < want.size(); ++i) want[i] = std::max(want[i], values[i]);
    }
    const OnGpu most(DType::kI32, values_of(rank(), count));
    collectives().all_reduce_max(most.view);
    EXPECT_TRUE(most.bytes() == encoded(DType::kI32, want)) << count;
  }
}

TEST_P(GpuCollectivesTest, RandomSumsHaveTheSameBitsAtEveryRun) {
  std::vector<double> values(300'001);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<double>(i) + 1000.0 * rank());
  }
  std::vector<char> first;
  for (int run = 0; run < 5; ++run) {
    const OnGpu sum(DType::kF32, values);
    collectives().all_reduce_sum(sum.view);
    if (run == 0) first = sum.bytes();
    EXPECT_TRUE(sum.bytes() == first);
  }
}

TEST_P(GpuCollectivesTest, RefusesWhatItCannotAddUpOrPlace) {
  const OnGpu values(DType::kF32, std::vector<double>(static_cast<size_t>(4 * size())));
  View words = values.view;
  words.dtype = DType::kI32;
  EXPECT_THROW(collectives().all_reduce_sum(words), Error);
  EXPECT_THROW(collectives().reduce_scatter_sum(values.view, values.view.rows(0, 3)), Error);
  if (size() > 1) {
    const View other = values.view.rows((rank() + 1) % size() * 4, 4);
    EXPECT_THROW(collectives().reduce_scatter_sum(values.view, other), Error);
    EXPECT_THROW(collectives().all_gather(other, values.view), Error);
  }
  EXPECT_NO_THROW(collectives().check());
}

}  // namespace
}  // namespace bertha
