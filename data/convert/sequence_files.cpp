#include "data/convert/sequence_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "data/convert/tf_example.h"
#include "data/convert/tfrecord_file.h"
#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRecordsPerMark = 1024;

bool is_tfrecord_name(const fs::path& path) {
  if (path.extension() == ".tfrecord" || path.extension() == ".tfrecords") return true;
  const auto parts = numbered_name(path.filename().string());
  return parts && parts->of == "-of-" &&
         parts->after.empty();  // after any prefix, as in TensorFlow
}

/// HDF5 files are recognized by their first bytes, all other files are checked as TFRecord files by
/// their checksum.
SequenceFileKind kind_of(const std::string& path) {
  constexpr std::string_view kHdf5Signature = "\x89HDF\r\n\x1a\n";
  std::array<char, 8> start{};
  // A pipe must not be opened; its reader refuses it.
  if (fs::is_regular_file(path)) std::ifstream(path, std::ios::binary).read(start.data(), 8);
  if (std::string_view(start.data(), start.size()) == kHdf5Signature) {
    return SequenceFileKind::kShard;
  }
  const bool named_as_shard = fs::path(path).extension().string().starts_with(".hdf");
  return named_as_shard ? SequenceFileKind::kShard : SequenceFileKind::kTfRecord;
}

SequenceFile inspect(const std::string& path) {
  if (!fs::is_regular_file(path)) fail(ExitCode::kData, path, ": no such file");
  SequenceFile file{
      .path = path, .kind = kind_of(path), .bytes = static_cast<int64_t>(fs::file_size(path))};
  if (file.kind == SequenceFileKind::kShard) {
    ShardRows rows(path);
    file.num_seqs = rows.num_rows();
    if (rows.layout() == ShardLayout::kPacked) {
      file.marks = rows.packed_row_offsets();
      file.num_seqs = file.marks.back();
    }
    return file;
  }
  TfRecordFile records(path);
  while (!records.at_end()) {
    if (records.record() % kRecordsPerMark == 0) file.marks.push_back(records.offset_bytes());
    records.skip();
  }
  file.num_seqs = records.record();
  return file;
}

void check_unchanged(const SequenceFile& file) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(file.path, error));
  if (!error && bytes == file.bytes) return;
  fail(ExitCode::kData, file.path, ": ", error ? error.message() : concat(bytes, " bytes"),
       ", but ", file.bytes,
       " bytes at first: the file was changed while it was read; run the "
       "command again");
}

using Take = std::function<void(const SampleView&)>;

void give(SampleView sample, int64_t id, const Take& take) {
  sample.id = id;
  take(sample);
}

/// Sequences [first, end) of one shard, counted in it.
void read_from_shard(const SequenceFile& file, int64_t first, int64_t end,
                     const SampleLimits& limits, const Take& take) {
  ShardRows rows(file.path);
  const bool packed = !file.marks.empty();
  const auto first_of_row = [&](int64_t row) {
    return packed ? file.marks[static_cast<size_t>(row)] : row;
  };
  int64_t row = first;
  if (packed) {
    row = std::ranges::upper_bound(file.marks, first) - file.marks.begin() - 1;
  }
  while (row < rows.num_rows() && first_of_row(row) < end) {
    const int64_t num_rows = std::min(
        {kRowsPerBlock, rows.num_rows() - row, packed ? kRowsPerBlock : end - first_of_row(row)});
    const SampleSet samples =
        rows.read(row, num_rows, limits, stop_at_violation(file.path)).samples;
    for (int64_t i = 0; i < samples.size(); ++i) {
      const int64_t place = first_of_row(row) + i;
      if (place >= first && place < end) give(samples[i], file.first_seq + place, take);
    }
    row += num_rows;
  }
}

void read_from_records(const SequenceFile& file, int64_t first, int64_t end,
                       const SampleLimits& limits, const Take& take) {
  TfRecordFile records(file.path);
  ExampleDecoder decoder(limits, [&](const std::string& what) { records.wrong_record(what); });
  const int64_t mark = first / kRecordsPerMark;
  records.seek(mark * kRecordsPerMark, file.marks.at(static_cast<size_t>(mark)));
  while (records.record() < first) records.skip();
  while (records.record() < end) {
    const int64_t record = records.record();
    const SampleView sample = decoder.decode(records.next());
    check_sample(sample, record, limits, [&](const Violation& found) {
      records.wrong_record(concat("feature ", found.dataset, ", ", found.what));
    });
    give(sample, file.first_seq + record, take);
  }
}

