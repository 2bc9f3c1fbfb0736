#include "kernels/cuda/gemm/gemm_plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iomanip>
#include <sstream>

#include "kernels/ops/gemm_shape.h"
#include "tests/support/captured_log.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  tuned[key(GemmKind::kForward, DType::kBF16, GemmEpilogue::kGeluBias, 24576)] = {
      .algorithm = {~uint64_t{0}, 0, 1, 2, 3, 4, 5, uint64_t{1} << 63}, .us = 351.25};
  tuned[key(GemmKind::kDataGradient, DType::kF16, GemmEpilogue::kDgelu, 256)] = {
      .algorithm = {7, 6, 5, 4, 3, 2, 1, 0}, .us = 12.5};
  tuned[key(GemmKind::kWeightGradient, DType::kF32, GemmEpilogue::kNone, 1)] = {.algorithm = {},
                                                                                .us = 1e6};
  GemmKey fp8 = key(GemmKind::kDataGradient, DType::kBF16, GemmEpilogue::kNone, 256);
  fp8.a_dtype = DType::kE4M3;
  fp8.b_dtype = DType::kE5M2;
  for (const bool fast : {false, true}) {
    fp8.fast_accumulate = fast;
    tuned[fp8] = {.algorithm = {1}, .us = fast ? 118.25 : 145.5};
  }
  return tuned;
}

class GemmPlanFile : public ::testing::Test {
 protected:
  std::string text() const { return bytes_of(path); }
  /// The text with the checksum that it should have: 64-bit FNV-1a of all but the last word.
  static std::string with_its_checksum(const std::string& text) {
    const std::string start = text.substr(0, text.rfind(' ') + 1);
    uint64_t hash = 14695981039346656037u;
    for (const unsigned char byte : start) hash = (hash ^ byte) * 1099511628211u;
    std::ostringstream digits;
    digits << std::hex << std::setw(16) << std::setfill('0') << hash;
    return start + digits.str() + "\n";
  }
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

// Files that users have stay readable: these words are the format.
TEST_F(GemmPlanFile, HasTheWordsOfItsFormat) {
  save_tuned_gemms(path, kHere, some_plans());
  for (const char* line :
       {"bertha_gemm_plans 3\n", "forward bf16 bf16 bf16 full gelu_bias overwrite 24576 1024 ",
        "data_gradient f16 f16 f16 full gelu_gradient add 256 1024 4096 16 2 116 12.5 7 6 ",
        "data_gradient bf16 e4m3 e5m2 full plain add 256 1024 4096 16 2 116 145.5 1 0 ",
        "data_gradient bf16 e4m3 e5m2 fast plain add 256 1024 4096 16 2 116 118.25 1 0 ",
        "weight_gradient f32 f32 f32 full plain add 1 1024 "}) {
    EXPECT_NE(text().find(line), std::string::npos) << line << "\n" << text();
  }
}

TEST_F(GemmPlanFile, GivesBackEveryBitOfWhatWasSaved) {
  save_tuned_gemms(path, kHere, some_plans());
  EXPECT_EQ(load_tuned_gemms(path, kHere), some_plans());
  EXPECT_TRUE(log.warnings().empty());
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
    EXPECT_EQ(log.warnings().size(), 1u) << bytes;
    log.lines.clear();
  }
}

TEST_F(GemmPlanFile, IsLeftOutWhenALineIsNotUnderstood) {
  save_tuned_gemms(path, kHere, some_plans());
  const std::string whole = text();
  std::string bent = whole;
  bent.replace(bent.find("bf16"), 4, "fp64");
  write(with_its_checksum(bent));
  expect_left_out("is not understood in line 4");
  std::string fewer = whole;
  fewer.replace(fewer.find("end 5"), 5, "end 4");
  write(with_its_checksum(fewer));
  expect_left_out("is not understood in line 9");
}

TEST_F(GemmPlanFile, IsLeftOutWhicheverBitIsFlipped) {
  save_tuned_gemms(path, kHere, some_plans());
  const std::string whole = text();
  for (size_t bit = 0; bit + 8 < 8 * whole.size(); ++bit) {  // all but the last newline
    std::string bent = whole;
    bent[bit / 8] = static_cast<char>(bent[bit / 8] ^ (1 << bit % 8));
    write(bent);
    ASSERT_TRUE(load_tuned_gemms(path, kHere).empty())
        << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST_F(GemmPlanFile, OfAnOlderVersionIsTunedAgain) {
  save_tuned_gemms(path, kHere, some_plans());
  std::string old = text();
  old.replace(old.find("plans 3"), 7, "plans 2");
  write(old);
  expect_left_out("does not begin with bertha_gemm_plans 3");
}

TEST_F(GemmPlanFile, CannotBeWrittenIntoAFolderThatIsNotThere) {
  EXPECT_THROW(save_tuned_gemms(path + "/none/file", kHere, some_plans()), Error);
}

}  // namespace
}  // namespace bertha
