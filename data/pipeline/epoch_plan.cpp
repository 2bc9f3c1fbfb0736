#include "data/pipeline/epoch_plan.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "data/random/draws.h"
#include "data/random/python_random.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// Keys apart from each other and from the seed itself, which keys dropout.
constexpr uint64_t kShardKey = 0x5348415244533031;      // "SHARDS01"
constexpr uint64_t kSampleKey = 0x53414D504C453031;     // "SAMPLE01"
constexpr uint64_t kPublishedKey = 0x5055424C53483031;  // "PUBLSH01"
constexpr int64_t kHighestSeed = 0xFFFFFFFF;

/// The windows of one epoch after another. An Order has start(epoch), called for ascending epochs,
/// and of the epoch that was started last num_windows(), seqs(window) and window(window).
template <class Order>
class Windows final : public SampleWindows {
 public:
  /// The first `skip` samples from this epoch on are left out.
  Windows(Order order, int64_t epoch, int64_t skip)
      : order_(std::move(order)), epoch_(epoch), skip_(skip) {
    BERTHA_CHECK(skip >= 0, "first_position ", skip);
    order_.start(epoch_);
    while (skip_ > 0 && skip_ >= order_.seqs(window_)) {
      skip_ -= order_.seqs(window_);
      advance();
    }
  }

  SampleWindow next() override {
    while (order_.seqs(window_) == 0) advance();
    SampleWindow window = order_.window(window_);
    window.epoch = epoch_;
    window.order.erase(window.order.begin(), window.order.begin() + std::exchange(skip_, 0));
    advance();
    return window;
  }

 private:
  void advance() {
    if (++window_ < order_.num_windows()) return;
    window_ = 0;
    order_.start(++epoch_);
  }

  Order order_;
  int64_t epoch_;
  int64_t window_ = 0;  // the coming one
  int64_t skip_;        // samples of the coming window that are left out
};

class Windowed {
 public:
  explicit Windowed(WindowedOrder options) : options_(std::move(options)) {
    BERTHA_CHECK(options_.window_shards >= 1, "window_shards ", options_.window_shards);
  }

  void start(int64_t epoch) {
    epoch_ = epoch;
    shards_ = shuffled_shards(options_.seed, epoch, std::ssize(options_.shard_seqs));
  }
  int64_t num_windows() const { return ceil_div(std::ssize(shards_), options_.window_shards); }
  int64_t seqs(int64_t window) const {
    int64_t seqs = 0;
    for (const int64_t shard : shards_of(window)) seqs += shard_seqs(shard);
    return seqs;
  }

  SampleWindow window(int64_t window) const {
    const std::span<const int64_t> shards = shards_of(window);
    SampleWindow result{.first_place = window * options_.window_shards,
                        .shards = {shards.begin(), shards.end()},
                        .order = {}};
    result.order.reserve(static_cast<size_t>(seqs(window)));
    for (int32_t i = 0; i < std::ssize(shards); ++i) {
      const int64_t rows = shard_seqs(result.shards[static_cast<size_t>(i)]);
      for (int32_t row = 0; row < rows; ++row) result.order.push_back({i, row});
    }
    philox_shuffle(result.order, options_.seed ^ kSampleKey, static_cast<uint64_t>(epoch_),
                   static_cast<uint32_t>(window));
    return result;
  }

 private:
  int64_t shard_seqs(int64_t shard) const {
    return options_.shard_seqs[static_cast<size_t>(shard)];
  }
  std::span<const int64_t> shards_of(int64_t window) const {
    const int64_t first = window * options_.window_shards;
    const int64_t count = std::min(options_.window_shards, std::ssize(shards_) - first);
    return std::span(shards_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }

  WindowedOrder options_;
  int64_t epoch_ = 0;
  std::vector<int64_t> shards_;  // in the order of this epoch
};

/// A window is a round.
class Published {
 public:
  explicit Published(PublishedOrder options) : options_(std::move(options)), seeds_(options_.seed) {
    BERTHA_CHECK(options_.batch_seqs >= 1, "batch_seqs ", options_.batch_seqs);
    for (int rank = 0; rank < options_.num_ranks; ++rank) seeds_.randint(0, kHighestSeed);
  }

  void start(int64_t epoch) {
    epoch_ = epoch;
    shards_.resize(options_.shard_seqs.size());
    std::iota(shards_.begin(), shards_.end(), int64_t{0});
    PythonRandom(static_cast<uint64_t>(seeds_.randint(0, kHighestSeed)))
        .shuffle(std::span<int64_t>(shards_));
    for (int64_t round = 0; round < num_windows(); ++round) {
      if (seqs(round) > 0) return;
    }
    fail(ExitCode::kData, "no shard of rank ", options_.rank, " contains a whole batch of ",
         options_.batch_seqs,
         " samples, which the published order needs; use fewer or larger shards, a smaller batch, "
         "or the windowed order");
  }
  int64_t num_windows() const { return std::ssize(shards_); }
  int64_t seqs(int64_t round) const {
    return shard_seqs(round) / options_.batch_seqs * options_.batch_seqs;
  }

  SampleWindow window(int64_t round) const {
    SampleWindow result{.first_place = round, .shards = {shard_of(round)}, .order = {}};
    for (int32_t row = 0; row < shard_seqs(round); ++row) result.order.push_back({.row = row});
    // The rank is in the key, because with few shards two ranks read the same one.
    philox_shuffle(result.order,
                   (options_.seed ^ kPublishedKey) +
                       static_cast<uint64_t>(options_.rank) * uint64_t{0x9E3779B97F4A7C15},
                   static_cast<uint64_t>(epoch_), static_cast<uint32_t>(round));
    result.order.resize(static_cast<size_t>(seqs(round)));
    return result;
  }

 private:
  int64_t shard_of(int64_t round) const {
    const int64_t ranks = options_.num_ranks;
    // As published: with more ranks than shards the rounds lie further apart.
    const int64_t step = ranks > num_windows() ? ranks + ranks % num_windows() : ranks;
    return shards_[static_cast<size_t>((round * step + options_.rank) % num_windows())];
  }
  int64_t shard_seqs(int64_t round) const {
    return options_.shard_seqs[static_cast<size_t>(shard_of(round))];
  }

  PublishedOrder options_;
  PythonRandom seeds_;
  int64_t epoch_ = 0;
  std::vector<int64_t> shards_;  // in the order of this epoch
};

}  // namespace

std::vector<int64_t> shuffled_shards(uint64_t seed, int64_t epoch, int64_t num_shards) {
  std::vector<int64_t> shards(static_cast<size_t>(num_shards));
  std::iota(shards.begin(), shards.end(), int64_t{0});
  philox_shuffle(shards, seed ^ kShardKey, static_cast<uint64_t>(epoch), 0);
  return shards;
}

std::unique_ptr<SampleWindows> make_windowed_order(WindowedOrder options) {
  const int64_t first = options.first_position;
  const int64_t epoch_seqs =
      std::accumulate(options.shard_seqs.begin(), options.shard_seqs.end(), int64_t{0});
  BERTHA_CHECK(epoch_seqs > 0, "no samples");
  return std::make_unique<Windows<Windowed>>(Windowed(std::move(options)), first / epoch_seqs,
                                             first % epoch_seqs);
}

std::unique_ptr<SampleWindows> make_published_order(PublishedOrder options) {
  const int64_t first = options.first_position;
  return std::make_unique<Windows<Published>>(Published(std::move(options)), 0, first);
}

}  // namespace bertha
