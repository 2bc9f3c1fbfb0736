#include "harness/comm/world.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kSizes[] = {0, 1, 7, 33, 511, 70001};

/// What `from` sends to `to`: its length and every byte depend on both.
Bytes message(int from, int to, int64_t base) {
  Bytes bytes(static_cast<size_t>((from + to) % 3 == 0 ? 0 : base + 5 * from + to));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] =
        static_cast<std::byte>(31 * static_cast<size_t>(from) + 7 * static_cast<size_t>(to) + i);
  }
  return bytes;
}

int rank() { return testing::world().rank(); }
int size() { return testing::world().size(); }

TEST(MpiTransport, AllGatherConcatenatesInRankOrder) {
  const std::unique_ptr<Transport> transport = testing::world().make_transport();
  ASSERT_EQ(transport->rank(), rank());
  ASSERT_EQ(transport->size(), size());
  for (const int64_t count : kSizes) {
    std::vector<int64_t> mine;
    for (int64_t i = 0; i < count; ++i) mine.push_back(1'000'000'000'000 * rank() + i);
    std::vector<int64_t> want;
    for (int64_t r = 0; r < size(); ++r) {
      for (int64_t i = 0; i < count; ++i) want.push_back(1'000'000'000'000 * r + i);
    }
    EXPECT_EQ(transport->all_gather(mine), want) << count;
  }
}

TEST(MpiTransport, AllGatherBytesTakesPartsOfAnyLengthIncludingNone) {
  const std::unique_ptr<Transport> transport = testing::world().make_transport();
  for (const int64_t base : kSizes) {
    const std::vector<Bytes> got = transport->all_gather_bytes(message(rank(), 1, base));
    ASSERT_EQ(static_cast<int>(got.size()), size());
    for (int r = 0; r < size(); ++r) {
      EXPECT_EQ(got[static_cast<size_t>(r)], message(r, 1, base)) << r << " " << base;
    }
  }
}

void check_all_to_all(Transport& transport, int64_t base) {
  std::vector<Bytes> outgoing;
  std::vector<int64_t> incoming_bytes;
  for (int other = 0; other < size(); ++other) {
    outgoing.push_back(message(rank(), other, base));
    incoming_bytes.push_back(std::ssize(message(other, rank(), base)));
  }
  const std::vector<Bytes> got = transport.all_to_all_bytes(outgoing, incoming_bytes);
  ASSERT_EQ(static_cast<int>(got.size()), size());
  for (int from = 0; from < size(); ++from) {
    EXPECT_EQ(got[static_cast<size_t>(from)], message(from, rank(), base)) << from << " " << base;
  }
}

TEST(MpiTransport, AllToAllBringsEachPartToItsRank) {
  const std::unique_ptr<Transport> transport = testing::world().make_transport();
  for (const int64_t base : kSizes) check_all_to_all(*transport, base);
}

TEST(MpiTransport, AllToAllOfNothingIsNothing) {
  const std::unique_ptr<Transport> transport = testing::world().make_transport();
  const std::vector<Bytes> outgoing(static_cast<size_t>(size()));
  EXPECT_EQ(transport->all_to_all_bytes(outgoing, std::vector<int64_t>(outgoing.size())), outgoing);
}

TEST(MpiTransport, PartsForAnotherNumberOfRanksAreRefused) {
  const std::unique_ptr<Transport> transport = testing::world().make_transport();
  const std::vector<Bytes> outgoing(static_cast<size_t>(size() + 1));
  EXPECT_THROW(transport->all_to_all_bytes(outgoing, std::vector<int64_t>(outgoing.size())), Error);
}

TEST(MpiTransport, WorksOnAThreadBesideCollectivesOfTheMainThread) {
  const std::unique_ptr<Transport> transport = testing::world().make_transport();
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::unique_ptr<Collectives> collectives = testing::world().make_host_collectives(*device);
  std::thread pipeline([&] {
    for (int64_t round = 0; round < 40; ++round) check_all_to_all(*transport, 100 * round);
  });
  const int factor = size() * (size() + 1) / 2;
  for (int round = 0; round < 40; ++round) {
    std::vector<float> values(3001, static_cast<float>((rank() + 1) * round));
    collectives->all_reduce_sum(View(values.data(), DType::kF32, {3001}));
    EXPECT_EQ(values, std::vector<float>(3001, static_cast<float>(factor * round)));
  }
  pipeline.join();
}

}  // namespace
}  // namespace bertha
