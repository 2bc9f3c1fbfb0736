#include <cstring>

#include "data/convert/tf_example.h"
#include "data/convert/tfrecord_file.h"
#include "data/files/byte_file.h"
#include "data/files/text_file.h"
#include "data/files/tokenizer_settings.h"
#include "data/format/checksum_list.h"
#include "data/format/manifest.h"
#include "data/pipeline/synthetic_steps.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/source_reader.h"
#include "data/prepare/vocabulary.h"
#include "tests/data/convert/example_records.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/source_dir.h"

namespace bertha::fuzz {
namespace {

constexpr SampleLimits kLimits{.max_seq_tokens = 16, .max_masked_per_seq = 3, .vocab_size = 2000};

/// --- TFRecord and Example ---

void read_records(const std::string& bytes) {
  TfRecordFile file(scratch_file("records", bytes));
  ExampleDecoder decoder(kLimits, [&](const std::string& what) { file.wrong_record(what); });
  while (!file.at_end()) use(std::ssize(decoder.decode(file.next()).token_ids));
  file.seek(0, 0);
  while (!file.at_end()) file.skip();
}

std::vector<std::string> record_seeds() {
  return {records_of(example_samples(2, 1, kLimits), kLimits),
          records_of(example_samples(1, 2, kLimits), kLimits) + record("")};
}

std::string repair_records(const std::string& bytes) {
  std::string repaired = bytes;
  for (size_t at = 0; at + 16 <= repaired.size();) {
    const auto crc_of = [&](size_t begin, size_t count) {
      return masked_crc32c(std::as_bytes(std::span(repaired)).subspan(begin, count));
    };
    auto length = load<uint64_t>(reinterpret_cast<const std::byte*>(repaired.data()) + at);
    const size_t room = repaired.size() - at - 16;
    if (length > room) length = room;  // the last record ends with the file
    std::memcpy(repaired.data() + at, &length, 8);
    const uint32_t length_crc = crc_of(at, 8);
    std::memcpy(repaired.data() + at + 8, &length_crc, 4);
    const uint32_t crc = crc_of(at + 12, length);
    std::memcpy(repaired.data() + at + 12 + length, &crc, 4);
    at += 16 + length;
  }
  return repaired;
}

void read_example(const std::string& bytes) {
  ExampleDecoder decoder(kLimits, [](const std::string& what) {
    fail(ExitCode::kData, scratch_path("records"), ": ", what);
  });
  use(std::ssize(decoder.decode(std::as_bytes(std::span(bytes))).masked_ids));
}

std::vector<std::string> example_seeds() {
  const SampleSet samples = example_samples(2, 1, kLimits);
  return {example_of(features_of(samples[0], kLimits)),
          example_of(features_of(samples[1], kLimits))};
}

/// --- manifest.json and .chk ---

void read_manifest_bytes(const std::string& bytes) {
  const Manifest manifest = read_manifest(scratch_file("manifest.json", bytes));
  use(manifest.num_samples());
  // What was read can be written, and read again.
  write_manifest(scratch_path("again.json"), manifest);
  use(read_manifest(scratch_path("again.json")).num_samples());
}

std::vector<std::string> manifest_seeds() {
  Manifest manifest{.tool_version = "1.0.0",
                    .unicode_version = "11.0.0",
                    .seed = 7,
                    .limits = kLimits,
                    .options = {{"dupe_factor", "5"}, {"masked_lm_prob", "0.15"}},
                    .counts = {{"documents", 3}, {"samples", 12}},
                    .sources = {{.path = "a.txt", .bytes = 9, .sha256 = std::string(64, 'a')}},
                    .token_length_histogram = {0, 0, 0, 5, 7},
                    .shards = {{.name = "part_00000_of_00001.hdf5",
                                .samples = 12,
                                .bytes = 4096,
                                .xxh3 = std::string(32, '0'),
                                .md5_of_lists = std::string(32, 'f')}}};
  const std::string path = scratch_path("manifest.json");
  write_manifest(path, manifest);
  return {bytes_of(path)};
}

void read_checksums(const std::string& bytes) {
  const ChecksumList list = read_checksum_list(scratch_file("list.chk", bytes));
  const std::vector<ManifestShard> shards = {
      {.name = "part_00000_of_00002.hdf5", .xxh3 = "", .md5_of_lists = std::string(32, 'f')}};
  for (const auto& difference : compare_checksums(list, shards)) use(std::ssize(difference.text()));
}

std::vector<std::string> checksum_seeds() {
  return {"part_00000_of_00002.hdf5\t" + std::string(32, 'f') + "\npart_00001_of_00002\t" +
          std::string(32, '0') + "\r\n\n"};
}

/// --- texts ---

void read_vocabulary(const std::string& bytes) {
  const Vocabulary vocabulary = Vocabulary::load(scratch_file("vocab.txt", bytes));
  use(vocabulary.find_start("the") + vocabulary.find_continuation("s"));
}

std::vector<std::string> vocabulary_seeds() {
  return golden_files("prepare", "vocab.txt", 1 << 16);
}

void read_tokenizer(const std::string& bytes) {
  use(read_tokenizer_settings(scratch_file("tokenizer_config.json", bytes)).do_lower_case ? 1 : 0);
}

std::vector<std::string> tokenizer_seeds() {
  return {R"({"do_lower_case": false, "strip_accents": null, "tokenize_chinese_chars": true})"};
}

void read_text(const std::string& bytes) {
  static const Vocabulary vocabulary =
      Vocabulary::load(std::string(kSourceDir) + "/tests/golden/prepare/vocab.txt");
  const std::string path = scratch_file("part.txt", bytes);
  WordPieceTokenizer tokenizer(vocabulary);
  use(read_documents(path, tokenizer, {}).num_tokens());
}

void read_sources(const std::string& bytes) {
  const SourceForm form = static_cast<SourceForm>(bytes.size() % 4);
  const SourceFile source{.path = scratch_file("records", bytes), .form = form};
  int64_t sum = 0;
  read_source(source, DocumentForm::kLine, "text",
              {.line = [&](std::string_view line) { sum += std::ssize(line); },
               .end_document = [&] { ++sum; }});
  use(sum);
}

std::vector<std::string> source_seeds() {
  return {"{\"text\": \"a \\u00e9\\n\\nb\"}\n{\"text\": [\"c\", \"d\"]}\n{\"text\": null}",
          "id,text\r\n1,\"a, \"\"b\"\"\r\n\r\nc\"\r\n2,d\r\n",
          "text\tid\na b\t1\n\"c\t2\n",
          "\x1f\x8b\x08",
          "\xfd"
          "7zXZ",
          "\x28\xb5\x2f\xfd"};
}

std::vector<std::string> text_seeds() {
  return {golden_files("prepare", "one_sentence_documents.txt", 1 << 16)[0],
          "Dr. No\xc2\xad's caf\xc3\xa9\xcc\x81 \xe4\xb8\xad\xe6\x96\x87 (A.I.) \"ended.\" "
          "\xf0\x9f\x98\x80 \xd0\x99 \xef\xbc\xa1\r\n\nNext, 3.14 e.g. this!\n"};
}

void read_histogram(const std::string& bytes) {
  const std::string path = scratch_file("lengths.txt", bytes);
  SyntheticSteps steps{.lengths = parse_length_histogram(read_text_file(path), path),
                       .max_seq_tokens = 64,
                       .global_batch_seqs = 8,
                       .num_ranks = 2};
  use(plan_synthetic_step(steps, 1).num_tokens_global);
}

std::vector<std::string> histogram_seeds() {
  return {"# lengths\n0\n0\n5\n7\n\n9223372036854775807\n", "3 5\n64 12\n# end\n512 1\n"};
}

constexpr FuzzTarget kTargets[] = {
    {.name = "tfrecord", .read = read_records, .seeds = record_seeds, .repair = repair_records},
    {.name = "example", .read = read_example, .seeds = example_seeds},
    {.name = "manifest", .read = read_manifest_bytes, .seeds = manifest_seeds},
    {.name = "chk", .read = read_checksums, .seeds = checksum_seeds},
    {.name = "vocabulary", .read = read_vocabulary, .seeds = vocabulary_seeds},
    {.name = "tokenizer_config", .read = read_tokenizer, .seeds = tokenizer_seeds},
    {.name = "text", .read = read_text, .seeds = text_seeds},
    {.name = "sources", .read = read_sources, .seeds = source_seeds},
    {.name = "histogram", .read = read_histogram, .seeds = histogram_seeds},
};

}  // namespace

std::span<const FuzzTarget> data_targets() { return kTargets; }

}  // namespace bertha::fuzz
