#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "data/files/hashing.h"
#include "data/format/shard_names.h"
#include "data/format/stats.h"
#include "data/format/verify.h"
#include "data/prepare/prepare.h"
#include "data/prepare/source_files.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/prepare/prepare_folder.h"

namespace bertha {
namespace {

using ::testing::Ge;
using ::testing::Le;

/// The golden documents, a JSON object a line.
std::string json_lines() {
  std::string lines;
  std::string document;
  std::istringstream text(bytes_of(golden_path("many_documents.txt")));
  const auto end_document = [&] {
    if (!document.empty()) lines += nlohmann::json({{"text", document}}).dump() + "\n";
    document.clear();
  };
  for (std::string line; std::getline(text, line);) {
    line.empty() ? end_document() : void(document += line + "\n");
  }
  end_document();
  return lines;
}

class PrepareRecordsTest : public ::testing::Test {
 protected:
  PrepareRecordsTest() {
    write_bytes(folder_.path("a.jsonl"), json_lines());
    options.inputs = {folder_.path("a.jsonl")};
    options.output_dir = folder_.path("out");
  }
  std::string md5_of(const Manifest& manifest) { return manifest.shards.at(0).md5_of_lists; }
  /// The files of the output folder, with the MD5 of their bytes.
  std::map<std::string, std::string> files() {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path("out"))) {
      if (!entry.is_regular_file()) continue;
      found[std::filesystem::relative(entry.path(), folder_.path("out")).string()] =
          md5_of_text(bytes_of(entry.path().string()));
    }
    return found;
  }

  TempFolder folder_;
  PrepareOptions options = PrepareFolder().options();
};

TEST_F(PrepareRecordsTest, RecordsAndPipesGiveTheSamplesOfTheirText) {
  const Manifest records = prepare_data(options, {}).manifest;
  EXPECT_EQ(records.options.at("field"), "text");
  EXPECT_EQ(records.options.at("segments"), "pairs");

  write_bytes(folder_.path("a.txt"), bytes_of(golden_path("many_documents.txt")));
  options.inputs = {folder_.path("a.txt")};
  options.documents = DocumentForm::kBlank;
  options.output_dir = folder_.path("text");
  const Manifest text = prepare_data(options, {}).manifest;
  EXPECT_EQ(md5_of(text), md5_of(records));

  const std::string lines = json_lines();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    for (size_t at = 0; at < lines.size();) {
      at +=
          static_cast<size_t>(std::max<ssize_t>(0, write(ends[1], &lines[at], lines.size() - at)));
    }
    close(ends[1]);
  });
  options.inputs = {concat("/dev/fd/", ends[0])};
  options.documents = DocumentForm::kAuto;
  options.output_dir = folder_.path("pipe");
  Manifest piped;
  EXPECT_NO_THROW(piped = prepare_data(options, {}).manifest);
  close(ends[0]);
  writer.join();
  ASSERT_EQ(piped.sources.size(), 1u);
  EXPECT_EQ(md5_of(piped), md5_of(records));
  EXPECT_EQ(piped.sources.at(0).sha256, records.sources.at(0).sha256);
  EXPECT_EQ(piped.sources.at(0).bytes, std::ssize(lines));
}

TEST_F(PrepareRecordsTest, HeldOutDocumentsBecomeAnEvaluationShardOfItsOwn) {
  options.hold_out = 0.2;
  const PrepareSummary summary = prepare_data(options, {});
  ASSERT_TRUE(summary.held_out);
  const int64_t documents = summary.manifest.counts.at("documents");
  const int64_t held_out = summary.held_out->counts.at("documents");
  EXPECT_EQ(summary.manifest.counts.at("held_out_documents"), held_out);
  EXPECT_THAT(held_out, AllOf(Ge((documents + held_out) / 10), Le((documents + held_out) / 3)));
  EXPECT_EQ(summary.held_out->options.at("duplication"), "1");
  for (const std::string& folder : {options.output_dir, folder_.path("out/eval")}) {
    EXPECT_TRUE(verify_data(folder, {}, {}).ok()) << folder;
  }
  EXPECT_EQ(list_shards(options.output_dir).size(), 1u) << "not the evaluation shard";
  EXPECT_EQ(list_shards(folder_.path("out/eval")),
            std::vector{folder_.path("out/eval/part_eval.hdf5")});
  EXPECT_FALSE(summary.sample.empty());

  const auto made = files();
  EXPECT_EQ(made.size(), 1 + 2 + 3 + 2u) << "shard, its lists, the evaluation's, and a record";
  const PrepareSummary again = prepare_data(options, {});
  EXPECT_TRUE(again.already_done);
  EXPECT_EQ(again.held_out->counts, summary.held_out->counts);
  EXPECT_EQ(files(), made);
  // What is lost is made again.
  std::filesystem::remove(folder_.path("out/eval/part_eval.hdf5"));
  EXPECT_FALSE(prepare_data(options, {}).already_done);
  EXPECT_EQ(files(), made);
  options.hold_out = 0.1;
  EXPECT_THAT(message_of_preparing(options), HasSubstr("--hold-out = 0.2, but it is now 0.1"));
  EXPECT_EQ(files(), made);
}

