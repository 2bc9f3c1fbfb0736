#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/cli/run_program.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

// Documents of sentences over 300 invented words, different in each file.
std::string invented_text(uint64_t seed) {
  std::string text;
  uint64_t state = seed;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  for (int document = 0; document < 40; ++document) {
    for (int sentence = 0; sentence < 6; ++sentence) {
      for (uint64_t words = 4 + draw(9); words > 0; --words) {
        uint64_t word = draw(300) + 400;
        for (; word > 0; word /= 7) text += static_cast<char>('a' + word % 7 * 3);
        text += words > 1 ? " " : ".\n";
      }
    }
    text += "\n";
  }
  return text;
}

// Text, a vocabulary and shards in a folder of their own, made by the program.
class DataCommands : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("text/part-0.txt", invented_text(1));
    folder_.write("text/part-1.txt", invented_text(2));
    run("data vocab --text text --size 256 -o vocab.txt", 0);
    run(prepare_, 0);
  }
  /// Runs `bertha WORDS`, which ends with this code.
  Ran run(const Words& words, int code) const {
    Ran ran = run_bertha_program(words, folder_.path(""));
    EXPECT_EQ(ran.code, code) << joined(words) << '\n' << ran.out << ran.err;
    return ran;
  }
  Ran run(const std::string& line, int code) const { return run(split(line), code); }

  std::string text_of(const std::string& name) const { return bytes_of(folder_.path(name)); }

  const std::string prepare_ =
      "data prepare --text text --vocab vocab.txt --output train --max-seq-tokens 64 "
      "--max-masked-per-seq 10 --duplication 2";
  TempFolder folder_;
};

TEST_F(DataCommands, PreparedDataIsSoundAndRepeatingFindsItDone) {
  EXPECT_THAT(run("data verify train", 0).out, HasSubstr(": sound\n"));
  EXPECT_THAT(run(prepare_, 0).out, HasSubstr("all there already\n"));
}

TEST_F(DataCommands, StatsPrintTheHistogram) {
  const Ran ran = run("data stats train", 0);
  EXPECT_THAT(ran.out, HasSubstr("% of rows of 64 tokens"));
  EXPECT_THAT(ran.out, HasSubstr("\n\ntokens per sample\n"));
}

TEST_F(DataCommands, ConvertedShardsHoldTheSameSamples) {
  run("data convert train --output fixed --layout fixed", 0);
  run("data convert fixed --output back --max-seq-tokens 64", 0);
  const std::string was = run("data stats train", 0).out;
  EXPECT_EQ(run("data stats back --max-seq-tokens 64", 0).out, was);
}

TEST_F(DataCommands, ConvertCutsShufflesAndWritesTheChecksumListItIsComparedWith) {
  const std::string convert = "data convert train -o cut --shards 3 --shuffle";
  EXPECT_THAT(run(convert, 0).out, HasSubstr(" samples in 3 shards\n"));
  EXPECT_THAT(run(convert, 0).out, HasSubstr("3 shards, all there already\n"));
  EXPECT_THAT(run("data verify cut --chk cut/checksums.chk", 0).out, HasSubstr(": sound\n"));
  EXPECT_THAT(run("data convert train -o whole --chk cut/checksums.chk", 2).err,
              HasSubstr("--chk cut/checksums.chk: is the list of 3 other shards"));
  EXPECT_THAT(run("data convert train -o few --max-sequences 5", 0).out,
              HasSubstr("few: 5 samples in 1 shard\n"));
}

TEST_F(DataCommands, PackTellsHowFullThePacksAreAndVerifyFindsThemSound) {
  EXPECT_THAT(run("data pack train", 2).err, HasSubstr("--output is missing"));
  EXPECT_THAT(run("data pack train --dry-run", 0).out,
              ContainsRegex("efficiency +[0-9.]+% of 64 tokens per pack"));
  EXPECT_THAT(run("data pack train -o packed", 0).out,
              HasSubstr("\nnext: bertha data verify packed\n"));
  EXPECT_THAT(run("data pack train -o bob's", 0).out,
              HasSubstr("\nnext: bertha data verify 'bob'\\''s'\n"));
  EXPECT_THAT(run("data verify packed", 0).out, HasSubstr(": sound\n"));
  const auto samples = [](const std::string& stats) {
    const size_t at = stats.find("samples");
    return stats.substr(at, stats.find("padding") - at);
  };
  EXPECT_EQ(samples(run("data stats packed", 0).out), samples(run("data stats train", 0).out));
}

TEST_F(DataCommands, MissingShardsAreNamedUnlessAPartIsAccepted) {
  std::filesystem::remove(folder_.path("train/part_00000_of_00002.hdf5"));
  EXPECT_THAT(run("data pack train -o packed", 4).err,
              HasSubstr("1 of 2 files are missing: part_00000_of_00002.hdf5"));
  EXPECT_THAT(run("data pack train -o packed --partial", 0).err,
              HasSubstr("1 of 2 files are missing: part_00000_of_00002.hdf5"));
}

TEST_F(DataCommands, PlanCountsEpochsOfPreparedData) {
  const std::string line =
      "plan --set data.train=train --set data.eval=train --set data.vocab=vocab.txt";
  EXPECT_THAT(run(line + " --set model.vocab_size=248", 4).out,
              HasSubstr("vocab.txt: has 256 entries, but model.vocab_size is 248"));
  const Ran ran = run(line + " --set model.vocab_size=256", 0);
  EXPECT_THAT(ran.out, ContainsRegex("epochs +[0-9]+\\.[0-9]+ of [0-9,]+ sequences"));
  EXPECT_THAT(ran.out, HasSubstr("missing\n  nothing\n"));
}