void refuse_mixed_formats(const std::string& folder, const std::string& records) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!is_shard_name(name) && kind_of(entry.path()) != SequenceFileKind::kShard) continue;
    fail(ExitCode::kData, folder, ": contains HDF5 files (", name, ") and TFRecord files (",
         fs::path(records).filename().string(), "); put them into separate folders");
  }
}

}  // namespace

std::vector<std::string> list_sequence_files(const std::string& path, MissingFiles missing) {
  std::vector<std::string> paths;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.is_regular_file() && is_tfrecord_name(entry.path())) {
        paths.push_back(entry.path().string());
      }
    }
    std::ranges::sort(paths);
  }
  if (paths.empty()) {
    paths = list_shards(path);
  } else {
    refuse_mixed_formats(path, paths.front());
  }
  if (missing == MissingFiles::kAccept || !fs::is_directory(path)) return paths;
  std::vector<std::string> names;
  for (const std::string& one : paths) names.push_back(fs::path(one).filename().string());
  if (const auto gone = missing_of_numbered(names); !gone.empty()) {
    fail(ExitCode::kData, path, ": ", gone.size(), " of ", gone.size() + names.size(),
         " files are missing: ", first_names(gone),
         "; copy them, or accept the existing part with --partial");
  }
  return paths;
}

SequenceFiles inspect_sequence_files(const std::vector<std::string>& paths, int64_t most_seqs,
                                     int64_t num_threads, const ItemProgress& progress) {
  SequenceFiles all;
  if (most_seqs > 0) {
    // One after the other, since most of a large set is not looked at.
    for (size_t i = 0; i < paths.size() && all.num_seqs < most_seqs; ++i) {
      all.files.push_back(inspect(paths[i]));
      all.num_seqs += all.files.back().num_seqs;
    }
  } else {
    all.files.resize(paths.size());
    for_each_parallel(
        std::ssize(paths), num_threads,
        [&](int64_t i) {
          all.files[static_cast<size_t>(i)] = inspect(paths[static_cast<size_t>(i)]);
        },
        progress);
  }
  all.num_seqs = 0;
  for (SequenceFile& file : all.files) {
    file.first_seq = all.num_seqs;
    if (most_seqs > 0) file.num_seqs = std::min(file.num_seqs, most_seqs - all.num_seqs);
    all.num_seqs += file.num_seqs;
  }
  if (all.num_seqs == 0)
    fail(ExitCode::kData, paths.front(), ": contains no sequence; give another data set");
  return all;
}

void read_sequences(const SequenceFiles& files, int64_t first, int64_t count,
                    const SampleLimits& limits, const Take& take) {
  for (const SequenceFile& file : files.files) {
    const int64_t begin = std::max<int64_t>(first - file.first_seq, 0);
    const int64_t end = std::min(first + count - file.first_seq, file.num_seqs);
    if (begin >= end) continue;
    check_unchanged(file);
    if (file.kind == SequenceFileKind::kShard) {
      read_from_shard(file, begin, end, limits, take);
    } else {
      read_from_records(file, begin, end, limits, take);
    }
  }
}

std::vector<uint16_t> read_token_counts(const SequenceFiles& files, const SampleLimits& limits,
                                        int64_t num_threads, const ItemProgress& progress) {
  std::vector<uint16_t> counts(static_cast<size_t>(files.num_seqs));
  const auto read = [&](int64_t index) {
    const SequenceFile& file = files.files[static_cast<size_t>(index)];
    int64_t next = file.first_seq;
    const auto put = [&](int64_t tokens) {
      if (tokens < 1 || tokens > limits.max_seq_tokens) {
        fail(ExitCode::kData, file.path, ": sequence ", next - file.first_seq, " has ", tokens,
             " tokens, want 1 to ", limits.max_seq_tokens);
      }
      counts[static_cast<size_t>(next++)] = static_cast<uint16_t>(tokens);
    };
    if (file.kind == SequenceFileKind::kShard) {
      std::vector<int64_t> of_file = ShardRows(file.path).token_counts();
      of_file.resize(static_cast<size_t>(file.num_seqs));
      for (const int64_t tokens : of_file) put(tokens);
    } else {
      read_sequences(files, file.first_seq, file.num_seqs, limits,
                     [&](const SampleView& sample) { put(std::ssize(sample.token_ids)); });
    }
  };
  for_each_parallel(std::ssize(files.files), num_threads, read, progress);
  return counts;
}

}  // namespace bertha
