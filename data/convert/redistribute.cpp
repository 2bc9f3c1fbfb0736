#include "data/convert/redistribute.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string_view>
#include <thread>

#include "data/files/new_file.h"
#include "data/format/payload.h"
#include "kernels/base/divide.h"
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
  // A run that was stopped may have had other memory or threads, and files of other sequences.
  return folder.work_path(concat("spill_", spill, "_of_", seqs_per_spill(all), "_seqs"));
}

// A spill file has some of the sequences, sorted by the shard that they go to: offsets of the
// sections, and the end [S + 1] int64; sections. A section is: samples n, their lengths [n]
// SampleLength, their payload. In the byte order of this machine: no file outlives the program that
// wants it.

template <class T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::vector<SampleLength> lengths_of(const SampleSet& samples, std::span<const int64_t> rows) {
  std::vector<SampleLength> lengths;
  for (const int64_t row : rows) {
    lengths.push_back({.tokens = std::ssize(samples[row].token_ids),
                       .masked = std::ssize(samples[row].masked_ids)});
  }
  return lengths;
}

int64_t section_bytes(std::span<const SampleLength> lengths) {
  int64_t bytes = static_cast<int64_t>(sizeof(int64_t) + lengths.size_bytes());
  for (const SampleLength& length : lengths) bytes += payload_bytes(length);
  return bytes;
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
  std::vector<int64_t> offsets{static_cast<int64_t>(shard_firsts.size() * sizeof(int64_t))};
  for (const auto& of_shard : rows_of_shard) {
    offsets.push_back(offsets.back() + section_bytes(lengths_of(samples, of_shard)));
  }
  file.write(bytes_of(std::span<const int64_t>(offsets)));
  for (const auto& of_shard : rows_of_shard) {
    const auto count = std::ssize(of_shard);
    const std::vector<SampleLength> lengths = lengths_of(samples, of_shard);
    const std::vector<std::byte> payload = encode_samples(samples, of_shard);
    file.write(bytes_of(std::span(&count, 1)));
    file.write(bytes_of(std::span<const SampleLength>(lengths)));
    file.write(bytes_of(std::span<const std::byte>(payload)));
  }
  file.commit();
}

/// The samples of a spill file that go to one shard.
SampleSet read_spill(const std::string& path, int64_t shard) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](void* to, int64_t size_bytes) {
    if (file.read(static_cast<char*>(to), size_bytes)) return;
    fail(ExitCode::kData, path, ": cannot be read (", std::strerror(errno),
         "); remove it and run the same command again");
  };
  std::array<int64_t, 2> range{};
  file.seekg(shard * static_cast<int64_t>(sizeof(int64_t)));
  read(range.data(), sizeof(range));
  file.seekg(range[0]);
  int64_t count = 0;
  read(&count, sizeof(count));
  const int64_t most = (range[1] - range[0]) / static_cast<int64_t>(sizeof(SampleLength));
  if (count < 0 || count > most) {
    fail(ExitCode::kData, path, ": ", count, " sequences in a section of ", range[1] - range[0],
         " bytes; remove it and run the same command again");
  }
  std::vector<SampleLength> lengths(static_cast<size_t>(count));
  read(lengths.data(), count * static_cast<int64_t>(sizeof(SampleLength)));
  const int64_t used =
      static_cast<int64_t>(sizeof(count)) + count * static_cast<int64_t>(sizeof(SampleLength));
  std::vector<std::byte> payload(static_cast<size_t>(range[1] - range[0] - used));
  read(payload.data(), std::ssize(payload));
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
