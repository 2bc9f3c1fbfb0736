#include "data/format/stats.h"

#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "kernels/base/divide.h"

#include <algorithm>
#include <iomanip>
#include <mutex>
#include <numeric>
#include <sstream>

namespace bertha {
namespace {

void count(std::vector<int64_t>& histogram, int64_t value, int64_t samples) {
  const auto index = static_cast<size_t>(value);
  if (histogram.size() <= index) histogram.resize(index + 1);
  histogram[index] += samples;
}

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Neighbouring histogram entries that share a line.
struct Bin {
  int64_t first = 0;
  int64_t last = 0;
  int64_t samples = 0;
};

std::vector<Bin> bins_of(std::span<const int64_t> histogram, int64_t max_lines) {
  const int64_t size = std::ssize(histogram);
  const int64_t per_bin = ceil_div(size, max_lines);
  std::vector<Bin> bins;
  for (int64_t first = 0; first < size; first += per_bin) {
    const int64_t last = std::min(first + per_bin, size) - 1;
    const auto part =
        histogram.subspan(static_cast<size_t>(first), static_cast<size_t>(last - first + 1));
    bins.push_back({.first = first,
                    .last = last,
                    .samples = std::accumulate(part.begin(), part.end(), int64_t{0})});
  }
  const auto used = [](const Bin& bin) { return bin.samples > 0; };
  bins.erase(bins.begin(), std::ranges::find_if(bins, used));
  bins.erase(std::find_if(bins.rbegin(), bins.rend(), used).base(), bins.end());
  return bins;
}

}  // namespace

void DataStats::add(const SampleSet& samples) {
  num_samples += samples.size();
  num_tokens += samples.token_offsets.back();
  num_masked += samples.masked_offsets.back();
  for (int64_t i = 0; i < samples.size(); ++i) {
    const SampleView sample = samples[i];
    count(token_length_histogram, std::ssize(sample.token_ids), 1);
    count(masked_histogram, std::ssize(sample.masked_positions), 1);
    num_random_next += sample.next_sentence_label == 1 ? 1 : 0;
  }
}

void DataStats::add(const DataStats& other) {
  num_shards += other.num_shards;
  num_samples += other.num_samples;
  num_tokens += other.num_tokens;
  num_masked += other.num_masked;
  num_random_next += other.num_random_next;
  for (size_t i = 0; i < other.token_length_histogram.size(); ++i) {
    count(token_length_histogram, static_cast<int64_t>(i), other.token_length_histogram[i]);
  }
  for (size_t i = 0; i < other.masked_histogram.size(); ++i) {
    count(masked_histogram, static_cast<int64_t>(i), other.masked_histogram[i]);
  }
}

int64_t DataStats::longest_tokens() const {
  return std::max<int64_t>(0, std::ssize(token_length_histogram) - 1);
}

int64_t DataStats::shortest_tokens() const {
  const auto first =
      std::ranges::find_if(token_length_histogram, [](int64_t samples) { return samples > 0; });
  return first == token_length_histogram.end() ? 0 : first - token_length_histogram.begin();
}

double DataStats::mean_tokens() const { return ratio(num_tokens, num_samples); }
double DataStats::mean_masked() const { return ratio(num_masked, num_samples); }
double DataStats::random_next_fraction() const { return ratio(num_random_next, num_samples); }

double DataStats::padding_fraction(int64_t max_seq_tokens) const {
  return num_samples == 0 ? 0.0 : 1.0 - ratio(num_tokens, num_samples * max_seq_tokens);
}

DataStats stats_of_data(const std::string& path, const SampleLimits& limits, int64_t num_threads,
                        const ItemProgress& progress) {
  const std::vector<std::string> shards = list_shards(path);
  DataStats total;
  std::mutex mutex;  // guards total
  const auto read = [&](int64_t shard) {
    DataStats stats;
    stats.num_shards = 1;
    stats.add(read_shard(shards[static_cast<size_t>(shard)], 0, limits));
    const std::lock_guard lock(mutex);
    total.add(stats);
  };
  for_each_parallel(std::ssize(shards), num_threads, read, progress);
  return total;
}

std::vector<std::string> histogram_lines(std::span<const int64_t> histogram, int64_t width,
                                         int64_t max_lines) {
  const std::vector<Bin> bins = bins_of(histogram, max_lines);
  int64_t total = 0;
  int64_t most = 0;
  for (const Bin& bin : bins) {
    total += bin.samples;
    most = std::max(most, bin.samples);
  }
  // "  257-  288 |#####      |      12345  12.3%": all except the bar takes 33 columns.
  const int64_t bar_width = std::max<int64_t>(1, width - 33);
  std::vector<std::string> lines;
  for (const Bin& bin : bins) {
    // Any sample at all shows.
    const int64_t length =
        bin.samples == 0 ? 0 : std::max<int64_t>(1, bin.samples * bar_width / most);
    std::ostringstream line;
    line << std::setw(5) << bin.first << '-' << std::setw(5) << bin.last << " |"
         << std::string(static_cast<size_t>(length), '#')
         << std::string(static_cast<size_t>(bar_width - length), ' ') << "| " << std::setw(11)
         << bin.samples << std::setw(6) << std::fixed << std::setprecision(1)
         << 100.0 * ratio(bin.samples, total) << '%';
    lines.push_back(line.str());
  }
  return lines;
}

}  // namespace bertha