TEST_F(DataCommands, DumpedBatchesComeWithWeightsAndConfig) {
  const std::string dump =
      "data dump-batches --steps 3 --weights --output dump --set data.train=train --set "
      "data.eval=train --set model.vocab_size=256 --set model.layers=1 --set model.hidden=16 --set "
      "model.heads=2 --set model.feed_forward=32 --set model.max_positions=64 --set "
      "data.max_seq_tokens=64 --set data.max_masked_per_seq=10 --set train.global_batch_seqs=4";
  EXPECT_EQ(run(dump, 0).out, "written: dump, 3 batch(es)\n");
  for (const char* name : {"batch_00000001.safetensors", "batch_00000003.safetensors",
                           "model.safetensors", "config.json", "config.yaml"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_.path(concat("dump/", name)))) << name;
  }
  EXPECT_THAT(run(dump + " --set data.train=/nowhere", 4).err, HasSubstr("/nowhere"));
}

TEST_F(DataCommands, OfficialDataAreTheOrderedAndTheShuffledShardsUnderTheirPublishedNames) {
  const std::string official =
      "data prepare --text text --vocab vocab.txt -o published --official --shards 3";
  const std::string ordered = "published/hdf5_3_shards_varlength";
  const std::string shuffled = ordered + "_shuffled";
  EXPECT_THAT(run(official, 0).out, HasSubstr("next: train on " + shuffled));
  run("data prepare --text text --vocab vocab.txt -o ordered --shards 3", 0);
  run("data convert ordered -o shuffled --shuffle --seed 24", 0);
  for (const auto& [made, want] : {std::pair(ordered, "ordered"), {shuffled, "shuffled"}}) {
    EXPECT_EQ(text_of(made + "/checksums.chk"), text_of(concat(want, "/checksums.chk")));
    EXPECT_THAT(run("data verify " + made + " --chk " + made + "/checksums.chk", 0).out,
                HasSubstr("3 shards"));
    EXPECT_FALSE(std::filesystem::exists(folder_.path(made + "/work")));
  }
  // Started again it goes on where it was: here with the second step alone.
  std::filesystem::remove_all(folder_.path(shuffled));
  const std::string compared = official + " --chk shuffled/checksums.chk";
  EXPECT_THAT(run(compared, 0).out,
              AllOf(HasSubstr("in 3 shards, all there already\n"),
                    HasSubstr("in 3 shards: as shuffled/checksums.chk says")));
  EXPECT_THAT(run(compared, 0).out, HasSubstr("3 shards, all there already: as shuffled/"));
  EXPECT_THAT(run(official + " --chk train/checksums.chk", 2).err,
              HasSubstr("is the list of 2 other shards"));
  EXPECT_THAT(run(official + " --seed 7", 2).err,
              AllOf(HasSubstr("--official"), HasSubstr("--seed")));
  EXPECT_THAT(
      run("data prepare --text text --vocab vocab.txt -o x --chk train/checksums.chk", 2).err,
      HasSubstr("--official"));
}

TEST_F(DataCommands, SeedsAreWholeNumbersFromZero) {
  for (const std::string command : {"prepare", "convert", "pack"}) {
    for (const std::string seed : {"-1", "18446744073709551616", "", "1.5", "0x10"}) {
      Words words{"data", command, "train", "-o", "other", "--seed", seed};
      if (command == "prepare") words = with(words, {"--vocab", "vocab.txt"});
      EXPECT_THAT(run(words, 2).err,
                  HasSubstr("--seed: found \"" + seed + "\", want a whole number"))
          << command;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path("other")));
}

TEST_F(DataCommands, PartsThatATextFolderLacksAreNamedUnlessAPartIsAccepted) {
  folder_.write("parts/part-00000-of-00003", invented_text(1));
  folder_.write("parts/part-00002-of-00003", invented_text(2));
  const std::string vocab = "data vocab --text parts --size 256 -o v.txt";
  const std::string prepare = "data prepare --text parts --vocab vocab.txt -o parted";
  for (const std::string& line : {vocab, prepare}) {
    EXPECT_THAT(run(line, 4).err, HasSubstr("1 of 3 text files are missing: part-00001-of-00003"));
    EXPECT_THAT(run(line + " --partial", 0).err,
                HasSubstr("warning: parts: 1 of 3 text files are missing"));
  }
}

TEST_F(DataCommands, AFolderOfTextOrRecordsTellsWhatMakesShardsOfThem) {
  folder_.write("parts/part-00000-of-00001", invented_text(1));
  EXPECT_THAT(run("data verify parts", 4).err,
              AllOf(HasSubstr("parts: contains part-00000-of-00001 but no shard"),
                    HasSubstr("`bertha data convert parts --output DIR`"),
                    HasSubstr("`bertha data prepare --text parts ...`")));
}

TEST_F(DataCommands, LimitsThatNoManifestMayHaveAreRefused) {
  for (const std::string limit :
       {"--vocab-size 1000001", "--vocab-size 0", "--max-seq-tokens 32768", "--max-seq-tokens 0",
        "--max-masked-per-seq 32768"}) {
    for (const std::string command : {"data convert train -o other ", "data pack train -o other ",
                                      "data verify train ", "data stats train "}) {
      EXPECT_THAT(run(command + limit, 2).err, HasSubstr(split(limit).front() + ": found \""));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path("other")));
  run("data convert train -o widest --vocab-size 1000000 --max-seq-tokens 32767 "
      "--max-masked-per-seq 32767",
      0);
  run("data verify widest", 0);
}

}  // namespace
}  // namespace bertha
