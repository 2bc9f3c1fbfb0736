#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "data/prepare/pairs_and_masks.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/prepare/golden_samples.h"

namespace bertha {
namespace {

struct GoldenCase {
  std::string samples;
  std::string text;
  GeneratorOptions options;
};

std::ostream& operator<<(std::ostream& out, const GoldenCase& golden) {
  return out << golden.samples;
}

/// The table SETTINGS of make_pretraining_golden.py.
std::vector<GoldenCase> golden_cases() {
  const auto options = [](uint64_t seed, int64_t duplication, int64_t max_seq_tokens,
                          int64_t max_masked) {
    return GeneratorOptions{.seed = seed,
                            .duplication = duplication,
                            .max_seq_tokens = max_seq_tokens,
                            .max_masked_per_seq = max_masked};
  };
  std::vector<GoldenCase> cases{
      {"seq32", "many_documents", options(12345, 1, 32, 5)},
      {"seq64_dup3_short50", "many_documents", options(12345, 3, 64, 10)},
      {"seq128_seed7", "many_documents", options(7, 1, 128, 20)},
      {"seq512", "many_documents", options(12345, 1, 512, 76)},
      {"single_seq64_dup3", "single_document", options(12345, 3, 64, 10)},
      {"single_seq512", "single_document", options((uint64_t{1} << 40) + 3, 1, 512, 7)},
      {"one_sentence_seq32_dup3", "one_sentence_documents", options(12345, 3, 32, 31)},
      {"tiny_seq5", "one_sentence_documents", options(1, 1, 5, 2)}};
  cases[1].options.short_seq_probability = 0.5;
  cases[5].options.short_seq_probability = 0.5;
  cases[5].options.masked_fraction = 0.2;
  cases[6].options.short_seq_probability = 0.5;
  cases[6].options.masked_fraction = 0.9;
  return cases;
}

Documents golden_documents(const std::string& text, const Vocabulary& vocabulary) {
  WordPieceTokenizer tokenizer(vocabulary);
  return read_documents(golden_path(text + ".txt"), tokenizer, [](int64_t) {});
}

class GeneratorTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(GeneratorTest, GivesThePublishedSamplesInThePublishedOrder) {
  const Vocabulary vocabulary = Vocabulary::load(golden_path("vocab.txt"));
  const SampleSet wanted = read_golden_samples(GetParam().samples + ".samples");
  const GeneratedSamples found = generate_samples(golden_documents(GetParam().text, vocabulary),
                                                  vocabulary, GetParam().options);
  ASSERT_EQ(found.size(), wanted.size());
  const auto list = [](const auto& span) { return std::vector<int64_t>(span.begin(), span.end()); };
  for (int64_t i = 0; i < wanted.size(); ++i) {
    const SampleView mine = found.at(i);
    EXPECT_EQ(mine.id, i);
    ASSERT_EQ(list(mine.token_ids), list(wanted[i].token_ids)) << "sample " << i;
    ASSERT_EQ(list(mine.segment_ids), list(wanted[i].segment_ids)) << "sample " << i;
    ASSERT_EQ(list(mine.masked_positions), list(wanted[i].masked_positions)) << "sample " << i;
    ASSERT_EQ(list(mine.masked_ids), list(wanted[i].masked_ids)) << "sample " << i;
    ASSERT_EQ(mine.next_sentence_label, wanted[i].next_sentence_label) << "sample " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GeneratorTest, ::testing::ValuesIn(golden_cases()),
                         [](const ::testing::TestParamInfo<GoldenCase>& test) {
                           return test.param.samples;
                         });

TEST(OneSegmentTest, BlocksGiveTheTokensOfEachDocumentInOrderOncePerPass) {
  const Vocabulary vocabulary = Vocabulary::load(golden_path("vocab.txt"));
  const Documents documents = golden_documents("many_documents", vocabulary);
  constexpr int64_t kMaxTokens = 16;
  const GeneratedSamples found = generate_samples(documents, vocabulary,
                                                  {.duplication = 3,
                                                   .max_seq_tokens = kMaxTokens,
                                                   .max_masked_per_seq = 3,
                                                   .segments = Segments::kOne});
  std::map<std::vector<TokenId>, int64_t> wanted, blocks;
  for (int64_t d = 0; d < documents.size(); ++d) {
    const auto at = [&](int64_t document) {
      const int64_t sentence = documents.document_offsets[static_cast<size_t>(document)];
      return documents.sentence_offsets[static_cast<size_t>(sentence)];
    };
    for (int64_t i = at(d); i < at(d + 1); i += kMaxTokens - 2) {
      const int64_t end = std::min(i + kMaxTokens - 2, at(d + 1));
      wanted[{documents.token_ids.begin() + i, documents.token_ids.begin() + end}] += 3;
    }
  }
  int64_t num_masked = 0;
  for (int64_t i = 0; i < found.size(); ++i) {
    const SampleView sample = found.at(i);
    std::vector<TokenId> ids(sample.token_ids.begin(), sample.token_ids.end());
    ASSERT_GE(sample.masked_positions.size(), 1u);
    for (size_t m = 0; m < sample.masked_positions.size(); ++m) {
      ids[static_cast<size_t>(sample.masked_positions[m])] = sample.masked_ids[m];
      ++num_masked;
    }
    EXPECT_EQ(ids.front(), vocabulary.special().classify);
    EXPECT_EQ(ids.back(), vocabulary.special().separator);
    EXPECT_EQ(std::ranges::count(sample.segment_ids, 0), std::ssize(ids));
    EXPECT_EQ(sample.next_sentence_label, 0);
    ++blocks[{ids.begin() + 1, ids.end() - 1}];
  }
  EXPECT_EQ(blocks, wanted);
  EXPECT_GT(num_masked, found.size());
  EXPECT_EQ(found.dropped_tokens, 0);
}

TEST(GeneratorOptionsTest, ImpossibleOptionsAreNamed) {
  const auto message = [](const GeneratorOptions& options) -> std::string {
    return error_of([&] { check_options(options); }, ExitCode::kUsage);
  };
  EXPECT_EQ(message({}), "no error");
  EXPECT_THAT(message({.duplication = 0}), HasSubstr("--duplication 0"));
  EXPECT_THAT(message({.max_seq_tokens = 4}), HasSubstr("--max-seq-tokens 4"));
  EXPECT_THAT(message({.max_seq_tokens = 32768}), HasSubstr("32767"));
  EXPECT_THAT(message({.max_masked_per_seq = 0}), HasSubstr("--max-masked-per-seq 0"));
  EXPECT_THAT(message({.masked_fraction = 1.5}), HasSubstr("--masked-fraction 1.5"));
  EXPECT_THAT(message({.short_seq_probability = -0.1}), HasSubstr("--short-seq-probability"));
}

}  // namespace
}  // namespace bertha
