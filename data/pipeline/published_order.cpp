#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "data/pipeline/epoch_plan.h"
#include "data/random/draws.h"
#include "data/random/python_random.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr uint64_t kSampleKey = 0x5055424C53483031;  // "PUBLSH01"
constexpr int64_t kHighestSeed = 0xFFFFFFFF;

class PublishedWindows final : public SampleWindows {
 public:
  explicit PublishedWindows(PublishedOrder options)
      : options_(std::move(options)), seeds_(options_.seed), skip_(options_.first_position) {
    BERTHA_CHECK(options_.batch_seqs >= 1, "batch_seqs ", options_.batch_seqs);
    BERTHA_CHECK(options_.first_position >= 0, "first_position ", options_.first_position);
    for (int rank = 0; rank < options_.num_ranks; ++rank) seeds_.randint(0, kHighestSeed);
    start_epoch(0);
    while (skip_ > 0 && skip_ >= used_seqs(shard_of_round())) {
      skip_ -= used_seqs(shard_of_round());
      advance();
    }
  }

  SampleWindow next() override {
    while (used_seqs(shard_of_round()) == 0) advance();
    const int64_t shard = shard_of_round();
    SampleWindow window{.epoch = epoch_, .first_place = round_, .shards = {shard}, .order = {}};
    window.order.resize(static_cast<size_t>(options_.shard_seqs[static_cast<size_t>(shard)]));
    int32_t row = 0;
    for (ShardRow& sample : window.order) sample.row = row++;
    // The rank is in the key, because with few shards two ranks read the same one.
    philox_shuffle(window.order,
                   (options_.seed ^ kSampleKey) +
                       static_cast<uint64_t>(options_.rank) * uint64_t{0x9E3779B97F4A7C15},
                   static_cast<uint64_t>(epoch_), static_cast<uint32_t>(round_));
    window.order.resize(static_cast<size_t>(used_seqs(shard)));
    window.order.erase(window.order.begin(), window.order.begin() + std::exchange(skip_, 0));
    advance();
    return window;
  }

 private:
  int64_t num_shards() const { return static_cast<int64_t>(places_.size()); }
  int64_t shard_of_round() const {
    const int64_t ranks = options_.num_ranks;
    // As published: with more ranks than shards the rounds lie further apart.
    const int64_t step = ranks > num_shards() ? ranks + ranks % num_shards() : ranks;
    return places_[static_cast<size_t>((round_ * step + options_.rank) % num_shards())];
  }
  int64_t used_seqs(int64_t shard) const {
    const int64_t seqs = options_.shard_seqs[static_cast<size_t>(shard)];
    return seqs / options_.batch_seqs * options_.batch_seqs;
  }

  void start_epoch(int64_t epoch) {
    epoch_ = epoch;
    round_ = 0;
    places_.resize(options_.shard_seqs.size());
    std::iota(places_.begin(), places_.end(), int64_t{0});
    PythonRandom(static_cast<uint64_t>(seeds_.randint(0, kHighestSeed)))
        .shuffle(std::span<int64_t>(places_));
    int64_t epoch_seqs = 0;
    for (round_ = 0; round_ < num_shards(); ++round_) epoch_seqs += used_seqs(shard_of_round());
    round_ = 0;
    if (epoch_seqs == 0) {
      fail(ExitCode::kData, "no shard of rank ", options_.rank, " holds a whole batch of ",
           options_.batch_seqs,
           " samples, which the published order wants; use fewer or larger "
           "shards, a smaller batch, or the windowed order");
    }
  }

  void advance() {
    if (++round_ == num_shards()) start_epoch(epoch_ + 1);
  }

  PublishedOrder options_;
  PythonRandom seeds_;
  int64_t epoch_ = 0;
  std::vector<int64_t> places_;  // the shards in the order of this epoch
  int64_t round_ = 0;
  int64_t skip_ = 0;  // samples of the coming window that are left out
};

}  // namespace

std::unique_ptr<SampleWindows> make_published_order(PublishedOrder options) {
  return std::make_unique<PublishedWindows>(std::move(options));
}

}  // namespace bertha
