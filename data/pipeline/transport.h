#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace bertha {

/// The host collectives that the data pipeline needs. Implemented with MPI in harness/comm, and for
/// a single rank here; tests implement it with threads.
///
/// Threads   the pipeline calls it from one thread, concurrently with other communication.
/// Errors    Error(kEnvironment).
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Every rank's values, concatenated in rank order. All ranks give the same count.
  virtual std::vector<int64_t> all_gather(std::span<const int64_t> mine) = 0;
  /// The sum over all ranks, element by element. All ranks give the same count.
  virtual std::vector<int64_t> sum(std::span<const int64_t> mine) = 0;
  /// Every rank's bytes in rank order; counts may differ.
  virtual std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) = 0;
  /// Sends outgoing[r] to rank r; returns the data from each rank: incoming_bytes[r] from rank r.
  /// Empty messages are not sent.
  virtual std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::byte>> outgoing,
      std::span<const int64_t> incoming_bytes) = 0;
};

/// One that its owner keeps for longer than anybody uses it.
inline std::shared_ptr<Transport> borrowed(Transport& transport) {
  return std::shared_ptr<Transport>(std::shared_ptr<void>(), &transport);
}

/// A world of one rank.
class SoloTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<int64_t> all_gather(std::span<const int64_t> mine) override {
    return {mine.begin(), mine.end()};
  }
  std::vector<int64_t> sum(std::span<const int64_t> mine) override {
    return {mine.begin(), mine.end()};
  }
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override {
    return {{mine.begin(), mine.end()}};
  }
  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::byte>> outgoing, std::span<const int64_t>) override {
    return {outgoing.begin(), outgoing.end()};
  }
};

/// A transport that can be shut down for good: after abandon(), calls throw Abandoned instead of
/// starting.
///
/// Threads   abandon() from any thread, the rest from one.
class CancellableTransport final : public Transport {
 public:
  struct Abandoned {};

  explicit CancellableTransport(std::shared_ptr<Transport> transport)
      : transport_(std::move(transport)) {}
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::vector<int64_t> all_gather(std::span<const int64_t> mine) override {
    const Entry entry(*this);
    return transport_->all_gather(mine);
  }
  std::vector<int64_t> sum(std::span<const int64_t> mine) override {
    const Entry entry(*this);
    return transport_->sum(mine);
  }
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override {
    const Entry entry(*this);
    return transport_->all_gather_bytes(mine);
  }
  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::byte>> outgoing,
      std::span<const int64_t> incoming_bytes) override {
    const Entry entry(*this);
    return transport_->all_to_all_bytes(outgoing, incoming_bytes);
  }

  /// Whether a call is under way that may never return, because a peer has failed.
  enum class Inside : uint8_t { kNo, kYes };
  Inside abandon() {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    return size() > 1 ? inside_ : Inside::kNo;
  }

 private:
  /// Exists while a call is under way.
  struct Entry {
    explicit Entry(CancellableTransport& entered) : gate(entered) {
      const std::lock_guard lock(gate.mutex_);
      if (gate.abandoned_) throw Abandoned{};
      gate.inside_ = Inside::kYes;
    }
    ~Entry() {
      const std::lock_guard lock(gate.mutex_);
      gate.inside_ = Inside::kNo;
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    CancellableTransport& gate;
  };

  std::shared_ptr<Transport> transport_;
  std::mutex mutex_;
  bool abandoned_ = false;
  Inside inside_ = Inside::kNo;
};

}  // namespace bertha
