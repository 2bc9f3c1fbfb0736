#include "data/convert/redistribute.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <thread>

#include "data/files/byte_file.h"
#include "data/files/new_file.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Number of sequences of maximum length that fit into memory per thread; growing arrays allocate
/// up to twice what they use.
int64_t seqs_per_spill(const Redistribution& all) {
  const int64_t longest_bytes =
      3 * all.limits.max_seq_tokens + 4 * all.limits.max_masked_per_seq + 64;
  const int64_t threads = all.num_threads > 0
                              ? all.num_threads
                              : std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  return std::max<int64_t>(all.memory_bytes / threads / (2 * longest_bytes), 1024);
}

std::string spill_path(const Redistribution& all, const JobFolder& folder, int64_t spill) {
  // A run that was stopped may have had other memory or threads, and files of other sequences.
  return folder.work_path(concat("spill_", spill, "_of_", seqs_per_spill(all), "_seqs"));
}

// A spill file contains some of the sequences, sorted by their target shard: the offsets of the
// sections and the end, [S + 1] int64; then the sections. A section is: number of samples n, their
// lengths [n] SampleLength, their payload. The byte order is this machine's: no file outlives its
// program.

template <class T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// Writes the samples, whose ids are places in the new order, sorted by the shard that they go to.
void write_spill(const std::string& path, const SampleSet& samples,
                 std::span<const int64_t> shard_firsts) {
  std::vector<int64_t> rows(static_cast<size_t>(samples.size()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const auto place = [&](int64_t row) { return samples.ids[static_cast<size_t>(row)]; };
  std::ranges::sort(rows, [&](int64_t a, int64_t b) { return place(a) < place(b); });
  std::vector<std::span<const int64_t>> rows_of_shard;
  auto begin = rows.begin();
  for (size_t s = 0; s + 1 < shard_firsts.size(); ++s) {
    const auto end = std::partition_point(
        begin, rows.end(), [&](int64_t row) { return place(row) < shard_firsts[s + 1]; });
    rows_of_shard.emplace_back(begin, end);
    begin = end;
  }
  BERTHA_CHECK(begin == rows.end(), "a place beyond the last shard");

  NewFile file(path);
  std::vector<std::vector<SampleLength>> lengths;
  std::vector<int64_t> offsets{static_cast<int64_t>(shard_firsts.size() * sizeof(int64_t))};
  for (const auto& of_shard : rows_of_shard) {
    lengths.push_back(lengths_of(samples, of_shard));
    const size_t lengths_bytes = lengths.back().size() * sizeof(SampleLength);
    offsets.push_back(offsets.back() + static_cast<int64_t>(sizeof(int64_t) + lengths_bytes) +
                      payload_bytes(lengths.back()));
  }
  file.write(bytes_of(std::span<const int64_t>(offsets)));
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto count = std::ssize(lengths[s]);
    file.write(bytes_of(std::span(&count, 1)));
    file.write(bytes_of(std::span<const SampleLength>(lengths[s])));
    file.write(bytes_of(std::span<const std::byte>(encode_samples(samples, rows_of_shard[s]))));
  }
  file.commit();
}

/// The samples of a spill file that go to one shard.
SampleSet read_spill(const std::string& path, int64_t shard) {
  const ByteFile file(path);
  const auto refuse = [&](const auto&... what) {
    fail(ExitCode::kData, path, ": ", what..., "; remove it and run the same command again");
  };
  const auto read = [&](int64_t at, auto& values) {
    const auto bytes = std::as_writable_bytes(std::span(values));
    if (at < 0 || at > file.size_bytes() - std::ssize(bytes)) refuse("cannot be read (too short)");
    const std::string problem = file.read_at(at, bytes);
    if (!problem.empty()) refuse("cannot be read (", problem, ")");
    return at + std::ssize(bytes);
  };
  std::array<int64_t, 2> range{};
  std::array<int64_t, 1> count{};
  read(shard * static_cast<int64_t>(sizeof(int64_t)), range);
  const int64_t lengths_at = read(range[0], count);
  const int64_t most = (range[1] - range[0]) / static_cast<int64_t>(sizeof(SampleLength));
  if (count[0] < 0 || count[0] > most || range[1] > file.size_bytes()) {
    refuse(count[0], " sequences in a section of ", range[1] - range[0], " bytes");
  }
  std::vector<SampleLength> lengths(static_cast<size_t>(count[0]));
  const int64_t payload_at = read(lengths_at, lengths);
  std::vector<std::byte> payload(static_cast<size_t>(std::max<int64_t>(range[1] - payload_at, 0)));
  read(payload_at, payload);
  return decode_samples(payload, lengths);
}

}  // namespace

int64_t Redistribution::num_spills() const {
  const int64_t per_spill = seqs_per_spill(*this);
  return ceil_div(files.num_seqs, per_spill);
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
