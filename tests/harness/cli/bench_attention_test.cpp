#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

#include "tests/harness/cli/bench_fixture.h"

namespace bertha {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class BenchAttentionTest : public BenchFixture {
 protected:
  BenchAttentionTest() : BenchFixture("attention", {"--tokens", "504"}) {}
};

TEST_F(BenchAttentionTest, MeasuresBothDirectionsOfEveryMixWithAndWithoutDropout) {
  const std::string lengths = folder_.write("lengths.txt", "10 5\n33 7\n64 9\n");
  const Ran ran = run({"--lengths", lengths});
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("attention of tiny, f32, 4 heads of 8, cpu, 1 thread"));
  EXPECT_THAT(ran.out, HasSubstr("peak: a large product, measured, "));
  const Json found = json();
  EXPECT_TRUE(found["verified"].get<bool>());
  EXPECT_GT(found["peak_flops_per_second"], 0);
  std::set<std::tuple<std::string, double, std::string>> cases;
  for (const Json& row : found["rows"]) {
    cases.insert({row["mix"].get<std::string>(), row["dropout"].get<double>(),
                  row["direction"].get<std::string>()});
    EXPECT_EQ(row["kernels"], "cpu");
    EXPECT_EQ(row["calls"], 3);
    EXPECT_GT(row["share_of_peak"], 0);
  }
  EXPECT_EQ(cases.size(), 3u * 2u * 2u);
  EXPECT_EQ(found["rows"].size(), cases.size());
  EXPECT_TRUE(cases.contains({"histogram", 0.25, "backward"}));
}

TEST_F(BenchAttentionTest, LengthsAndFlopsAreThoseOfTheBatch) {
  ASSERT_EQ(run({"--peak-tflops", "2"}).code, 0);
  const Json found = json();
  EXPECT_EQ(found["peak_flops_per_second"], 2e12);
  ASSERT_EQ(found["mixes"].size(), 2u);
  EXPECT_EQ(found["mixes"][0]["name"], "all 64");
  const std::vector<double> lengths = found["mixes"][0]["lengths"];
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), 0.0), 504);
  const double pairs = std::inner_product(lengths.begin(), lengths.end(), lengths.begin(), 0.0);
  EXPECT_EQ(found["rows"][0]["flops"], 4 * 32 * pairs);
  EXPECT_EQ(found["rows"][1]["flops"], 8 * 32 * pairs);
}

/// Names and byte ranges of a safetensors file.
Json header_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t bytes = 0;
  file.read(reinterpret_cast<char*>(&bytes), sizeof(bytes));
  std::string text(file ? bytes : 0, ' ');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return Json::parse(text);
}

TEST_F(BenchAttentionTest, ADumpHasWhatWentInAndCameOut) {
  const std::string folder = folder_.path("dump");
  const Ran ran = run({"--dump", folder});
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  for (const char* const name : {"all_64-cpu", "all_16-cpu"}) {
    const std::string path = folder + "/" + name + ".safetensors";
    EXPECT_THAT(ran.out, HasSubstr("written: " + path));
    const Json header = header_of(path);
    EXPECT_EQ(header["__metadata__"]["dropout"], "0.25");
    EXPECT_EQ(header["__metadata__"]["kernels"], "cpu");
    EXPECT_EQ(header["qkv"]["shape"], (std::vector<int>{504, 3, 4, 8}));
    EXPECT_EQ(header["mask"]["dtype"], "U8");
    EXPECT_EQ(header["cu_seqlens"]["dtype"], "I32");
    EXPECT_EQ(header["random"]["dtype"], "U64");
    for (const char* const tensor : {"out", "lse", "dout", "dqkv"}) {
      EXPECT_EQ(header[tensor]["dtype"], "F32") << tensor;
    }
  }
}

TEST_F(BenchAttentionTest, TheCpuHasNoStreamsToShow) {
  const Ran ran = run({"--lanes"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("the CPU backend has no streams to show"));
}

TEST_F(BenchAttentionTest, SeveralRanksAreRefused) {
  const Ran ran = run_bertha_on_ranks(2, {"bench", "attention", "--config", config_});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("bench attention runs on one rank, found 2"));
}

}  // namespace
}  // namespace bertha
