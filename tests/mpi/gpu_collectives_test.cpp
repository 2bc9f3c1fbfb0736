#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/comm/copy_collectives.h"
#include "harness/comm/grouped_collectives.h"
#include "harness/comm/nccl_collectives.h"
#include "harness/comm/solo_collectives.h"
#include "kernels/base/half.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/mpi/pretended_nodes.h"
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

enum class Kind { kNccl, kCopies, kNode, kTwoLevels };

class GpuCollectivesTest : public ::testing::TestWithParam<Kind> {
 protected:
  static void SetUpTestSuite() {
    device_ = make_cuda_device(testing::world().node_rank());
    event_ = device_->make_event();
    nodes_ = std::make_unique<testing::PretendedNodes>(testing::world().size() >= 4 ? 2 : 1);
    of_kind_[Kind::kNccl] = make_nccl(testing::world(), nullptr);
    of_kind_[Kind::kCopies] = make_copies(testing::world());
    for (const auto& [kind, grouping] :
         {std::pair(Kind::kNode, Grouping::kNode), {Kind::kTwoLevels, Grouping::kTwoLevels}}) {
      of_kind_[kind] = make_grouped_collectives(
          grouping, *nodes_, *device_, [](Level level, World& ranks, Stream* stream) {
            if (ranks.size() == 1) return make_solo_collectives(*device_);
            return level == Level::kNode ? make_copies(ranks) : make_nccl(ranks, stream);
          });
    }
  }
  static void TearDownTestSuite() {
    of_kind_.clear();
    nodes_.reset();
    event_.reset();
    device_.reset();
  }
  static std::unique_ptr<Collectives> make_nccl(World& world, Stream* stream) {
    return make_nccl_collectives(world, *device_, {.max_ctas = 8, .stream = stream});
  }
  static std::unique_ptr<Collectives> make_copies(World& world) {
    return make_copy_collectives(
        world, *device_, make_nccl(world, nullptr),
        {.use = CopyOptions::Use::kAlways, .staging_bytes = kStagingBytes});
  }

  void SetUp() override { collectives_ = of_kind_[GetParam()].get(); }

  static Collectives& collectives() { return *collectives_; }
  static Device& device() { return *device_; }
  static int rank() { return collectives_->rank(); }
  static int size() { return collectives_->size(); }
  static int shard() { return collectives_->shard(); }
  static int shards() { return collectives_->shard_count(); }

