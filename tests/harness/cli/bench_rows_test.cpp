#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/tests/matchers.h"
#include "tests/harness/cli/run_program.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

/// Tests of `bertha_bench_rows --device cpu --threads 1 --repeats 3 --json FILE OPTIONS`.
class BenchRowsTest : public ::testing::Test {
 protected:
  Ran run(const std::string& options) const {
    return run_program(split(BERTHA_BENCH_ROWS " --device cpu --threads 1 --repeats 3 --json " +
                             json_ + " " + options));
  }
  Json json() const {
    std::ifstream file(json_);
    return Json::parse(file);
  }

  TempFolder folder_;
  std::string json_ = folder_.path("rows.json");
};

TEST_F(BenchRowsTest, ChecksAndTimesTheChosenOperationsAtTheChosenWidths) {
  const Ran ran = run("--op softmax_fwd,layer_norm_bwd --widths 33,64 --rows 50 --dtype fp32");
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("operations, f32, cpu, "));
  const Json found = json();
  EXPECT_TRUE(found["verified"].get<bool>());
  EXPECT_EQ(found["precision"], "f32");
  std::multiset<std::string> shapes;
  for (const Json& row : found["operations"]) {
    EXPECT_EQ(row["launches"], 3);
    EXPECT_GT(row["roof_per_second"], 0);
    shapes.insert(row["operation"].get<std::string>() + " " + row["shape"].get<std::string>());
    if (row["operation"] == "softmax_fwd" && row["shape"] == "50x64") {
      EXPECT_EQ(row["bytes"], 2.0 * 50 * 64 * 4);
    }
  }
  EXPECT_THAT(shapes, UnorderedElementsAre("softmax_fwd 50x33", "softmax_fwd 50x33, log",
                                           "layer_norm_bwd 50x33", "softmax_fwd 50x64",
                                           "softmax_fwd 50x64, log", "layer_norm_bwd 50x64"));
}

TEST_F(BenchRowsTest, TakesImagesAndDoubles) {
  ASSERT_EQ(run("--op prelu_bwd --images 1 --widths 8 --dtype fp32").code, 0);
  EXPECT_EQ(json()["operations"].size(), 10u);
  EXPECT_EQ(json()["operations"][0]["shape"], "1x64x112x112 NCHW");
  // x, dy and dx of fp32, and nothing for the slopes.
  EXPECT_EQ(json()["operations"][0]["bytes"], 3.0 * 64 * 112 * 112 * 4);
  const Ran doubles = run("--op layer_norm_fwd --rows 9 --widths 8 --dtype fp64");
  ASSERT_EQ(doubles.code, 0) << doubles.err;
  EXPECT_THAT(doubles.out, HasSubstr("operations, f64, cpu, "));
}

TEST_F(BenchRowsTest, OperationsWithoutTheElementTypeNameOneThatTheyHave) {
  for (const std::string type : {"--dtype fp64", ""}) {
    const Ran ran = run("--op softmax_fwd,prelu_fwd --images 1 " + type);
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.err, HasSubstr("--op prelu_fwd runs in fp32 here; give --dtype fp32.\n"));
  }
  EXPECT_THAT(run("--op prelo_fwd").err, HasSubstr("--op prelo_fwd is not an operation"));
}

TEST_F(BenchRowsTest, WrongInputsEndWithOneSentence) {
  EXPECT_EQ(run("--widths 0").code, 2);
  EXPECT_EQ(run("--dtype fp8").code, 2);
  json_ = folder_.path("none/rows.json");
  const Ran unwritable = run("--op softmax_fwd --widths 8 --rows 4 --dtype fp32");
  EXPECT_EQ(unwritable.code, 4);
  EXPECT_THAT(unwritable.err, HasSubstr("rows.json cannot be written"));
}

}  // namespace
}  // namespace bertha
