#include "tests/support/thread_world.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {

using Bytes = std::vector<std::byte>;
using BytesPerRank = std::vector<Bytes>;

/// An all-to-all: each rank brings one message per receiver; when the last rank has called, all get
/// everything. The result is shared, so nobody waits for slow readers.
class ThreadWorld::AllToAll {
 public:
  explicit AllToAll(int num_ranks)
      : num_ranks_(static_cast<size_t>(num_ranks)), brought_(num_ranks_) {}

  size_t num_ranks() const { return num_ranks_; }

  std::shared_ptr<const std::vector<BytesPerRank>> run(size_t rank, BytesPerRank messages) {
    std::unique_lock lock(mutex_);
    ++inside_;
    for (size_t to = 0; to < messages.size(); ++to) {
      if (to != rank) bytes_sent_ += static_cast<int64_t>(messages[to].size());
    }
    brought_[rank] = std::move(messages);
    const int64_t round = round_;
    if (++arrived_ == num_ranks_) {
      result_ = std::make_shared<const std::vector<BytesPerRank>>(
          std::exchange(brought_, std::vector<BytesPerRank>(num_ranks_)));
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return aborted_ || round_ != round; });
    auto result = result_;
    --inside_;
    changed_.notify_all();
    if (aborted_) fail(ExitCode::kEnvironment, "the world of threads was aborted");
    return result;
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

  int64_t bytes_sent() const {
    const std::lock_guard lock(mutex_);
    return bytes_sent_;
  }

  void wait_until_empty() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ == 0; });
  }

 private:
  const size_t num_ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<BytesPerRank> brought_;
  std::shared_ptr<const std::vector<BytesPerRank>> result_;
  size_t arrived_ = 0;
  int64_t round_ = 0;
  int64_t inside_ = 0;
  int64_t bytes_sent_ = 0;
  bool aborted_ = false;
};

class ThreadWorld::RankTransport final : public Transport {
 public:
  RankTransport(int rank, AllToAll& all_to_all) : rank_(rank), all_to_all_(all_to_all) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(all_to_all_.num_ranks()); }

  std::vector<int64_t> all_gather(std::span<const int64_t> mine) override {
    std::vector<int64_t> all;
    for (const Bytes& bytes : all_gather_bytes(std::as_bytes(mine))) {
      BERTHA_CHECK(bytes.size() == mine.size_bytes(), "ranks give different counts");
      std::vector<int64_t> values(mine.size());
      if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::vector<int64_t> sum(std::span<const int64_t> mine) override {
    const std::vector<int64_t> all = all_gather(mine);
    std::vector<int64_t> sums(mine.size());
    for (size_t i = 0; i < all.size(); ++i) sums[i % mine.size()] += all[i];
    return sums;
  }

  BytesPerRank all_gather_bytes(std::span<const std::byte> mine) override {
    return run(BytesPerRank(all_to_all_.num_ranks(), Bytes(mine.begin(), mine.end())));
  }

  BytesPerRank all_to_all_bytes(std::span<const Bytes> outgoing,
                                std::span<const int64_t> incoming_bytes) override {
    BERTHA_CHECK(outgoing.size() == all_to_all_.num_ranks(), outgoing.size(), " messages");
    BytesPerRank incoming = run({outgoing.begin(), outgoing.end()});
    for (size_t from = 0; from < incoming.size(); ++from) {
      BERTHA_CHECK(std::ssize(incoming[from]) == incoming_bytes[from], "rank ", from, " sends ",
                   incoming[from].size(), " bytes, want ", incoming_bytes[from]);
    }
    return incoming;
  }

 private:
  BytesPerRank run(BytesPerRank outgoing) {
    const auto me = static_cast<size_t>(rank_);
    const auto all = all_to_all_.run(me, std::move(outgoing));
    BytesPerRank mine;
    for (const BytesPerRank& from_rank : *all) mine.push_back(from_rank[me]);
    return mine;
  }

  int rank_;
  AllToAll& all_to_all_;
};

ThreadWorld::ThreadWorld(int num_ranks) : all_to_all_(std::make_unique<AllToAll>(num_ranks)) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    transports_.push_back(std::make_unique<RankTransport>(rank, *all_to_all_));
  }
}

ThreadWorld::~ThreadWorld() { all_to_all_->wait_until_empty(); }

Transport& ThreadWorld::transport(int rank) { return *transports_[static_cast<size_t>(rank)]; }

void ThreadWorld::abort() { all_to_all_->abort(); }

int64_t ThreadWorld::bytes_sent() const { return all_to_all_->bytes_sent(); }

void run_thread_ranks(int num_ranks, const std::function<void(Transport& transport)>& work) {
  ThreadWorld world(num_ranks);
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(world.transport(rank));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        world.abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace bertha
