#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/for_each_parallel.h"
#include "data/format/sample.h"

namespace bertha {

/// Statistics of the samples of a data set.
struct DataStats {
  int64_t num_shards = 0;
  int64_t num_samples = 0;
  int64_t num_tokens = 0;
  int64_t num_masked = 0;
  int64_t num_random_next = 0;                  // samples whose second sentence is a random one
  std::vector<int64_t> token_length_histogram;  // [longest + 1]  samples of that many tokens
  std::vector<int64_t> masked_histogram;        // [most + 1]  samples of that many masked positions

  void add(const SampleSet& samples);  // counts as no shard
  void add(const DataStats& other);

  int64_t longest_tokens() const;
  int64_t shortest_tokens() const;
  double mean_tokens() const;
  double mean_masked() const;
  double random_next_fraction() const;
  /// The part of a padded batch of rows of `max_seq_tokens` that would be padding.
  double padding_fraction(int64_t max_seq_tokens) const;
};

/// Reads all shards of a folder, or one shard.
///
/// Errors    Error(kData), as list_shards() and read_shard() do.
DataStats stats_of_data(const std::string& path, const SampleLimits& limits,
                        int64_t num_threads = 0, const ItemProgress& progress = {});

/// A histogram as lines for a terminal of `width` columns: at most `max_lines` bins of equal size
/// over [0, histogram.size()), each with its range, a bar, its count and its share in percent.
/// Bins before the first and after the last sample are left out. ASCII only.
std::vector<std::string> histogram_lines(std::span<const int64_t> histogram, int64_t width,
                                         int64_t max_lines = 16);

}  // namespace bertha