TEST_F(PrepareRecordsTest, LargeTextIsCutIntoPartsWithSeedsOfTheirOwn) {
  std::string lines;
  const std::string few = json_lines();
  while (lines.size() < 2'500'000) lines += few;
  write_bytes(folder_.path("a.jsonl"), lines);
  options.part_mib = 1;
  options.generator.duplication = 1;
  const PrepareSummary summary = prepare_data(options, {});
  ASSERT_EQ(summary.manifest.shards.size(), 3u);
  EXPECT_EQ(summary.manifest.counts.at("text_files"), 1);
  const auto made = files();
  std::filesystem::remove(folder_.path("out/part_00001_of_00003.hdf5"));
  const PrepareSummary again = prepare_data(options, {});
  EXPECT_EQ(again.parts_reused, 2);
  EXPECT_EQ(files(), made);
  std::filesystem::remove_all(folder_.path("out"));
  options.workers = 3;
  prepare_data(options, {});
  EXPECT_EQ(files(), made);
}

TEST_F(PrepareRecordsTest, TokenIdsKeepTheirPlaces) {
  const std::string lines =
      id_vocabulary("cls=101,sep=102,pad=7,mask=103,unk=100", 3000, options.ids.emplace());
  options.vocab_file = folder_.write("vocab.txt", lines);
  options.generator.segments = Segments::kOne;
  options.generator.duplication = 1;
  options.generator.masked_fraction = 0;  // one a sample
  write_bytes(folder_.path("a.jsonl"), "[200, 0, 2999]\n[[5, 6], [100, 8]]\n");
  const Manifest manifest = prepare_data(options, {}).manifest;
  EXPECT_EQ(manifest.options.at("text_form"), "ids");
  const SampleSet samples =
      read_shard(folder_.path("out/part_00000_of_00001.hdf5"), 0, manifest.limits);
  std::set<std::vector<TokenId>> found;
  for (int64_t i = 0; i < samples.size(); ++i) {
    std::vector<TokenId> ids(samples[i].token_ids.begin(), samples[i].token_ids.end());
    ids[static_cast<size_t>(samples[i].masked_positions[0])] = samples[i].masked_ids[0];
    found.insert(ids);
  }
  EXPECT_THAT(found, UnorderedElementsAre(std::vector<TokenId>{101, 200, 0, 2999, 102},
                                          std::vector<TokenId>{101, 5, 6, 100, 8, 102}));
}

TEST(IdVocabulary, WrongSpecialIdsAreNamed) {
  TokenIds ids;
  const std::string good = "cls=1,sep=2,pad=0,mask=3,unk=4";
  EXPECT_EQ(id_vocabulary(good, 7, ids), "[PAD]\n[CLS]\n[SEP]\n[MASK]\n[UNK]\n5\n6\n");
  EXPECT_THAT(ids.reserved, UnorderedElementsAre(0, 1, 2, 3));
  for (const std::string& list :
       {good + ",x=6", good + ",cls=6", std::string("cls=1,sep=1"), std::string("cls"),
        std::string("cls="), std::string("cls=7"), std::string("cls=1x"), std::string(",")}) {
    EXPECT_THAT(error_of([&] { id_vocabulary(list, 7, ids); }, ExitCode::kUsage),
                HasSubstr("--special-ids: found"))
        << list;
  }
  EXPECT_THAT(
      error_of([&] { id_vocabulary("cls=1,sep=2,pad=0,mask=3", 7, ids); }, ExitCode::kUsage),
      HasSubstr("unk is missing"));
}

TEST_F(PrepareRecordsTest, OneSegmentIsStatedAndSound) {
  options.generator.segments = Segments::kOne;
  const PrepareSummary summary = prepare_data(options, {});
  EXPECT_EQ(summary.manifest.options.at("segments"), "one");
  EXPECT_TRUE(verify_data(options.output_dir, {}, {}).ok());
  EXPECT_EQ(stats_of_data(options.output_dir, summary.manifest.limits).num_random_next, 0);
  EXPECT_EQ(summary.manifest.counts.at("dropped_tokens"), 0);
}

TEST_F(PrepareRecordsTest, ThePublishedFormIsFilesOfPlainTextWithoutOptionsOfOthers) {
  const auto is_published = [&](auto change) {
    PrepareOptions changed = PrepareFolder().options();
    changed.inputs = {golden_path("many_documents.txt")};
    change(changed);
    return is_published_form(changed, list_source_files(changed.inputs, MissingFiles::kRefuse));
  };
  EXPECT_TRUE(is_published([](auto&) {}));
  EXPECT_TRUE(is_published([](auto& o) { o.hold_out = kHoldOutByForm; }));
  EXPECT_TRUE(is_published([](auto& o) { o.part_mib = 0; }));
  EXPECT_FALSE(is_published([](auto& o) { o.hold_out = 0.01; }));
  EXPECT_FALSE(is_published([](auto& o) { o.part_mib = 1; }));
  EXPECT_FALSE(is_published([](auto& o) { o.text_form = TextForm::kProse; }));
  EXPECT_FALSE(is_published([](auto& o) { o.documents = DocumentForm::kLine; }));
  EXPECT_FALSE(is_published([](auto& o) { o.generator.segments = Segments::kOne; }));
  EXPECT_FALSE(is_published([&](auto& o) { o.inputs.push_back(folder_.path("a.jsonl")); }));
  options.published_form_only = true;
  EXPECT_THAT(message_of_preparing(options, ExitCode::kUsage),
              AllOf(HasSubstr("a.jsonl"), HasSubstr("--official")));
}

}  // namespace
}  // namespace bertha
