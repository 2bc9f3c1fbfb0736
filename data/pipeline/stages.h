#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "data/pipeline/bounded_queue.h"
#include "data/pipeline/exchange.h"
#include "data/pipeline/pipeline.h"
#include "data/pipeline/reader.h"
#include "data/pipeline/shard_table.h"
#include "data/pipeline/transport.h"

namespace bertha {

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
  std::vector<int64_t> all_gather(std::span<const int64_t> mine) override;
  std::vector<int64_t> sum(std::span<const int64_t> mine) override;
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override;
  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::byte>> outgoing,
      std::span<const int64_t> incoming_bytes) override;

  /// Whether a call is under way that may never return, because a peer has failed.
  enum class Inside : uint8_t { kNo, kYes };
  Inside abandon();

 private:
  /// Held while a call is under way.
  class Entry {
   public:
    explicit Entry(CancellableTransport& gate);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    CancellableTransport& gate_;
  };

  std::shared_ptr<Transport> transport_;
  std::mutex mutex_;
  bool abandoned_ = false;
  Inside inside_ = Inside::kNo;
};

/// What the three threads of one pipeline share: queues between them, and what each needs. A
/// thread holds it by shared_ptr, since one that is stuck in the transport may outlive the
/// Pipeline.
struct StageState {
  StageState(const PipelineOptions& pipeline_options, std::shared_ptr<Transport> transport_in,
             HostAllocator allocator);

  PipelineOptions options;
  HostAllocator allocate;
  ShardTable table;
  ShardAssignment assignment;
  std::optional<int64_t> end_step;
  CancellableTransport transport;
  BoundedQueue<LoadedWindow> windows{1};
  BoundedQueue<ExchangedStep> exchanged{1};
  BoundedQueue<StepBatch> batches;
};

// The three threads. Each ends when its queue is closed, and hands errors to the next.
void read_windows(StageState& state);
void exchange_steps(StageState& state);
void collate_steps(StageState& state);

}  // namespace bertha
