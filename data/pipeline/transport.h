#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace bertha {

/// The host collectives that the data pipeline needs. Implemented over MPI in harness/comm, and
/// by one rank alone here; tests implement it with threads.
///
/// Threads   the pipeline calls it from one thread of its own, beside other communication.
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
  /// outgoing[r] goes to rank r; returns what each rank sent here: incoming_bytes[r] by rank r. No
  /// message where there is nothing to send.
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

}  // namespace bertha
