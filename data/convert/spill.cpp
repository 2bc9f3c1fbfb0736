#include "data/convert/spill.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string_view>

#include "data/files/new_file.h"
#include "data/format/payload.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// A file is: offsets of the sections, and the end [S + 1] int64; sections. A section is: samples n,
// their lengths [n] SampleLength, their payload. In the byte order of this machine: no file
// outlives the program that wants it.

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

}  // namespace

void write_spill(const std::string& path, const SampleSet& samples,
                 std::span<const int64_t> shard_firsts) {
  std::vector<int64_t> rows(static_cast<size_t>(samples.size()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const auto place = [&](int64_t row) { return samples.ids[static_cast<size_t>(row)]; };
  std::sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) { return place(a) < place(b); });
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

}  // namespace bertha
