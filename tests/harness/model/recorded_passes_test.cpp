#include "harness/model/recorded_passes.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "harness/model/bert.h"
#include "kernels/base/arguments.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/harness/model/tiny_model.h"
#include "tests/support/recording_device.h"

namespace bertha {
namespace {

/// Counts what is recorded and launched.
class GraphDevice final : public testing::RecordingDevice {
 public:
  explicit GraphDevice(Device& device) : RecordingDevice(device) {}

  std::unique_ptr<Graph> record(Stream&, const std::function<void()>& enqueue) override {
    enqueue();
    ++recorded;
    return std::make_unique<Graph>();
  }
  void launch(Stream&, Graph&) override { ++launched; }

  int recorded = 0;
  int launched = 0;
};

struct Counts {
  int enqueued = 0;
  int recorded = 0;
  int launched = 0;

  bool operator==(const Counts&) const = default;
};

class Passes : public ::testing::Test {
 protected:
  Counts counts_after(RecordedPasses& passes, const PassKey& key) {
    passes.run(key, [this] { ++enqueued_; });
    return {enqueued_, graphs_.recorded, graphs_.launched};
  }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  GraphDevice graphs_{*device_};
  int enqueued_ = 0;
};

TEST_F(Passes, AreRecordedAtTheSecondOccurrenceAndLaunchedFromThenOn) {
  RecordedPasses passes(graphs_, *stream_, true);
  const PassKey key{.tokens = 256, .seqs = 3, .masked = 64};
  EXPECT_EQ(counts_after(passes, key), (Counts{1, 0, 0}));
  EXPECT_EQ(counts_after(passes, key), (Counts{2, 1, 1}));
  EXPECT_EQ(counts_after(passes, key), (Counts{2, 1, 2}));
  EXPECT_EQ(passes.graphs(), 1u);

  PassKey other = key;
  other.accumulate = Accumulate::kYes;
  EXPECT_EQ(counts_after(passes, other), (Counts{3, 1, 2}));
  EXPECT_EQ(counts_after(passes, other), (Counts{4, 2, 3}));
  passes.clear();
  EXPECT_EQ(counts_after(passes, key), (Counts{5, 2, 3}));
}

TEST_F(Passes, AreEnqueuedEveryTimeWithoutGraphs) {
  RecordedPasses off(graphs_, *stream_, false);
  RecordedPasses on_cpu(*device_, *stream_, true);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(counts_after(off, {}), (Counts{2 * i - 1, 0, 0}));
    EXPECT_EQ(counts_after(on_cpu, {}), (Counts{2 * i, 0, 0}));
  }
  EXPECT_EQ(on_cpu.graphs(), 0u);
}

TEST_F(Passes, OfMoreSizesThanGraphsAreKeptAreEnqueued) {
  RecordedPasses passes(graphs_, *stream_, true);
  for (int round = 0; round < 3; ++round) {
    for (int64_t tokens = 1; tokens <= 600; ++tokens) passes.run({.tokens = tokens}, [] {});
  }
  EXPECT_EQ(passes.graphs(), 512u);
  EXPECT_EQ(graphs_.recorded, 512);
}

// Backward writes its gradients once a step and adds to them after; forward knows no difference.
TEST_F(Passes, OfForwardAreTheSameForEveryMicroBatch) {
  const ModelConfig config{
      .layers = 1, .hidden = 8, .heads = 1, .feed_forward = 8, .vocab_size = 8, .max_positions = 8};
  const ParamTable table = make_param_table(make_dims(config), DecayRule::kReference);
  const std::unique_ptr<Ops> ops = make_cpu_ops(*device_, *stream_);
  Bert bert(config, table, {.tokens = 8, .seqs = 1, .masked = 8},
            {.device = &graphs_, .stream = stream_.get(), .ops = ops.get(), .graphs = true});
  std::vector<float> flat(static_cast<size_t>(table.elements));
  const View values(flat.data(), DType::kF32, {table.elements});
  bert.bind(values, values);
  const HostBatch batch = testing::make_batch({{.word_ids = {1, 2, 3},
                                                .segment_ids = {0, 0, 1},
                                                .masked_positions = {1},
                                                .masked_labels = {4}}});
  std::vector<size_t> graphs;
  for (int step = 0; step < 2; ++step) {
    bert.begin_step();
    for (int micro = 0; micro < 2; ++micro) {
      bert.upload(batch);
      bert.forward_train({}, View());
      bert.backward();
      graphs.push_back(bert.recorded_graphs());
    }
  }
  EXPECT_EQ(graphs, (std::vector<size_t>{0, 1, 2, 3}));
  bert.set_last_layer(LastLayer::kNeededRows);  // as it is: graphs of a warm-up serve the run
  EXPECT_EQ(bert.recorded_graphs(), 3u);
  bert.set_last_layer(LastLayer::kAllRows);
  EXPECT_EQ(bert.recorded_graphs(), 0u);
}

TEST(Pieces, BeginWhereABucketBegins) {
  using Pieces = std::vector<Piece>;
  const std::vector<int64_t> parts = {0, 100, 200, 300, 400};
  EXPECT_EQ(cut_pieces(parts, {}), (Pieces{{0, 4}}));
  EXPECT_EQ(cut_pieces(parts, {0}), (Pieces{{0, 4}}));
  EXPECT_EQ(cut_pieces(parts, parts), (Pieces{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}}));
  EXPECT_EQ(cut_pieces(parts, {0, 250, 299, 400}), (Pieces{{0, 1}, {2, 3}, {4, 4}}));
  EXPECT_EQ(cut_pieces(parts, {0, 99, 450}), (Pieces{{0, 3}, {4, 4}}));
}

}  // namespace
}  // namespace bertha
