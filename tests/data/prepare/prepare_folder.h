#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/files/hashing.h"
#include "data/format/shard_reader.h"
#include "data/prepare/pairs_and_masks.h"
#include "data/prepare/prepare.h"
#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "tests/data/example_data.h"
#include "tests/data/prepare/golden_samples.h"
#include "tests/data/same_samples.h"

namespace bertha {

/// The golden texts, five files with the vocabulary and an output folder to prepare them into.
class PrepareFolder {
 public:
  PrepareFolder() {
    std::filesystem::create_directory(folder_.path("text"));
    const std::string many = bytes_of(golden_path("many_documents.txt"));
    const std::string single = bytes_of(golden_path("single_document.txt"));
    write_bytes(text(0), many);
    write_bytes(text(1), single);
    write_bytes(text(2), bytes_of(golden_path("one_sentence_documents.txt")));
    write_bytes(text(3), single + "\n" + many);
    write_bytes(text(4), many.substr(many.find("\n\n")));
  }

  static constexpr int64_t kTexts = 5;

  std::string text(int64_t index) const { return folder_.path(concat("text/part-0000", index)); }
  std::string output(const std::string& name) const { return folder_.path("out/" + name); }
  std::string output() const { return folder_.path("out"); }

  PrepareOptions options() const {
    return {.inputs = {folder_.path("text")},
            .vocab_file = golden_path("vocab.txt"),
            .output_dir = output(),
            .generator = {.duplication = 2, .max_seq_tokens = 64, .max_masked_per_seq = 10},
            .workers = 1};
  }

  SampleLimits limits() const {
    return {.max_seq_tokens = 64,
            .max_masked_per_seq = 10,
            .vocab_size = Vocabulary::load(golden_path("vocab.txt")).size()};
  }

  /// What the generator gives for the texts, one after the other.
  SampleSet generated() const {
    const Vocabulary vocabulary = Vocabulary::load(golden_path("vocab.txt"));
    WordPieceTokenizer tokenizer(vocabulary);
    SampleSet all;
    for (int64_t index = 0; index < kTexts; ++index) {
      const GeneratedSamples part =
          generate_samples(read_documents(text(index), tokenizer, [](int64_t) {}), vocabulary,
                           {.duplication = 2, .max_seq_tokens = 64, .max_masked_per_seq = 10});
      for (int64_t i = 0; i < part.size(); ++i) {
        SampleView sample = part.at(i);
        sample.id = all.size();
        all.append(sample);
      }
    }
    return all;
  }

  /// All samples of the shards in the manifest, in order.
  SampleSet prepared(const Manifest& manifest) const {
    SampleSet all;
    for (const ManifestShard& shard : manifest.shards) {
      const SampleSet samples = read_shard(output(shard.name), all.size(), limits());
      for (int64_t i = 0; i < samples.size(); ++i) all.append(samples[i]);
    }
    return all;
  }

  /// The files in the output folder and its work folder, with the MD5 of their bytes.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    if (!std::filesystem::exists(output())) return found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(output())) {
      if (!entry.is_regular_file()) continue;
      const auto name = std::filesystem::relative(entry.path(), output()).string();
      found[name] = md5_of_text(bytes_of(entry.path().string()));
    }
    return found;
  }

 private:
  TempFolder folder_;
};

/// The message of the error that the preparation ends with.
inline std::string message_of_preparing(const PrepareOptions& options,
                                        ExitCode code = ExitCode::kData) {
  return error_of([&] { prepare_data(options, {}); }, code);
}

}  // namespace bertha