  /// Later work of stream() follows all calls so far, later calls all that is on it.
  static void follow_calls() {
    collectives_->record(*event_);
    collectives_->stream().wait_for(*event_);
  }
  static void precede_calls() {
    collectives_->stream().record(*event_);
    collectives_->wait_for(*event_);
  }

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
      follow_calls();
      device_->copy(collectives_->stream(), bytes.data(), buffer.data(), buffer.bytes());
      collectives_->stream().wait_on_host();
      return bytes;
    }
    Buffer buffer;
    View view;
  };

 private:
  static inline std::unique_ptr<Device> device_;
  static inline std::unique_ptr<Event> event_;
  static inline std::unique_ptr<World> nodes_;
  static inline std::map<Kind, std::unique_ptr<Collectives>> of_kind_;
  static inline Collectives* collectives_ = nullptr;
};

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
  constexpr const char* kNames[] = {"Nccl", "Copies", "Node", "TwoLevels"};
  return kNames[static_cast<size_t>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(All, GpuCollectivesTest,
                         ::testing::Values(Kind::kNccl, Kind::kCopies, Kind::kNode,
                                           Kind::kTwoLevels),
                         name_of);

std::vector<double> slot(const std::vector<double>& full, int place, int64_t count) {
  const auto begin = full.begin() + place * count;
  return {begin, begin + count};
}

TEST_P(GpuCollectivesTest, ReduceScatterGivesTheExactSumApartAndInPlace) {
  for (const DType dtype : kNumbers) {
    for (const int64_t count : kShardSizes) {
      SCOPED_TRACE(concat(name(dtype), " ", count));
      const std::vector<double> mine = values_of(rank(), count * shards());
      const std::vector<double> sum = sum_of(size(), count * shards());
      const OnGpu full(dtype, mine);
      const OnGpu own_part(dtype, std::vector<double>(static_cast<size_t>(count), 99.0));
      collectives().reduce_scatter_sum(full.view, own_part.view);
      EXPECT_TRUE(own_part.bytes() == encoded(dtype, slot(sum, shard(), count)));
      const OnGpu in_place(dtype, mine);
      const View own = in_place.view.rows(shard() * count, count);
      collectives().reduce_scatter_sum(in_place.view, own);
      const OnGpu copied(dtype, std::vector<double>(static_cast<size_t>(count)));
      follow_calls();
      device().copy(collectives().stream(), copied.view.data, own.data, own.bytes());
      EXPECT_TRUE(copied.bytes() == encoded(dtype, slot(sum, shard(), count))) << "in place";
      if (GetParam() == Kind::kTwoLevels) continue;  // leaves its own sums in the full view
      EXPECT_TRUE(full.bytes() == encoded(dtype, mine)) << "the full view was written";
      std::vector<double> want = mine;
      std::copy_n(sum.begin() + shard() * count, count, want.begin() + shard() * count);
      EXPECT_TRUE(in_place.bytes() == encoded(dtype, want)) << "beside its place";
    }
  }
}

TEST_P(GpuCollectivesTest, AllGatherKeepsEveryShardAtItsRank) {
  for (const DType dtype : kNumbers) {
    for (const int64_t count : kShardSizes) {
      SCOPED_TRACE(concat(name(dtype), " ", count));
      std::vector<double> want;
      for (int r = 0; r < shards(); ++r) {
        const std::vector<double> part = values_of(r, count);
        want.insert(want.end(), part.begin(), part.end());
      }
      const OnGpu own_part(dtype, values_of(shard(), count));
      const OnGpu full(dtype, std::vector<double>(want.size(), 99.0));
      collectives().all_gather(own_part.view, full.view);
      EXPECT_TRUE(full.bytes() == encoded(dtype, want));

      std::vector<double> own(want.size(), 99.0);
      std::copy_n(want.begin() + shard() * count, count, own.begin() + shard() * count);
      const OnGpu in_place(dtype, own);
      collectives().all_gather(in_place.view.rows(shard() * count, count), in_place.view);
      EXPECT_TRUE(in_place.bytes() == encoded(dtype, want)) << "in place";
    }
  }
}

TEST_P(GpuCollectivesTest, AllGatherIntoSharedMemoryFillsAnyPlaceOfIt) {
  constexpr int64_t kCount = 4096;
  const Buffer shared = collectives().allocate_shared(device(), (kCount * shards() + 700) * 2);
  for (const int64_t count : {int64_t{1}, int64_t{8}, int64_t{513}, kCount}) {
    for (const int64_t begin : {0, 1, 640}) {
      SCOPED_TRACE(concat(count, " from ", begin));
      std::vector<double> want;
      for (int r = 0; r < shards(); ++r) {
        const std::vector<double> part = values_of(r, count);
        want.insert(want.end(), part.begin(), part.end());
      }
      const OnGpu own_part(DType::kBF16, values_of(shard(), count));
      const OnGpu found(DType::kBF16, std::vector<double>(want.size(), 99.0));
      const View all(shared.data(), DType::kBF16, {kCount * shards() + 700});
      const View full = all.rows(begin, count * shards());
      collectives().all_gather(own_part.view, full);
      follow_calls();
      device().copy(collectives().stream(), found.view.data, full.data, full.bytes());
      EXPECT_TRUE(found.bytes() == encoded(DType::kBF16, want));

      const View own = full.rows(shard() * count, count);
      device().copy(collectives().stream(), own.data, found.view.data, own.bytes());
      precede_calls();
      collectives().all_gather(own, full);
      follow_calls();
      device().copy(collectives().stream(), found.view.data, full.data, full.bytes());
      std::vector<double> firsts;  // every rank had that of shard 0 in its own slot
      for (int r = 0; r < shards(); ++r) {
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
  const Buffer shared = collectives().allocate_shared(device(), kCount * shards() * 4);
  const View weights(shared.data(), DType::kF32, {kCount * shards()});
  const Buffer slow = device().allocate(int64_t{1} << 30);
  std::vector<OnGpu> inputs;
  std::vector<OnGpu> results;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> values = values_of(rank(), kCount * shards());
    for (double& value : values) value += round;
    inputs.emplace_back(DType::kF32, values);
    results.emplace_back(DType::kF32, std::vector<double>(values.size(), 99.0));
  }
  const OnGpu full(DType::kF32, std::vector<double>(static_cast<size_t>(kCount * shards())));
  const OnGpu own_part(DType::kF32, std::vector<double>(static_cast<size_t>(kCount)));
  for (int round = 0; round < kRounds; ++round) {
    const auto i = static_cast<size_t>(round);
    if (round % size() == rank()) {
      for (int k = 0; k < 4; ++k) {
        device().copy(stream, slow.data(), static_cast<char*>(slow.data()) + slow.bytes() / 2,
                      slow.bytes() / 2);
      }
    }
    device().copy(stream, full.view.data, inputs[i].view.data, full.view.bytes());
    precede_calls();
    collectives().reduce_scatter_sum(full.view, own_part.view);
    collectives().all_gather(own_part.view, weights);
    follow_calls();
    device().copy(stream, results[i].view.data, weights.data, weights.bytes());
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> want = sum_of(size(), kCount * shards());
    for (double& value : want) value += round * size();
    EXPECT_TRUE(results[static_cast<size_t>(round)].bytes() == encoded(DType::kF32, want))
        << "round " << round;
  }
}

TEST_P(GpuCollectivesTest, SumsOfSixteenBitsAreRoundedAlikeAtEveryRun) {
  constexpr int64_t kCount = 80'000;
  std::vector<double> values(static_cast<size_t>(kCount * shards()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<double>(i) + 1000.0 * rank());
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<char> first;
    for (int run = 0; run < 3; ++run) {
      const OnGpu full(dtype, values);
      const OnGpu own_part(dtype, std::vector<double>(static_cast<size_t>(kCount)));
      collectives().reduce_scatter_sum(full.view, own_part.view);
      if (run == 0) first = own_part.bytes();
      EXPECT_TRUE(own_part.bytes() == first) << name(dtype);
    }
  }
}

// With more than two ranks some views find no room and are sent with their sums. The values are so
// small that sums over eight ranks are exact in bf16.
TEST_P(GpuCollectivesTest, ScaledSumsTakeEachRanksFactor) {
  constexpr int64_t kCount = 6'400;
  constexpr int kViews = 40;
  const int64_t total = kCount * shards();
  const auto scaled = collectives().make_scaled_sums(device(), int64_t{2} << 20);
  const bool has_copies =
      GetParam() == Kind::kCopies || (GetParam() != Kind::kNccl && testing::world().size() >= 4);
  EXPECT_EQ(scaled != nullptr, has_copies);
  if (!scaled) return;
  const auto value_at = [](int view, int64_t i) {
    return static_cast<double>((i + view) % 3 - 1 + view % 2);
  };
  const auto factor_of = [](int of_rank, int step) { return std::ldexp(1.0, of_rank % 3 - step); };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (int step = 0; step < 3; ++step) {
      double factors = 0;
      for (int other = 0; other < size(); ++other) factors += factor_of(other, step);
      std::deque<OnGpu> full;
      std::deque<OnGpu> own_part;
      std::vector<ScatterSum> sums;
      for (int view = 0; view < kViews; ++view) {
        std::vector<double> values;
        for (int64_t i = 0; i < total; ++i) values.push_back(value_at(view, i));
        full.emplace_back(dtype, values);
        own_part.emplace_back(dtype, std::vector<double>(static_cast<size_t>(kCount), 99.0));
        sums.push_back({full.back().view, own_part.back().view});
      }
      const OnGpu factor(DType::kF32, {factor_of(rank(), step)});
      precede_calls();
      for (const OnGpu& view : full) scaled->send_ahead(view.view);
      scaled->reduce_scatter(sums, factor.view);
      for (int view = 0; view < kViews; ++view) {
        std::vector<double> want;
        for (int64_t i = 0; i < kCount; ++i) {
          want.push_back(factors * value_at(view, shard() * kCount + i));
        }
        EXPECT_TRUE(own_part[static_cast<size_t>(view)].bytes() == encoded(dtype, want))
            << name(dtype) << " " << view << " of step " << step;
      }
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
  const OnGpu values(DType::kF32, std::vector<double>(static_cast<size_t>(4 * shards())));
  View words = values.view;
  words.dtype = DType::kI32;
  EXPECT_THROW(collectives().all_reduce_sum(words), Error);
  EXPECT_THROW(collectives().reduce_scatter_sum(values.view, values.view.rows(0, 3)), Error);
  if (shards() > 1) {
    const View other = values.view.rows((shard() + 1) % shards() * 4, 4);
    EXPECT_THROW(collectives().reduce_scatter_sum(values.view, other), Error);
    EXPECT_THROW(collectives().all_gather(other, values.view), Error);
  }
  EXPECT_NO_THROW(collectives().check());
}

}  // namespace
}  // namespace bertha
