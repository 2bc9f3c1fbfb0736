#include "data/convert/redistribute.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "data/convert/spill.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// How many sequences may be in memory per thread, each as long as can be; growing arrays hold up
/// to twice what they use.
int64_t seqs_per_spill(const Redistribution& all) {
  const int64_t longest_bytes =
      3 * all.limits.max_seq_tokens + 4 * all.limits.max_masked_per_seq + 64;
  const int64_t threads = all.num_threads > 0
                              ? all.num_threads
                              : std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  return std::max<int64_t>(all.memory_bytes / threads / (2 * longest_bytes), 1024);
}

std::string spill_path(const Redistribution& all, const JobFolder& folder, int64_t spill) {
  return folder.work_path(concat("spill_", spill, "_of_", all.num_spills()));
}

}  // namespace

int64_t Redistribution::num_spills() const {
  const int64_t per_spill = seqs_per_spill(*this);
  return (files.num_seqs + per_spill - 1) / per_spill;
}

void scatter(const Redistribution& all, const JobFolder& folder, const ItemProgress& progress) {
  const int64_t per_spill = seqs_per_spill(all);
  const auto write = [&](int64_t spill) {
    const std::string path = spill_path(all, folder, spill);
    if (std::filesystem::exists(path)) return;  // spill files appear whole
    SampleSet samples;
    const int64_t first = spill * per_spill;
    read_sequences(all.files, first, std::min(per_spill, all.files.num_seqs - first), all.limits,
                   [&](SampleView sample) {
                     sample.id = all.place_of[static_cast<size_t>(sample.id)];
                     samples.append(sample);
                   });
    write_spill(path, samples, all.shard_firsts);
  };
  for_each_parallel(all.num_spills(), all.num_threads, write, progress);
}

void gather(const Redistribution& all, const JobFolder& folder, int64_t shard,
            const std::function<void(const SampleView&)>& take) {
  const int64_t first = all.shard_firsts[static_cast<size_t>(shard)];
  const int64_t end = all.shard_firsts[static_cast<size_t>(shard) + 1];
  struct Place {
    int64_t spill = -1;
    int64_t row = 0;
  };
  std::vector<SampleSet> spills;
  std::vector<Place> places(static_cast<size_t>(end - first));
  for (int64_t spill = 0; spill < all.num_spills(); ++spill) {
    spills.push_back(read_spill(spill_path(all, folder, spill), shard));
    for (int64_t row = 0; row < spills.back().size(); ++row) {
      const int64_t place = spills.back().ids[static_cast<size_t>(row)];
      BERTHA_CHECK(place >= first && place < end, "place ", place, " in shard ", shard);
      places[static_cast<size_t>(place - first)] = {.spill = spill, .row = row};
    }
  }
  for (const Place& place : places) {
    BERTHA_CHECK(place.spill >= 0, "shard ", shard, " lacks a sequence");
    take(spills[static_cast<size_t>(place.spill)][place.row]);
  }
}

}  // namespace bertha
