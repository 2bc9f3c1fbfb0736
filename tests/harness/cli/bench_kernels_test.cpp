#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "kernels/base/tests/matchers.h"
#include "tests/harness/cli/bench_fixture.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

class BenchKernelsTest : public BenchFixture {
 protected:
  BenchKernelsTest() : BenchFixture("kernels --repeats 3") {}
};

TEST_F(BenchKernelsTest, ChecksAndTimesTheChosenOperationsAtTheModelsShapes) {
  const std::string lengths = folder_.write("lengths.txt", "10 5\n33 7\n64 9\n");
  const Ran ran =
      run("--op attention_fwd,linear_fwd,residual_ln_bwd --tokens 504 --lengths " + lengths);
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("operations of tiny, f32, 504 token rows, cpu, 1 thread"));
  EXPECT_THAT(ran.out, HasSubstr("(us)"));
  const Json found = json();
  EXPECT_TRUE(found["verified"].get<bool>());
  EXPECT_GT(found["peak_flops_per_second"], 0);
  std::set<std::string> shapes;
  for (const Json& row : found["operations"]) {
    EXPECT_EQ(row["launches"], 3);
    EXPECT_GT(row["bytes"], 0);
    EXPECT_GT(row["share_of_roof"], 0);
    shapes.insert(row["shape"]);
  }
  EXPECT_EQ(found["operations"].size(), 8u + 6u + 1u);
  EXPECT_THAT(shapes, Contains("FF in 504x64x32, bias, gelu"));
  EXPECT_THAT(shapes, Contains(HasSubstr("histogram, T=504")));
  EXPECT_THAT(shapes, Contains(HasSubstr("all 16, T=504")));
  for (const Json& row : found["operations"]) {
    if (row["shape"] != "FF in 504x64x32, bias, gelu") continue;
    EXPECT_EQ(row["flops"], 2.0 * 504 * 64 * 32);
    // x and weight read; y and the bytes of gelu's derivative written.
    EXPECT_EQ(row["bytes"], 4.0 * (504 * 32 + 64 * 32 + 504 * 64) + 504 * 64);
  }
}

TEST_F(BenchKernelsTest, ANameWithoutItsEndStandsForAllOfItsOperations) {
  const Ran ran = run("--op attention,gather_rows --tokens 128");
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  std::multiset<std::string> operations;
  const Json found = json();
  for (const Json& row : found["operations"]) operations.insert(row["operation"]);
  EXPECT_EQ(operations.count("attention_fwd"), 4u);  // two mixes, with and without dropout
  EXPECT_EQ(operations.count("attention_bwd"), 4u);
  EXPECT_EQ(operations.size(), 8u + operations.count("gather_rows"));
}

TEST_F(BenchKernelsTest, AttentionsLengthsAndFlopsAreThoseOfTheBatch) {
  ASSERT_EQ(run("--op attention --tokens 504").code, 0);
  const Json found = json();
  ASSERT_EQ(found["mixes"].size(), 2u);
  EXPECT_EQ(found["mixes"][0]["name"], "all 64");
  const std::vector<double> lengths = found["mixes"][0]["lengths"];
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), 0.0), 504);
  const double pairs = std::inner_product(lengths.begin(), lengths.end(), lengths.begin(), 0.0);
  EXPECT_EQ(found["operations"][0]["shape"], "all 64, T=504 A=4 D=8");
  EXPECT_EQ(found["operations"][0]["flops"], 4 * 32 * pairs);
  EXPECT_EQ(found["operations"][1]["flops"], 8 * 32 * pairs);
  EXPECT_EQ(found["operations"][2]["shape"], "all 64, T=504 A=4 D=8, dropout 0.25");
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

TEST_F(BenchKernelsTest, ADumpHasWhatWentIntoAndCameOutOfAttention) {
  const std::string folder = folder_.path("dump");
  const Ran ran = run("--op attention_bwd --tokens 504 --dump " + folder);
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

TEST_F(BenchKernelsTest, GivenRoofsAreUsed) {
  const Ran ran =
      run("--op linear_fwd,layer_norm_fwd --tokens 128 --peak-tflops 0.5 --peak-gbps 20");
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("roof: 20.0 GB/s, given; of GEMMs 0.500 TFLOP/s\n"));
  const Json written = json();
  for (const Json& row : written["operations"]) {
    EXPECT_EQ(row["roof_per_second"], row["flops"] > 0 ? 0.5e12 : 20e9);
  }
}

TEST_F(BenchKernelsTest, WrongInputsEndWithOneSentence) {
  const Ran name = run("--op atten");
  EXPECT_EQ(name.code, 2);
  EXPECT_THAT(name.err, HasSubstr("--op atten is not an operation; choose from activation_bwd,"));
  const Ran tune = run("--tune " + folder_.path("plans.txt"));
  EXPECT_EQ(tune.code, 2);
  EXPECT_THAT(tune.err, HasSubstr("bench step --set cuda.tune_gemms=true"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("plans.txt")));
  const Ran dtype = run("--dtype bf16");
  EXPECT_EQ(dtype.code, 2);
  EXPECT_THAT(dtype.err, HasSubstr("train.precision is bf16"));
  EXPECT_EQ(run_on_two_ranks("").code, 2);
}

}  // namespace
}  // namespace bertha
