#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "harness/comm/grouped_collectives.h"
#include "kernels/base/tests/matchers.h"
#include "tests/mpi/pretended_nodes.h"
#include "tests/support/recording_device.h"

namespace bertha::testing {
namespace {

using Log = std::vector<std::string>;

/// An event that knows what was recorded in it.
struct LoggedEvent final : Event {
  bool is_done() const override { return true; }
  void wait_on_host() const override {}
  double ms_since(const Event&) const override { return 0; }
  std::string recorded = {};
};

/// Notes who waits for what.
class LoggedStream final : public Stream {
 public:
  LoggedStream(std::string name, Log& log) : name_(std::move(name)), log_(log) {}
  void record(Event& event) override { static_cast<LoggedEvent&>(event).recorded = name_; }
  void wait_for(const Event& event) override {
    log_.push_back(name_ + " after " + static_cast<const LoggedEvent&>(event).recorded);
  }
  void wait_on_host() override {}

 private:
  std::string name_;
  Log& log_;
};

/// Notes its calls; the last rank of 2, or of all 4 where it is given a stream.
class LoggedLevel final : public Collectives {
 public:
  LoggedLevel(std::string name, Log& log, Stream* stream)
      : name_(name), log_(log), own_stream_(name, log), stream_(stream) {}
  int rank() const override { return size() - 1; }
  int size() const override { return stream_ == nullptr ? 2 : 4; }
  Stream& stream() override { return stream_ == nullptr ? own_stream_ : *stream_; }
  void reduce_scatter_sum(const View& full, const View&) override { add("scatter", full); }
  void all_gather(const View&, const View& full) override { add("gather", full); }
  void all_reduce_sum(const View& values) override { add("sum", values); }
  void all_reduce_max(const View& values) override { add("max", values); }
  std::unique_ptr<ScaledSums> make_scaled_sums(Device&, int64_t) override {
    return name_ == "node" ? std::make_unique<LoggedSums>(*this) : nullptr;
  }

 private:
  class LoggedSums final : public ScaledSums {
   public:
    explicit LoggedSums(LoggedLevel& level) : level_(level) {}
    void send_ahead(const View& full) override { level_.add("ahead", full); }
    void reduce_scatter(std::span<const ScatterSum> sums, const View&) override {
      for (const ScatterSum& sum : sums) level_.add("scaled", sum.full);
    }

   private:
    LoggedLevel& level_;
  };

  void add(const char* call, const View& view) {
    log_.push_back(concat(name_, " ", call, " ", view.elements()));
  }

  std::string name_;
  Log& log_;
  LoggedStream own_stream_;
  Stream* stream_;
};

/// A device whose events are logged.
class EventDevice final : public BareDevice {
 public:
  std::unique_ptr<Event> make_event() override { return std::make_unique<LoggedEvent>(); }
};

std::unique_ptr<Collectives> make_logged(Grouping grouping, Log& log) {
  PretendedNodes nodes(1);
  EventDevice device;
  return make_grouped_collectives(
      grouping, nodes, device, [&log](Level level, World&, Stream* stream) {
        return std::make_unique<LoggedLevel>(level == Level::kNode ? "node" : "peers", log, stream);
      });
}

/// Two sums and two gathers, each pair between an event of `compute` and one of its end; what that
/// is of ends the pair.
Log log_of(Grouping grouping, int64_t elements) {
  Log log;
  const std::unique_ptr<Collectives> grouped = make_logged(grouping, log);
  std::vector<float> values(static_cast<size_t>(elements));
  const View full(values.data(), DType::kF32, {elements});
  const int64_t count = elements / grouped->shard_count();
  const View shard = full.rows(grouped->shard() * count, count);
  LoggedEvent computed;
  computed.recorded = "compute";
  LoggedEvent end;
  grouped->wait_for(computed);
  grouped->reduce_scatter_sum(full, shard);
  grouped->reduce_scatter_sum(full, shard);
  grouped->record(end);
  log.push_back(end.recorded + " ends");
  grouped->wait_for(computed);
  grouped->all_gather(shard, full);
  grouped->all_gather(shard, full);
  grouped->record(end);
  log.push_back(end.recorded + " ends");
  return log;
}

// No sum inside the node waits for one between nodes, and no gather between nodes for one inside.
TEST(GroupedOrder, OneLevelIsAtWorkWhileTheOtherIs) {
  EXPECT_THAT(log_of(Grouping::kTwoLevels, 8),
              ElementsAre("node after compute", "peers after compute",              //
                          "node scatter 8", "peers after node", "peers scatter 4",  //
                          "node scatter 8", "peers after node", "peers scatter 4",  //
                          "peers after node", "peers ends",                         //
                          "node after compute", "peers after compute",              //
                          "peers gather 4", "node after peers", "node gather 8",    //
                          "peers gather 4", "node after peers", "node gather 8",    //
                          "node after peers", "node ends"));
}

TEST(GroupedOrder, CopiesOfAShardAreSummedBetweenNodesAndGatheredInsideThem) {
  EXPECT_THAT(log_of(Grouping::kNode, 8),
              ElementsAre("node after compute", "peers after compute",          //
                          "node scatter 8", "peers after node", "peers sum 4",  //
                          "node scatter 8", "peers after node", "peers sum 4",  //
                          "peers after node", "peers ends",                     //
                          "node after compute", "peers after compute",          //
                          "node after peers", "node gather 8",                  //
                          "node after peers", "node gather 8",                  //
                          "node after peers", "node ends"));
}

TEST(GroupedOrder, WhatIsSentAheadIsScaledInsideTheNode) {
  Log log;
  const std::unique_ptr<Collectives> grouped = make_logged(Grouping::kTwoLevels, log);
  std::vector<float> values(16);
  const View all(values.data(), DType::kF32, {16});
  const ScatterSum sums[] = {{all.rows(8, 8), all.rows(14, 2)}, {all.rows(0, 8), all.rows(6, 2)}};
  EventDevice device;
  const std::unique_ptr<ScaledSums> scaled = grouped->make_scaled_sums(device, 64);
  ASSERT_NE(scaled, nullptr);
  for (const ScatterSum& sum : sums) scaled->send_ahead(sum.full);
  float factor = 1;
  scaled->reduce_scatter(sums, View(&factor, DType::kF32, {1}));
  LoggedEvent end;
  grouped->record(end);
  EXPECT_EQ(end.recorded, "peers");
  EXPECT_THAT(log, ElementsAre("node ahead 8", "node ahead 8", "node scaled 8", "node scaled 8",
                               "peers after node", "peers scatter 4", "peers scatter 4",
                               "peers after node"));
}

// What stream() is given comes after a sum over all ranks, and that after all calls before it.
TEST(GroupedOrder, SumsOverAllRanksAreOnTheStreamBetweenNodes) {
  Log log;
  const std::unique_ptr<Collectives> grouped = make_logged(Grouping::kNode, log);
  std::vector<double> values(3);
  grouped->all_reduce_sum(View(values.data(), DType::kF64, {3}));
  LoggedEvent event;
  grouped->stream().record(event);
  EXPECT_EQ(event.recorded, "peers");
  grouped->record(event);
  EXPECT_EQ(event.recorded, "peers");
  EXPECT_THAT(log, ElementsAre("peers sum 3", "peers after node"));
}

}  // namespace
}  // namespace bertha::testing
