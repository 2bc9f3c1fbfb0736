#include "data/convert/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "data/format/verify.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr SampleLimits kLimits{.max_seq_tokens = 64, .max_masked_per_seq = 10, .vocab_size = 500};

/// A source of 3 shards and 2500 sequences.
class Pack : public testing::Test {
 protected:
  Pack() {
    options_.source.path = folder_.path("from");
    options_.source.limits = kLimits;
    options_.source.num_threads = 2;
    options_.output_dir = folder_.path("to");
    fs::create_directory(options_.source.path);
    for (const int s : {0, 1, 2}) {
      const SampleSet samples =
          example_samples(s == 2 ? 500 : 1000, static_cast<uint64_t>(s), kLimits);
      write_shard(folder_.path(concat("from/part_", s, ".hdf5")),
                  s == 1 ? ShardLayout::kFixedLength : ShardLayout::kVariableLength, samples,
                  kLimits);
      for (int64_t i = 0; i < samples.size(); ++i) source_.push_back(text_of(samples[i]));
    }
    std::sort(source_.begin(), source_.end());
  }

  static std::string text_of(const SampleView& sample) {
    std::string text;
    for (const TokenId id : sample.token_ids) text += concat(id, ' ');
    for (const int8_t segment : sample.segment_ids) text += static_cast<char>('0' + segment);
    for (const int16_t position : sample.masked_positions) text += concat(' ', position);
    for (const TokenId label : sample.masked_ids) text += concat(' ', label);
    return concat(text, " next ", static_cast<int>(sample.next_sentence_label));
  }

  /// What all sequences of the packs are, sorted.
  std::vector<std::string> found() const {
    std::vector<std::string> texts;
    for (const std::string& path : list_shards(options_.output_dir)) {
      const SampleSet samples = read_shard(path, 0, kLimits);
      for (int64_t i = 0; i < samples.size(); ++i) texts.push_back(text_of(samples[i]));
    }
    std::sort(texts.begin(), texts.end());
    return texts;
  }

  TempFolder folder_;
  PackOptions options_;
  std::vector<std::string> source_;
};

TEST_F(Pack, PacksHoldTheSequencesOfTheSourceOnceEach) {
  options_.source.memory_bytes = 1;  // as little as it goes: three parts
  options_.num_shards = 4;
  const PackResult result = pack_data(options_, {});
  EXPECT_EQ(found(), source_);
  EXPECT_EQ(result.manifest.num_samples(), 2500);
  EXPECT_EQ(result.manifest.counts.at("rows"), result.figures.num_packs);
  EXPECT_LT(result.figures.num_packs, 2000);
  EXPECT_EQ(result.manifest.shards.size(), 4u);
  EXPECT_TRUE(verify_data(options_.output_dir).ok());
  EXPECT_FALSE(fs::exists(folder_.path("to/work")));
  for (const ManifestShard& shard : result.manifest.shards) {
    const std::string path = folder_.path("to/" + shard.name);
    EXPECT_EQ(inspect_shard(path).layout, ShardLayout::kPacked);
    EXPECT_NEAR(static_cast<double>(inspect_shard(path).num_rows),
                static_cast<double>(result.figures.num_packs) / 4, 1.0);
    const auto offsets =
        read_shard_reporting(path, 0, kLimits, stop_at_violation(path)).row_offsets;
    for (size_t row = 0; row + 1 < offsets.size(); ++row) {
      EXPECT_LE(offsets[row + 1] - offsets[row], 3);
    }
  }
}

TEST_F(Pack, TheOutcomeDependsOnTheSeedAndNotOnThreadsOrMemory) {
  const Manifest one = pack_data(options_, {}).manifest;
  options_.source.num_threads = 1;
  options_.source.memory_bytes = 1;
  options_.output_dir = folder_.path("again");
  const Manifest again = pack_data(options_, {}).manifest;
  options_.seed = 25;
  options_.output_dir = folder_.path("other");
  const Manifest other = pack_data(options_, {}).manifest;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again.shards[i].xxh3, one.shards[i].xxh3);
    EXPECT_NE(other.shards[i].xxh3, one.shards[i].xxh3);
  }
  EXPECT_EQ(found(), source_);
}

TEST_F(Pack, PacksAreMadeOfPacksToo) {
  pack_data(options_, {});
  options_.source.path = folder_.path("to");
  options_.output_dir = folder_.path("repacked");
  options_.max_seqs_per_pack = 2;
  EXPECT_EQ(pack_data(options_, {}).figures.num_seqs, 2500);
  EXPECT_EQ(found(), source_);
}

TEST_F(Pack, AStoppedRunGoesOnWhereItWas) {
  const Manifest want = pack_data(options_, {}).manifest;
  // As if it had been stopped before the last shard: its record and the manifest are missing.
  options_.output_dir = folder_.path("stopped");
  PackOptions first = options_;
  const auto stop = [](const std::string& phase, const std::string&, int64_t done, int64_t) {
    if (phase == "write" && done == 2) throw Error(ExitCode::kInternal, "stop");
  };
  first.source.num_threads = 1;
  EXPECT_THROW(pack_data(first, stop), Error);
  EXPECT_FALSE(fs::exists(folder_.path("stopped/manifest.json")));
  const PackResult result = pack_data(options_, {});
  EXPECT_EQ(result.shards_reused, 2);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(result.manifest.shards[i].xxh3, want.shards[i].xxh3);
  EXPECT_TRUE(pack_data(options_, {}).already_done);
}

TEST_F(Pack, WithoutAnOutputOnlyTheFiguresAreTold) {
  options_.output_dir.clear();
  options_.source.max_seqs = 1500;
  const PackResult result = pack_data(options_, {});
  EXPECT_EQ(result.figures.num_seqs, 1500);
  EXPECT_GT(result.figures.efficiency, 0.5);
  EXPECT_LE(result.figures.efficiency, 1.0);
}

TEST_F(Pack, ASequenceThatIsLongerThanAPackIsNamed) {
  options_.source.limits.max_seq_tokens = 63;
  EXPECT_THAT(error_of([&] { pack_data(options_, {}); }),
              AllOf(HasSubstr("part_"), HasSubstr("has 64 tokens, want 1 to 63")));
  options_.source.limits.max_seq_tokens = 64;
  options_.num_shards = 9999;
  EXPECT_THAT(error_of([&] { pack_data(options_, {}); }), HasSubstr("for each of 9999 shards"));
}

}  // namespace
}  // namespace bertha
