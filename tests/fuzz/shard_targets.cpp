#include <algorithm>

#include "data/files/byte_file.h"
#include "data/format/global_heap.h"
#include "data/format/hdf5_output.h"
#include "data/format/shard_reader.h"
#include "tests/data/example_data.h"
#include "tests/fuzz/fuzz_target.h"

namespace bertha::fuzz {
namespace {

constexpr SampleLimits kLimits{.max_seq_tokens = 24, .max_masked_per_seq = 4, .vocab_size = 2000};

std::string bytes_of_numbers(std::initializer_list<int> numbers) {
  std::string bytes;
  for (const int number : numbers) bytes += static_cast<char>(number);
  return bytes;
}

/// --- a whole shard ---

int64_t content_of(const SampleSet& samples) {
  int64_t sum = 0;
  for (int64_t i = 0; i < samples.size(); ++i) {
    const SampleView sample = samples[i];
    for (const TokenId id : sample.token_ids) sum += id;
    for (const int8_t segment : sample.segment_ids) sum += segment;
    for (const int16_t position : sample.masked_positions) sum += position;
    for (const TokenId id : sample.masked_ids) sum += id;
  }
  return sum;
}

/// Opened once: most of the time goes there.
void read_shard_bytes(const std::string& bytes) {
  ShardRows rows(scratch_file("shard.hdf5", bytes));
  use(content_of(rows.read(0, rows.num_rows(), {}, [](const Violation&) {}).samples));
  for (const int64_t tokens : rows.token_counts()) use(tokens);
  if (rows.layout() == ShardLayout::kPacked) use(rows.packed_row_offsets().back());
}

/// Shards of other programs.
std::vector<std::string> foreign_shard_seeds() {
  std::vector<std::string> seeds;
  for (const char* folder : {".", "h5py_forms", "h5py_refused"}) {
    for (auto& file : golden_files(folder, ".hdf5", 18'000)) seeds.push_back(std::move(file));
  }
  return seeds;
}

template <class T>
void copy_dataset(const DatasetFormat& format, Hdf5Input& from, Hdf5Output& to) {
  constexpr int64_t kRowsPerChunk = 8;
  const std::vector<int64_t> extents = from.describe(format.name).extents;
  const int64_t columns = extents.size() == 2 ? extents[1] : 0;
  to.create(format.name, format.element, format.rows, columns, kRowsPerChunk);
  if (format.rows == Hdf5Rows::kRagged) {
    const auto rows = from.read_lists<T>(format.name, 0, extents[0]);
    to.append_lists(format.name, rows.values, rows.offsets);
  } else {
    std::vector<T> values(static_cast<size_t>(extents[0] * std::max<int64_t>(columns, 1)));
    from.read(format.name, 0, extents[0], values);
    to.append(format.name, extents[0], values);
  }
}

/// The same shard with small chunks. The writer's make a file that mutations would cut.
std::string with_small_chunks(const std::string& path, ShardLayout layout) {
  Hdf5Input from(path);
  Hdf5Output to(path);
  for (const DatasetFormat& format : datasets_of(layout)) {
    const bool bytes = format.element == Hdf5Element::kI8;
    (bytes ? copy_dataset<int8_t> : copy_dataset<int16_t>)(format, from, to);
  }
  return std::string(to.close());
}

std::vector<std::string> own_shard_seeds() {
  std::vector<std::string> seeds;
  for (const auto layout :
       {ShardLayout::kVariableLength, ShardLayout::kFixedLength, ShardLayout::kPacked}) {
    const std::string path = scratch_path("seed.hdf5");
    write_shard(path, layout, example_samples(7, 1, kLimits), kLimits);
    seeds.push_back(with_small_chunks(path, layout));
  }
  return seeds;
}

/// --- lists in global heaps: a byte with the number of rows, their descriptors, the file ---

void read_heap_bytes(const std::string& bytes) {
  const int64_t asked = bytes.empty() ? 0 : static_cast<unsigned char>(bytes[0]);
  const int64_t num_rows = std::min(asked, (std::ssize(bytes) - 1) / kRowDescriptorBytes);
  if (num_rows < 1) return;
  const auto descriptor_bytes = static_cast<size_t>(num_rows * kRowDescriptorBytes);
  const auto descriptors = std::as_bytes(std::span(bytes)).subspan(1, descriptor_bytes);
  const std::string path =
      scratch_file("heap", std::string_view(bytes).substr(1 + descriptor_bytes));
  GlobalHeapReader heap(path, asked % 2 == 0 ? 0 : 512);  // without and with a user block
  for (const int64_t length : heap.read_lengths("input_ids", descriptors)) use(length);
  use(std::ssize(heap.read_rows<int8_t, int8_t>("input_ids", descriptors, 0, num_rows / 2).values));
  use(std::ssize(heap.read_rows<TokenId, int16_t>("input_ids", descriptors, num_rows / 2,
                                                  num_rows - num_rows / 2)
                     .values));
}

std::vector<std::string> heap_seeds() {
  const auto text = [](const auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::vector<std::string> seeds;
  for (const int64_t user_block_bytes : {0, 512}) {
    constexpr int64_t kRows = 6;
    std::string descriptors;
    std::string file(static_cast<size_t>(user_block_bytes), '\0');
    for (int64_t collection = 0; collection < 2; ++collection) {
      const auto begin = file.size();
      file += "GCOL" + text(uint32_t{1}) + text(int64_t{4096});
      for (uint16_t index = 1; index <= kRows / 2; ++index) {
        const bool wide = collection == 1;  // the second half of the rows is of int16
        const uint32_t length = 8u * index;
        const int64_t size_bytes = (wide ? 2 : 1) * static_cast<int64_t>(length);
        descriptors += text(length) + text(4096 * collection) + text(uint32_t{index});
        file += text(index) + text(uint16_t{1}) + text(uint32_t{0}) + text(size_bytes) +
                std::string(static_cast<size_t>(size_bytes), '\7');
      }
      file.resize(begin + 4096, '\0');
    }
    seeds.push_back(static_cast<char>(kRows + (user_block_bytes > 0 ? 1 : 0)) + descriptors + file);
  }
  return seeds;
}

/// --- packs: a byte with their number, then for each list of each pack its length and elements ---

struct ByteSource {
  const std::string& bytes;
  size_t at = 0;

  unsigned char next() { return at < bytes.size() ? static_cast<unsigned char>(bytes[at++]) : 0; }
  template <class T>
  void append_row(RaggedRows<T>& rows) {
    const int64_t length = next() % 64;
    for (int64_t i = 0; i < length; ++i) {
      const int value = next();
      rows.values.push_back(static_cast<T>(value < 192 ? value : (value - 224) * 1024));
    }
    rows.offsets.push_back(std::ssize(rows.values));
  }
};

PackedRows packs_in(const std::string& bytes) {
  PackedRows rows;
  ByteSource source{bytes};
  for (int64_t left = source.next() % 8; left > 0; --left) {
    source.append_row(rows.tokens);
    source.append_row(rows.segments);
    source.append_row(rows.seq_tokens);
    source.append_row(rows.positions);
    source.append_row(rows.labels);
    source.append_row(rows.seq_masked);
    source.append_row(rows.next);
  }
  return rows;
}

void read_packs(const std::string& bytes) {
  for (const bool stop : {false, true}) {
    SampleSet samples;
    const ViolationReport report =
        stop ? stop_at_violation(scratch_path("packs")) : [](const Violation&) {};
    const auto offsets = unpack_rows(packs_in(bytes), kLimits.max_seq_tokens, report, samples);
    for (int64_t i = 0; i < samples.size(); ++i) check_sample(samples[i], i, kLimits, report);
    use(content_of(samples) + offsets.back());
  }
}

std::vector<std::string> pack_seeds() {
  const auto one =
      bytes_of_numbers({5, 9, 9, 9, 9, 9, 5, 0, 0, 0, 1, 1, 1, 5, 1, 2, 1, 8, 1, 1, 1, 0});
  const auto two = bytes_of_numbers({9, 7, 7, 7, 7, 7, 7, 7, 7, 7,  // tokens
                                     9, 0, 0, 0, 1, 1, 0, 0, 1, 1,  // segments
                                     2, 5, 4, 2, 1, 6, 2, 8, 8, 2, 1, 1, 2, 0, 1});
  return {bytes_of_numbers({1}) + one, bytes_of_numbers({2}) + one + two};
}

/// --- h5py's LZF ---

void read_lzf(const std::string& bytes) {
  std::vector<std::byte> out(bytes.empty() ? 0 : size_t{8} * static_cast<unsigned char>(bytes[0]));
  const auto stream = std::as_bytes(std::span(bytes)).subspan(bytes.empty() ? 0 : 1);
  use(static_cast<int64_t>(lzf_decode(stream, out)));
}

std::vector<std::string> lzf_seeds() {
  // Eight letters as they are, then a short and a long reference to them.
  return {bytes_of_numbers({32, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0x60, 7, 0xe0, 16, 7}),
          bytes_of_numbers({1, 3, 1, 2, 3, 4})};
}

constexpr FuzzTarget kTargets[] = {
    {.name = "own_shard", .read = read_shard_bytes, .seeds = own_shard_seeds},
    {.name = "foreign_shard", .read = read_shard_bytes, .seeds = foreign_shard_seeds},
    {.name = "global_heap", .read = read_heap_bytes, .seeds = heap_seeds},
    {.name = "packed_rows", .read = read_packs, .seeds = pack_seeds},
    {.name = "lzf", .read = read_lzf, .seeds = lzf_seeds},
};

}  // namespace

std::span<const FuzzTarget> shard_targets() { return kTargets; }

}  // namespace bertha::fuzz
