#include "kernels/cuda/products/gemm_plan_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "kernels/base/log.h"

namespace bertha {
namespace {

const GemmOrigin kHere{.device = "NVIDIA H200, 132 multiprocessors", .library = "cublasLt 130100"};

GemmKey key(GemmProduct product, DType dtype, GemmEpilogue epilogue, int64_t rows) {
  return {.product = product,
          .dtype = dtype,
          .epilogue = epilogue,
          .accumulate = product == GemmProduct::kForward ? Accumulate::kNo : Accumulate::kYes,
          .rows = rows,
          .inputs = 1024,
          .outputs = 4096,
          .matrix_alignment = 16,
          .bias_alignment = 2,
          .multiprocessors = 116};
}

TunedGemms some_plans() {
  TunedGemms tuned;
  tuned[key(GemmProduct::kForward, DType::kBF16, GemmEpilogue::kGeluBias, 24576)] = {
      .algorithm = {~uint64_t{0}, 0, 1, 2, 3, 4, 5, uint64_t{1} << 63}, .us = 351.25};
  tuned[key(GemmProduct::kDataGradient, DType::kF16, GemmEpilogue::kGeluGradient, 256)] = {
      .algorithm = {7, 6, 5, 4, 3, 2, 1, 0}, .us = 12.5};
  tuned[key(GemmProduct::kWeightGradient, DType::kF32, GemmEpilogue::kNone, 1)] = {.algorithm = {},
                                                                                   .us = 1e6};
  return tuned;
}

class GemmPlanFile : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel level, const std::string& text) {
      if (level >= LogLevel::kWarning) warnings.push_back(text);
    });
  }
  void TearDown() override {
    set_log_sink({});
    std::filesystem::remove(path);
  }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const { std::ofstream(path) << text; }
  void expect_left_out(const std::string& why) {
    EXPECT_TRUE(load_tuned_gemms(path, kHere).empty());
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find(why), std::string::npos) << warnings[0];
    EXPECT_NE(warnings[0].find(path), std::string::npos) << warnings[0];
    warnings.clear();
  }

  std::string path = ::testing::TempDir() + "gemm_plan_file_test.txt";
  std::vector<std::string> warnings;
};

TEST_F(GemmPlanFile, GivesBackEveryBitOfWhatWasSaved) {
  save_tuned_gemms(path, kHere, some_plans());
  EXPECT_EQ(load_tuned_gemms(path, kHere), some_plans());
  EXPECT_TRUE(warnings.empty());
}

TEST_F(GemmPlanFile, IsLeftOutWhenItIsOfAnotherGpuOrLibrary) {
  save_tuned_gemms(path, {.device = "NVIDIA H100", .library = kHere.library}, some_plans());
  expect_left_out("is of device NVIDIA H100, and here is device NVIDIA H200");
  save_tuned_gemms(path, {.device = kHere.device, .library = "cublasLt 130000"}, some_plans());
  expect_left_out("is of library cublasLt 130000, and here is library cublasLt 130100");
}

TEST_F(GemmPlanFile, IsLeftOutWhenItIsMissing) { expect_left_out("cannot be opened"); }

TEST_F(GemmPlanFile, IsLeftOutWhereverItIsCut) {
  save_tuned_gemms(path, kHere, some_plans());
  const std::string whole = text();
  for (size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {  // only the last newline may miss
    write(whole.substr(0, bytes));
    EXPECT_TRUE(load_tuned_gemms(path, kHere).empty()) << bytes;
    EXPECT_EQ(warnings.size(), 1u) << bytes;
    warnings.clear();
  }
}

TEST_F(GemmPlanFile, IsLeftOutWhenALineIsNotUnderstood) {
  save_tuned_gemms(path, kHere, some_plans());
  std::string bent = text();
  bent.replace(bent.find("bf16"), 4, "fp64");
  write(bent);
  expect_left_out("is not understood in line 4");
}

TEST_F(GemmPlanFile, CannotBeWrittenIntoAFolderThatIsNotThere) {
  EXPECT_THROW(save_tuned_gemms(path + "/none/file", kHere, some_plans()), Error);
}

}  // namespace
}  // namespace bertha
