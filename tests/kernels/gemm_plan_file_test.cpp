#include "kernels/cuda/gemm/gemm_plan_file.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"
#include "tests/support/captured_log.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

const GemmOrigin kHere{.device = "NVIDIA H200, 132 SMs", .library = "cublasLt 130100"};

GemmKey key(GemmKind kind, DType dtype, GemmEpilogue epilogue, int64_t rows) {
  return {.kind = kind,
          .dtype = dtype,
          .epilogue = epilogue,
          .accumulate = kind == GemmKind::kForward ? Accumulate::kNo : Accumulate::kYes,
          .rows = rows,
          .inputs = 1024,
          .outputs = 4096,
          .matrix_alignment = 16,
          .bias_alignment = 2,
          .sm_count = 116};
}

TunedGemms some_plans() {
  TunedGemms tuned;
  tuned[key(GemmKind::kForward, DType::kBF16, GemmEpilogue::kBias, 24576)] = {
      ~uint64_t{0}, 0, 1, 2, 3, 4, 5, uint64_t{1} << 63};
  tuned[key(GemmKind::kDataGradient, DType::kF16, GemmEpilogue::kNone, 256)] = {7, 6, 5, 4,
                                                                                3, 2, 1, 0};
  tuned[key(GemmKind::kWeightGradient, DType::kF32, GemmEpilogue::kNone, 1)] = {};
  GemmKey fp8 = key(GemmKind::kDataGradient, DType::kBF16, GemmEpilogue::kNone, 256);
  fp8.a_dtype = DType::kE4M3;
  fp8.b_dtype = DType::kE5M2;
  for (const bool fast : {false, true}) {
    fp8.fast_accumulate = fast;
    tuned[fp8] = {1};
  }
  return tuned;
}

class GemmPlanFile : public ::testing::Test {
 protected:
  std::string text() const { return bytes_of(path); }
  void write(const std::string& text) const { write_bytes(path, text); }
  void expect_left_out(const std::string& why) {
    EXPECT_TRUE(load_tuned_gemms(path, kHere).empty());
    EXPECT_THAT(log.warnings(), ElementsAre(AllOf(HasSubstr(why), HasSubstr(path))));
    log.lines.clear();
  }

  TempFolder folder;
  std::string path = folder.path("plans.txt");
  CapturedLog log;
};

TEST_F(GemmPlanFile, GivesBackEveryBitOfWhatWasSaved) {
  save_tuned_gemms(path, kHere, some_plans());
  EXPECT_EQ(load_tuned_gemms(path, kHere), some_plans());
  EXPECT_TRUE(log.warnings().empty());
}

TEST_F(GemmPlanFile, IsLeftOutWhenItIsOfAnotherGpuOrLibrary) {
  save_tuned_gemms(path, {.device = "NVIDIA H100", .library = kHere.library}, some_plans());
  expect_left_out("not for NVIDIA H200, 132 SMs, cublasLt 130100");
  save_tuned_gemms(path, {.device = kHere.device, .library = "cublasLt 130000"}, some_plans());
  expect_left_out("not for NVIDIA H200, 132 SMs, cublasLt 130100");
}

TEST_F(GemmPlanFile, IsLeftOutWhenItIsMissingOrOfAnotherFormat) {
  expect_left_out("is missing");
  write("");
  expect_left_out("damaged");
  write("bertha_gemm_plans 3\ndevice NVIDIA H200, 132 SMs\nlibrary cublasLt 130100\nend 0 1\n");
  expect_left_out("damaged");
}

TEST_F(GemmPlanFile, IsLeftOutWhereverItIsCut) {
  save_tuned_gemms(path, kHere, some_plans());
  const std::string whole = text();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write(whole.substr(0, bytes));
    EXPECT_TRUE(load_tuned_gemms(path, kHere).empty()) << bytes;
    EXPECT_EQ(log.warnings().size(), 1u) << bytes;
    log.lines.clear();
  }
}

TEST_F(GemmPlanFile, IsLeftOutWhicheverBitIsFlipped) {
  save_tuned_gemms(path, kHere, some_plans());
  const std::string whole = text();
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string wrong = whole;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << bit % 8));
    write(wrong);
    ASSERT_TRUE(load_tuned_gemms(path, kHere).empty())
        << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST_F(GemmPlanFile, CannotBeWrittenIntoAFolderThatIsNotThere) {
  EXPECT_THROW(save_tuned_gemms(path + "/none/file", kHere, some_plans()), Error);
}

}  // namespace
}  // namespace bertha
