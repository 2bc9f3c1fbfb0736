#include "tests/support/thread_collectives.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace bertha::testing {
namespace {

/// What the ranks share: a board of pointers, read between two barriers.
struct Board {
  explicit Board(int ranks) : views(static_cast<size_t>(ranks)), barrier(ranks) {}

  std::vector<View> views;
  std::barrier<> barrier;
  std::atomic<bool> failed{false};

  void wait() {
    barrier.arrive_and_wait();
    BERTHA_CHECK(!failed, "another rank threw");
  }
};

template <class T>
void sum_over_ranks(T* out, const Board& board, int64_t begin, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T value = board.views[0].as<T>()[begin + i];
    for (size_t r = 1; r < board.views.size(); ++r) {
      value += board.views[r].as<T>()[begin + i];
    }
    out[i] = value;
  }
}

class ThreadCollectives final : public Collectives {
 public:
  ThreadCollectives(Board& board, int rank, Device& device)
      : board_(board), rank_(rank), stream_(device.make_stream()) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(board_.views.size()); }
  Stream& stream() override { return *stream_; }

  void reduce_scatter_sum(const View& full, const View& shard) override {
    BERTHA_CHECK(full.elements() == size() * shard.elements(), full.shape_text());
    reduce(full, rank_ * shard.elements(), shard);
  }

  void all_gather(const View& shard, const View& full) override {
    BERTHA_CHECK(full.elements() == size() * shard.elements(), full.shape_text());
    post(shard);
    std::vector<char> gathered;
    for (const View& part : board_.views) {
      const char* data = static_cast<const char*>(part.data);
      gathered.insert(gathered.end(), data, data + part.bytes());
    }
    board_.wait();
    std::memcpy(full.data, gathered.data(), gathered.size());
  }

  void all_reduce_sum(const View& values) override { reduce(values, 0, values); }

  void all_reduce_max(const View& values) override {
    std::vector<int32_t> most(static_cast<size_t>(values.elements()), INT32_MIN);
    post(values);
    for (const View& view : board_.views) {
      for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], view.as<int32_t>()[i]);
    }
    board_.wait();
    std::copy(most.begin(), most.end(), values.as<int32_t>());
  }

 private:
  void post(const View& view) {
    board_.views[static_cast<size_t>(rank_)] = view;
    board_.wait();
  }

  void reduce(const View& mine, int64_t begin, const View& out) {
    switch (mine.dtype) {
      case DType::kF64:
        return reduce_as<double>(mine, begin, out);
      case DType::kF32:
        return reduce_as<float>(mine, begin, out);
      case DType::kI64:
        return reduce_as<int64_t>(mine, begin, out);
      default:
        BERTHA_CHECK(false, "no sum of ", name(mine.dtype));
    }
  }

  // The result leaves only after everybody has read: it may lie in what others read.
  template <class T>
  void reduce_as(const View& mine, int64_t begin, const View& out) {
    std::vector<T> result(static_cast<size_t>(out.elements()));
    post(mine);
    sum_over_ranks(result.data(), board_, begin, out.elements());
    board_.wait();
    std::copy(result.begin(), result.end(), out.as<T>());
  }

  Board& board_;
  int rank_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

void run_ranks(int ranks,
               const std::function<void(Device& device, Collectives& collectives)>& work) {
  Board board(ranks);
  std::exception_ptr first_failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const std::unique_ptr<Device> device = make_cpu_device(1);
        ThreadCollectives collectives(board, rank, *device);
        work(*device, collectives);
      } catch (...) {
        if (!board.failed.exchange(true)) first_failure = std::current_exception();
        board.barrier.arrive_and_drop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
}

}  // namespace bertha::testing
