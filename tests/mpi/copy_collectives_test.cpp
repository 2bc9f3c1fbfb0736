#include "harness/comm/copy_collectives.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "harness/comm/solo_collectives.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/mpi_main.h"

namespace bertha {
namespace {

/// What copies leave to others, counted and not done.
class CountingCollectives final : public Collectives {
 public:
  explicit CountingCollectives(Device& device) : stream_(device.make_stream()) {}

  int rank() const override { return testing::world().rank(); }
  int size() const override { return testing::world().size(); }
  Stream& stream() override { return *stream_; }
  void reduce_scatter_sum(const View&, const View&) override { ++sums_; }
  void all_gather(const View&, const View&) override { ++gathers_; }
  void all_reduce_sum(const View&) override { ++rest_; }
  void all_reduce_max(const View&) override { ++rest_; }

  int sums() const { return sums_; }
  int gathers() const { return gathers_; }
  int rest() const { return rest_; }

 private:
  std::unique_ptr<Stream> stream_;
  int sums_ = 0;
  int gathers_ = 0;
  int rest_ = 0;
};

TEST(CopyCollectives, LeaveToOthersWhatIsNotCopiedAndNothingElse) {
  const std::unique_ptr<Device> device = make_cuda_device(testing::world().node_rank());
  auto counting = std::make_unique<CountingCollectives>(*device);
  const CountingCollectives& others = *counting;
  const std::unique_ptr<Collectives> copies = make_copy_collectives(
      testing::world(), *device, std::move(counting), {.use = CopyOptions::Use::kAlways});
  const int64_t size = copies->size();
  const Buffer bytes = device->allocate(64 * size + 64);
  const Buffer shared = copies->allocate_shared(*device, 64 * size);
  // [W, 64 bytes], from that byte on.
  const auto full = [&](const Buffer& buffer, DType dtype, int64_t begin = 0) {
    return View(static_cast<char*>(buffer.data()) + begin, dtype, {64 / size_bytes(dtype) * size});
  };
  const auto sum = [&](const View& all) {
    const int64_t count = all.elements() / size;
    copies->reduce_scatter_sum(all, all.rows(copies->rank() * count, count));
  };
  const auto gather = [&](const View& all) {
    const int64_t count = all.elements() / size;
    copies->all_gather(all.rows(copies->rank() * count, count), all);
  };

  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) sum(full(bytes, dtype));
  gather(full(shared, DType::kF32));
  EXPECT_EQ(others.sums(), 0);
  EXPECT_EQ(others.gathers(), 0);

  sum(full(bytes, DType::kF64));
  sum(full(bytes, DType::kF32, 4));                  // not at a multiple of 16 bytes
  sum(View(bytes.data(), DType::kF16, {4 * size}));  // shards of 8 bytes
  gather(full(bytes, DType::kF32));                  // no memory of allocate_shared
  EXPECT_EQ(others.sums(), 3);
  EXPECT_EQ(others.gathers(), 1);

  copies->all_reduce_sum(full(bytes, DType::kF32));
  EXPECT_EQ(others.rest(), 1);
  copies->stream().wait_on_host();  // until nothing reads `bytes` any more
}

/// Ranks beside this one that nobody starts.
class ImaginaryWorld final : public World {
 public:
  ImaginaryWorld(int size, int node_size) : size_(size), node_size_(node_size) {}

  int rank() const override { return testing::world().rank(); }
  int size() const override { return size_; }
  int node_rank() const override { return 0; }
  int node_size() const override { return node_size_; }
  std::unique_ptr<Transport> make_transport() override { unused(); }
  std::unique_ptr<Collectives> make_host_collectives(Device&) override { unused(); }
  int agree_max(int) override { unused(); }
  void broadcast_bytes(std::span<std::byte>, int) override { unused(); }
  void barrier() override { unused(); }
  std::unique_ptr<World> make_node_world() override { unused(); }
  std::unique_ptr<World> make_peer_world() override { unused(); }
  [[noreturn]] void abort(int) override { unused(); }

 private:
  [[noreturn]] static void unused() { fail(ExitCode::kInternal, "a rank that nobody started"); }

  int size_;
  int node_size_;
};

void expect_given_way(ImaginaryWorld world) {
  const std::unique_ptr<Device> device = make_cuda_device(testing::world().node_rank());
  std::unique_ptr<Collectives> others = make_solo_collectives(*device);
  const Collectives* before = others.get();
  const std::unique_ptr<Collectives> taken =
      make_copy_collectives(world, *device, std::move(others), {});
  EXPECT_EQ(taken.get(), before);
  try {
    make_copy_collectives(world, *device, make_solo_collectives(*device),
                          {.use = CopyOptions::Use::kAlways});
    ADD_FAILURE() << "copies were made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kEnvironment) << error.what();
  }
}

TEST(CopyCollectives, GiveWayToTheOthersBetweenMachinesOrRefuse) {
  expect_given_way(ImaginaryWorld(testing::world().size() + 1, 1));
}

TEST(CopyCollectives, GiveWayToTheOthersWhereThereAreTooManyRanksOrRefuse) {
  expect_given_way(ImaginaryWorld(kMaxCopyRanks + 1, kMaxCopyRanks + 1));
}

}  // namespace
}  // namespace bertha
