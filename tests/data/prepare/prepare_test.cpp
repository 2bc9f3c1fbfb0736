#include "data/prepare/prepare.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "data/files/hashing.h"
#include "data/format/checksum_list.h"
#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "data/prepare/source_files.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/prepare/prepare_folder.h"
#include "tests/support/captured_log.h"

namespace bertha {
namespace {

using ::testing::Ge;
using ::testing::Le;
using ::testing::Pair;

TEST(PrepareTest, EachTextBecomesTheShardThatItsGeneratorGives) {
  const PrepareFolder folder;
  for (const ShardLayout layout : {ShardLayout::kVariableLength, ShardLayout::kFixedLength}) {
    PrepareOptions options = folder.options();
    options.layout = layout;
    std::filesystem::remove_all(folder.output());
    const PrepareSummary summary = prepare_data(options, {});
    ASSERT_EQ(summary.manifest.shards.size(), 5u);
    EXPECT_EQ(summary.manifest.shards[1].name, "part_00001_of_00005.hdf5");
    EXPECT_EQ(inspect_shard(folder.output("part_00004_of_00005.hdf5")).layout, layout);
    expect_same_samples(folder.prepared(summary.manifest), folder.generated());
  }
}

TEST(PrepareTest, TheManifestCountsWhatIsLostOfTheText) {
  const TempFolder folder;
  write_bytes(folder.path("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
  std::filesystem::create_directories(folder.path("text/AA"));
  // A sentence of 300 tokens, a third of them unknown, alone in its file; and three documents.
  std::string line;
  for (int i = 0; i < 100; ++i) line += "a b c ";
  write_bytes(folder.path("text/part-0"), line + "\n");
  write_bytes(folder.path("text/part-1"), "a b\nb a\n\na a\nb b\n\na b\nb b\n");
  for (const char* name : {"eval.txt", "B.rtf", "notes.md", "AA/wiki_00", ".hidden.txt", "a.xml",
                           "b.parquet", "c.json"}) {
    write_bytes(folder.path(concat("text/", name)), "a b\n");
  }
  std::filesystem::create_symlink(folder.path("nowhere"), folder.path("text/part-2"));
  PrepareOptions options = PrepareFolder().options();
  options.inputs = {folder.path("text")};
  options.vocab_file = folder.path("vocab.txt");
  options.output_dir = folder.path("out");
  const CapturedLog log;
  prepare_data(options, {});
  std::map<std::string, int64_t> counts = read_manifest(folder.path("out/manifest.json")).counts;
  // Of 64 tokens two segments share 61; the other is the same sentence once more.
  EXPECT_THAT(counts["dropped_tokens"], AllOf(Ge(300 - 31), Le(300 - 30)));
  EXPECT_EQ(counts["text_tokens"], 312);
  EXPECT_EQ(counts["unknown_tokens"], 100);
  EXPECT_EQ(counts["documents"], 4);
  EXPECT_EQ(counts["lone_documents"], 1);
  EXPECT_EQ(counts["left_out_names"], 2);
  EXPECT_EQ(counts["left_out_eval"], 1);
  EXPECT_EQ(counts["left_out_markup"], 1);
  EXPECT_EQ(counts["left_out_parquet"], 1);
  EXPECT_EQ(counts["left_out_office"], 1);
  EXPECT_EQ(counts["left_out_json"], 1);
  EXPECT_EQ(counts["left_out_folders"], 1);
  EXPECT_EQ(counts["left_out_links"], 1);
  EXPECT_THAT(
      log.warnings(),
      ElementsAre(AllOf(
          HasSubstr(
              concat(folder.path("text"), ": not read; named neither *.txt, part-*, *.jsonl")),
          HasSubstr(": 2 (AA/wiki_00, notes.md); named eval*: 1 (eval.txt); HTML or XML, convert "
                    "them first: 1 (a.xml); Parquet or Arrow, pipe their rows into --text - as "
                    "JSON lines: 1 (b.parquet); PDF, EPUB or office documents, save them as "
                    "text: 1 (B.rtf); JSON, but not one object per line: 1 (c.json); hidden, "),
          HasSubstr(": 1 (.hidden.txt); broken links, devices and pipes: 1 (part-2); to read a "
                    "file or folder, give its path"))));
}

TEST(PrepareTest, AFolderWithoutTextNamesWhatItHolds) {
  const TempFolder folder;
  write_bytes(folder.path("A.MD"), "a b\n");
  EXPECT_THAT(error_of([&] { list_source_files({folder.path()}, MissingFiles::kRefuse); }),
              AllOf(HasSubstr("no text in this folder"), HasSubstr("A.MD")));
  write_bytes(folder.path("a.txt"), "{\"text\": \"a b\"}\n");
  EXPECT_THAT(error_of([&] { list_source_files({folder.path()}, MissingFiles::kRefuse); }),
              AllOf(HasSubstr("a.txt: begins as JSON")));
}

TEST(PrepareTest, ProseGivesTheSamplesOfItsSentences) {
  const TempFolder folder;
  std::string prose, sentences;
  for (int document = 0; document < 6; ++document) {
    for (int i = 0; i < 5; ++i) {
      const std::string half = concat("The ", document, " men of Mr. Gray"), rest = "ran home.";
      sentences += half + " " + rest + "\n";
      prose += half + "\r\n" + rest + " ";
    }
    prose += "\n\n";
    sentences += "\n";
  }
  write_bytes(folder.path("prose.txt"), prose);
  write_bytes(folder.path("sentences.txt"), sentences);
  PrepareOptions options = PrepareFolder().options();
  const auto prepare = [&](const std::string& name, TextForm form, const std::string& output) {
    options.inputs = {folder.path(name)};
    options.text_form = form;
    options.output_dir = folder.path(output);
    return prepare_data(options, {}).manifest;
  };
  const Manifest lines = prepare("sentences.txt", TextForm::kSentencePerLine, "lines");
  const Manifest split = prepare("prose.txt", TextForm::kProse, "split");
  EXPECT_EQ(split.counts.at("sentences"), 30);
  EXPECT_EQ(split.shards.front().md5_of_lists, lines.shards.front().md5_of_lists);
  EXPECT_EQ(split.options.at("text_form"), "prose");
  EXPECT_EQ(lines.options.count("text_form"), 0u);
  // Another form is another preparation.
  EXPECT_THAT(message_of_preparing(options), "no error");
  options.text_form = TextForm::kSentencePerLine;
  EXPECT_THAT(message_of_preparing(options),
              HasSubstr("the form of the text (--prose) = prose, but it is now sentence_per_line"));
}

TEST(PrepareTest, ShardsHoldTheSamplesInOrderInPublishedSizes) {
  const PrepareFolder folder;
  const SampleSet wanted = folder.generated();
  PrepareOptions options = folder.options();
  options.num_shards = 7;
  options.layout = ShardLayout::kFixedLength;
  const PrepareSummary summary = prepare_data(options, {});
  const std::vector<int64_t> sizes = shard_sizes(wanted.size(), 7);
  ASSERT_EQ(summary.manifest.shards.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(summary.manifest.shards[i].name, concat("part_0000", i, "_of_00007.hdf5"));
    EXPECT_EQ(summary.manifest.shards[i].samples, sizes[i]);
  }
  EXPECT_EQ(inspect_shard(folder.output("part_00000_of_00007.hdf5")).layout,
            ShardLayout::kFixedLength);
  expect_same_samples(folder.prepared(summary.manifest), wanted);
}

TEST(PrepareTest, EvaluationSamplesArePickedEvenly) {
  const PrepareFolder folder;
  const SampleSet all = folder.generated();
  PrepareOptions options = folder.options();
  options.eval_samples = 37;
  const PrepareSummary summary = prepare_data(options, {});
  ASSERT_EQ(summary.manifest.shards.size(), 1u);
  EXPECT_EQ(summary.manifest.shards[0].name, "part_eval_37.hdf5");
  SampleSet wanted;
  for (const int64_t index : eval_selection(all.size(), 37)) {
    SampleView sample = all[index];
    sample.id = wanted.size();
    wanted.append(sample);
  }
  expect_same_samples(folder.prepared(summary.manifest), wanted);
  const std::vector<int64_t>& histogram = summary.manifest.token_length_histogram;
  EXPECT_EQ(std::accumulate(histogram.begin(), histogram.end(), int64_t{0}), 37);
  EXPECT_EQ(summary.manifest.counts.at("tokens"), wanted.token_offsets.back());
}

TEST(PrepareTest, TheManifestTellsWhatIsThereAndHowItWasMade) {
  const PrepareFolder folder;
  PrepareOptions options = folder.options();
  options.num_shards = 3;
  prepare_data(options, {});
  const Manifest manifest = read_manifest(folder.output("manifest.json"));
  const SampleSet samples = folder.generated();

  EXPECT_EQ(manifest.unicode_version, unicode_version());
  EXPECT_EQ(manifest.seed, 12345u);
  EXPECT_EQ(manifest.limits.vocab_size, folder.limits().vocab_size);
  EXPECT_EQ(manifest.options.at("duplication"), "2");
  EXPECT_EQ(manifest.options.at("masked_fraction"), "0.15");
  EXPECT_EQ(manifest.options.at("layout"), "variable_length");
  EXPECT_EQ(manifest.options.at("vocab_sha256"), sha256_of_file(golden_path("vocab.txt")));
  ASSERT_EQ(manifest.sources.size(), 5u);
  EXPECT_EQ(manifest.sources[3].path, folder.text(3));
  EXPECT_EQ(manifest.sources[3].sha256, sha256_of_file(folder.text(3)));
  EXPECT_EQ(manifest.counts.at("samples"), samples.size());
  EXPECT_EQ(manifest.counts.at("tokens"), samples.token_offsets.back());
  EXPECT_EQ(manifest.counts.at("masked_tokens"), samples.masked_offsets.back());
  EXPECT_GT(manifest.counts.at("documents"), 60);

  std::vector<int64_t> histogram(65);
  for (int64_t i = 0; i < samples.size(); ++i) ++histogram[samples[i].token_ids.size()];
  EXPECT_EQ(manifest.token_length_histogram, histogram);
  for (const ManifestShard& shard : manifest.shards) {
    const std::string path = folder.output(shard.name);
    EXPECT_EQ(shard.xxh3, xxh3_of_file(path));
    EXPECT_EQ(shard.md5_of_lists, md5_of_lists(read_shard(path, 0, folder.limits())));
    EXPECT_EQ(shard.bytes, static_cast<int64_t>(std::filesystem::file_size(path)));
  }
}

TEST(PrepareTest, TheManifestStatesTheTokenizerOfTheVocabularysFolder) {
  const PrepareFolder folder;
  const TempFolder model;
  PrepareOptions options = folder.options();
  options.vocab_file = model.write("vocab.txt", bytes_of(golden_path("vocab.txt")));
  const Manifest lower = prepare_data(options, {}).manifest;
  EXPECT_EQ(lower.tokenizer(), to_text(TokenizerSettings()));
  const auto before = folder.files();
  model.write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_THAT(message_of_preparing(options),
              AllOf(HasSubstr("the tokenizer settings next to --vocab"), HasSubstr("false")));
  EXPECT_EQ(folder.files(), before);
  std::filesystem::remove(folder.output("manifest.json"));  // parts of other settings are not kept
  const PrepareSummary cased = prepare_data(options, {});
  EXPECT_EQ(cased.parts_reused, 0);
  EXPECT_EQ(cased.manifest.tokenizer(),
            to_text(TokenizerSettings{.do_lower_case = false, .strip_accents = false}));
  EXPECT_NE(cased.manifest.shards[0].md5_of_lists, lower.shards[0].md5_of_lists);
}

// Version 1.0.0 lower-cased all text and stated nothing.
TEST(PrepareTest, AManifestOf100WithoutATokenizerIsOfTheDefaultOne) {
  const PrepareFolder folder;
  Manifest manifest = prepare_data(folder.options(), {}).manifest;
  manifest.options.erase(kTokenizerOption);
  EXPECT_EQ(manifest.tokenizer(), to_text(TokenizerSettings()));
  write_manifest(folder.output("manifest.json"), manifest);
  EXPECT_TRUE(prepare_data(folder.options(), {}).already_done);
  manifest.options.clear();
  EXPECT_EQ(manifest.tokenizer(), "") << "shards of unknown text";
}

TEST(PrepareTest, TheNumberOfWorkersChangesNoByte) {
  const PrepareFolder one, three;
  PrepareOptions options = one.options();
  options.num_shards = 4;
  prepare_data(options, {});
  options.output_dir = three.output();
  options.workers = 3;
  prepare_data(options, {});
  EXPECT_EQ(one.files(), three.files());
  EXPECT_EQ(one.files().size(), 4 + 2u) << "shards, manifest, checksums";
}

TEST(PrepareTest, TheChecksumListIsThatOfTheShards) {
  const PrepareFolder folder;
  const Manifest manifest = prepare_data(folder.options(), {}).manifest;
  EXPECT_TRUE(compare_checksums(read_checksum_list(folder.output("checksums.chk")), manifest.shards)
                  .empty());
}

TEST(PrepareTest, ProgressCountsUpToAllTextAndAllShards) {
  const PrepareFolder folder;
  PrepareOptions options = folder.options();
  options.num_shards = 4;
  std::vector<std::string> phases;
  std::vector<std::pair<int64_t, int64_t>> last;  // done and total of each phase
  prepare_data(options,
               [&](const std::string& phase, const std::string& unit, int64_t done, int64_t total) {
                 if (phases.empty() || phases.back() != concat(phase, ' ', unit)) {
                   phases.push_back(concat(phase, ' ', unit));
                   last.emplace_back(0, total);
                   EXPECT_EQ(done, 0) << phase;
                 }
                 EXPECT_GE(done, last.back().first);
                 last.back() = {done, total};
               });
  EXPECT_THAT(phases,
              ElementsAre("hash B of text", "generate B of text", "write shards", "check shards"));
  int64_t text_bytes = 0;
  for (int64_t i = 0; i < PrepareFolder::kTexts; ++i) {
    text_bytes += static_cast<int64_t>(std::filesystem::file_size(folder.text(i)));
  }
  EXPECT_THAT(last, ElementsAre(Pair(text_bytes, text_bytes), Pair(text_bytes, text_bytes),
                                Pair(4, 4), Pair(4, 4)));
}

TEST(PrepareTest, OptionsInConflictOrOutOfRangeAreNamed) {
  const PrepareFolder folder;
  const auto message = [&](auto change) {
    PrepareOptions options = folder.options();
    change(options);
    return message_of_preparing(options, ExitCode::kUsage);
  };
  EXPECT_THAT(message([](auto& o) { o.num_shards = o.eval_samples = 2; }),
              AllOf(HasSubstr("--eval-samples 2"), HasSubstr("--shards 2")));
  EXPECT_THAT(message([](auto& o) { o.num_shards = -1; }), HasSubstr("--shards -1"));
  EXPECT_THAT(message([](auto& o) { o.eval_samples = -1; }), HasSubstr("--eval-samples -1"));
  EXPECT_THAT(message([](auto& o) { o.workers = -1; }), HasSubstr("--workers -1"));
  EXPECT_THAT(message([](auto& o) { o.hold_out = 0.6; }), HasSubstr("--hold-out 0.6"));
  EXPECT_THAT(message([](auto& o) { o.part_mib = -2; }), HasSubstr("--part-mib -2"));
  EXPECT_THAT(message([](auto& o) {
                o.hold_out = 0.1;
                o.eval_samples = 2;
              }),
              AllOf(HasSubstr("--hold-out 0.1"), HasSubstr("--eval-samples 2")));
  EXPECT_THAT(message([](auto& o) { o.generator.duplication = 0; }), HasSubstr("--duplication 0"));
  EXPECT_THAT(message([](auto& o) { o.inputs.clear(); }), HasSubstr("no input text"));
  EXPECT_THAT(message([](auto& o) { o.output_dir.clear(); }), HasSubstr("--output"));
  EXPECT_THAT(message([](auto& o) { o.vocab_file.clear(); }), HasSubstr("--vocab"));
  EXPECT_TRUE(folder.files().empty());
}

TEST(EvalSelectionTest, IsWhatPythonComputes) {
  // [int(i * (23 / 7)) for i in range(7)]
  EXPECT_THAT(eval_selection(23, 7), ElementsAre(0, 3, 6, 9, 13, 16, 19));
  const std::vector<int64_t> published = eval_selection(332'264, 10'000);
  EXPECT_EQ(published[3], 99);
  EXPECT_EQ(published[9999], 332'230);
  // int(5000 * (10010 / 10000)): the quotient is rounded first, which loses one here.
  EXPECT_EQ(eval_selection(10'010, 10'000)[5000], 5004);
  EXPECT_THROW(eval_selection(9, 10), Error);
}

TEST(SourceFilesTest, FoldersGiveTheirTextsSortedAndNoEvaluationText) {
  const TempFolder folder;
  for (const char* name : {"b.txt", "a.txt", "part-00000-of-00001", "eval.txt", "eval.md5", "x.md",
                           "notes.tsv", "sub/sub/C.TXT", "out/d.txt", ".git/e.txt"}) {
    std::filesystem::create_directories(std::filesystem::path(folder.path(name)).parent_path());
    write_bytes(folder.path(name), "text");
  }
  const auto names = [&](const std::vector<std::string>& inputs) {
    std::vector<std::string> found;
    for (const SourceFile& source :
         list_source_files(inputs, MissingFiles::kRefuse, nullptr, folder.path("out"))) {
      EXPECT_EQ(source.bytes, 4);
      found.push_back(std::filesystem::path(source.path).filename());
    }
    return found;
  };
  EXPECT_THAT(names({folder.path()}),
              ElementsAre("a.txt", "b.txt", "notes.tsv", "part-00000-of-00001", "C.TXT"));
  EXPECT_THAT(names({folder.path("eval.txt"), folder.path("b.txt")}),
              ElementsAre("eval.txt", "b.txt"));
  EXPECT_THROW(names({folder.path("b.txt"), folder.path()}), Error) << "given twice";
  EXPECT_THROW(names({folder.path("missing.txt")}), Error);
}

TEST(SourceFilesTest, AFolderThatLacksFilesOfANumberedSetIsRefusedUnlessAPartIsAccepted) {
  const TempFolder folder;
  for (const char* name : {"part-00000-of-00004", "part-00003-of-00004"}) {
    write_bytes(folder.path(name), "text");
  }
  EXPECT_THAT(error_of([&] { list_source_files({folder.path()}, MissingFiles::kRefuse); }),
              AllOf(HasSubstr("2 of 4 text files are missing: part-00001-of-00004, part-00002"),
                    HasSubstr("--partial")));
  const CapturedLog log;
  EXPECT_EQ(list_source_files({folder.path()}, MissingFiles::kAccept).size(), 2u);
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("2 of 4 text files are missing")));
  list_source_files({folder.path("part-00003-of-00004")}, MissingFiles::kRefuse);
  EXPECT_EQ(log.warnings().size(), 1u) << "a file that is named is wanted alone";
}

TEST(SourceFilesTest, AGapInPlainNumbersIsWarnedOf) {
  const TempFolder folder;
  for (const char* name : {"wiki_00.txt", "wiki_01.txt", "wiki_03.txt"}) {
    write_bytes(folder.path(name), "text");
  }
  const CapturedLog log;
  EXPECT_EQ(list_source_files({folder.path()}, MissingFiles::kRefuse).size(), 3u);
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr("text files are missing: wiki_02.txt")));
}

}  // namespace
}  // namespace bertha
