#include "data/pipeline/epoch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/random/draws.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// Keys apart from each other and from the seed itself, which keys dropout.
constexpr uint64_t kShardKey = 0x5348415244533031;   // "SHARDS01"
constexpr uint64_t kSampleKey = 0x53414D504C453031;  // "SAMPLE01"

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

void append_rows(std::vector<ShardRow>& order, int64_t shard_in_window, int64_t num_rows) {
  for (int64_t row = 0; row < num_rows; ++row) {
    order.push_back({static_cast<int32_t>(shard_in_window), static_cast<int32_t>(row)});
  }
}

class WindowedWindows final : public SampleWindows {
 public:
  explicit WindowedWindows(WindowedOrder options) : options_(std::move(options)) {
    BERTHA_CHECK(options_.window_shards >= 1, "window_shards ", options_.window_shards);
    BERTHA_CHECK(options_.first_position >= 0, "first_position ", options_.first_position);
    const int64_t epoch_seqs = sum(options_.shard_seqs);
    BERTHA_CHECK(epoch_seqs > 0, "no samples");
    start_epoch(options_.first_position / epoch_seqs);
    skip_ = options_.first_position % epoch_seqs;
    while (skip_ > 0 && skip_ >= window_seqs()) {
      skip_ -= window_seqs();
      advance();
    }
  }

  SampleWindow next() override {
    SampleWindow window{.epoch = epoch_,
                        .first_place = place_,
                        .shards = {places_.begin() + place_, places_.begin() + end_place()},
                        .order = {}};
    window.order.reserve(static_cast<size_t>(window_seqs()));
    for (size_t i = 0; i < window.shards.size(); ++i) {
      append_rows(window.order, static_cast<int64_t>(i), shard_seqs(window.shards[i]));
    }
    philox_shuffle(window.order, options_.seed ^ kSampleKey, static_cast<uint64_t>(epoch_),
                   static_cast<uint32_t>(place_ / options_.window_shards));
    window.order.erase(window.order.begin(), window.order.begin() + std::exchange(skip_, 0));
    advance();
    return window;
  }

 private:
  int64_t shard_seqs(int64_t shard) const {
    return options_.shard_seqs[static_cast<size_t>(shard)];
  }
  int64_t end_place() const {
    return std::min(place_ + options_.window_shards, static_cast<int64_t>(places_.size()));
  }
  int64_t window_seqs() const {
    int64_t seqs = 0;
    for (int64_t p = place_; p < end_place(); ++p) {
      seqs += shard_seqs(places_[static_cast<size_t>(p)]);
    }
    return seqs;
  }
  void start_epoch(int64_t epoch) {
    epoch_ = epoch;
    place_ = 0;
    places_ =
        shuffled_shards(options_.seed, epoch, static_cast<int64_t>(options_.shard_seqs.size()));
  }
  void advance() {
    place_ = end_place();
    if (place_ == static_cast<int64_t>(places_.size())) start_epoch(epoch_ + 1);
  }

  WindowedOrder options_;
  int64_t epoch_ = 0;
  std::vector<int64_t> places_;  // the shards in the order of this epoch
  int64_t place_ = 0;            // the first of the coming window
  int64_t skip_ = 0;             // samples of the coming window that are left out
};

}  // namespace

std::vector<int64_t> shuffled_shards(uint64_t seed, int64_t epoch, int64_t num_shards) {
  std::vector<int64_t> shards(static_cast<size_t>(num_shards));
  std::iota(shards.begin(), shards.end(), int64_t{0});
  philox_shuffle(shards, seed ^ kShardKey, static_cast<uint64_t>(epoch), 0);
  return shards;
}

std::unique_ptr<SampleWindows> make_windowed_order(WindowedOrder options) {
  return std::make_unique<WindowedWindows>(std::move(options));
}

}  // namespace bertha
