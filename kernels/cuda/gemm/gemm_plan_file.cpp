// The file is text, for people to compare; its last line counts the plans and has a
// checksum (64-bit FNV-1a) of all before it, so that a cut or changed file shows:
//
//   bertha_gemm_plans 3
//   device NVIDIA H200, 132 SMs
//   library cublasLt 130100
//   forward bf16 e4m3 e4m3 fast bias overwrite 24576 1024 3072 16 16 0 118.2 012345678 ...(8 words)
//   end 1 89abcdef01234567

#include "kernels/cuda/gemm/gemm_plan_file.h"

#include <cstdio>
#include <fstream>
#include <iomanip>
#include <random>
#include <sstream>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/base/log.h"
#include "kernels/ops/gemm_shape.h"

namespace bertha {
namespace {

constexpr const char* kMagic = "bertha_gemm_plans 3";

template <class Enum>
struct Word {
  Enum value;
  const char* text;
};
constexpr Word<GemmKind> kKinds[] = {{GemmKind::kForward, "forward"},
                                     {GemmKind::kDataGradient, "data_gradient"},
                                     {GemmKind::kWeightGradient, "weight_gradient"}};
constexpr Word<DType> word_of(DType dtype) { return {dtype, name(dtype)}; }
constexpr Word<DType> kDTypes[] = {word_of(DType::kF32), word_of(DType::kF16),
                                   word_of(DType::kBF16), word_of(DType::kE4M3),
                                   word_of(DType::kE5M2)};
constexpr Word<bool> kFastAccumulates[] = {{false, "full"}, {true, "fast"}};
constexpr Word<GemmEpilogue> kEpilogues[] = {{GemmEpilogue::kNone, "plain"},
                                             {GemmEpilogue::kBias, "bias"},
                                             {GemmEpilogue::kGeluBias, "gelu_bias"},
                                             {GemmEpilogue::kDgelu, "gelu_gradient"}};
constexpr Word<Accumulate> kAccumulates[] = {{Accumulate::kNo, "overwrite"},
                                             {Accumulate::kYes, "add"}};

template <class Enum, size_t N>
const char* text_of(const Word<Enum> (&words)[N], Enum value) {
  for (const Word<Enum>& word : words) {
    if (word.value == value) return word.text;
  }
  fail(ExitCode::kInternal, "no word for value ", static_cast<int>(value));
}

template <class Enum, size_t N>
bool read_word(std::istream& in, const Word<Enum> (&words)[N], Enum& value) {
  std::string text;
  in >> text;
  for (const Word<Enum>& word : words) {
    if (text != word.text) continue;
    value = word.value;
    return true;
  }
  return false;
}

bool read_plan(const std::string& line, TunedGemms& tuned) {
  std::istringstream in(line);
  GemmKey key{};
  TunedGemm plan{};
  if (!read_word(in, kKinds, key.kind) || !read_word(in, kDTypes, key.dtype) ||
      !read_word(in, kDTypes, key.a_dtype) || !read_word(in, kDTypes, key.b_dtype) ||
      !read_word(in, kFastAccumulates, key.fast_accumulate) ||
      !read_word(in, kEpilogues, key.epilogue) || !read_word(in, kAccumulates, key.accumulate)) {
    return false;
  }
  in >> key.rows >> key.inputs >> key.outputs >> key.matrix_alignment >> key.bias_alignment >>
      key.sm_count >> plan.us >> std::hex;
  for (uint64_t& word : plan.algorithm) in >> word;
  if (in.fail()) return false;
  tuned[key] = plan;
  return true;
}

void write_plan(std::ostream& out, const GemmKey& key, const TunedGemm& plan) {
  out << text_of(kKinds, key.kind) << ' ' << text_of(kDTypes, key.dtype) << ' '
      << text_of(kDTypes, key.a_dtype) << ' ' << text_of(kDTypes, key.b_dtype) << ' '
      << text_of(kFastAccumulates, key.fast_accumulate) << ' ' << text_of(kEpilogues, key.epilogue)
      << ' ' << text_of(kAccumulates, key.accumulate) << ' ' << key.rows << ' ' << key.inputs << ' '
      << key.outputs << ' ' << key.matrix_alignment << ' ' << key.bias_alignment << ' '
      << key.sm_count << ' ' << plan.us << std::hex;
  for (const uint64_t word : plan.algorithm) out << ' ' << word;
  out << std::dec << '\n';
}

/// Changes with every single byte of the text.
std::string checksum_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  std::ostringstream digits;
  digits << std::hex << std::setw(16) << std::setfill('0') << hash;
  return digits.str();
}

/// The last word is the checksum of what stands before it.
bool has_its_checksum(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  const size_t start = text.rfind(' ') + 1;
  return text.substr(start) == checksum_of(text.substr(0, start));
}

/// Why the file cannot be used; "" and the plans when it can.
std::string read_text(const std::string& text, const GemmOrigin& here, TunedGemms& tuned) {
  std::istringstream in(text);
  std::string line;
  if (!std::getline(in, line) || line != kMagic) return concat("does not begin with ", kMagic);
  for (const auto& [field, want] : {std::pair<std::string, std::string>{"device", here.device},
                                    std::pair<std::string, std::string>{"library", here.library}}) {
    std::getline(in, line);
    if (line != field + " " + want) {
      return concat("is of ", line.empty() ? "an unknown " + field : line, ", and here is ", field,
                    " ", want);
    }
  }
  if (!has_its_checksum(text)) return "is cut or damaged: its checksum differs";
  for (int number = 4; std::getline(in, line); ++number) {
    if (line.starts_with(concat("end ", tuned.size(), ' '))) return "";
    if (!read_plan(line, tuned)) return concat("is not understood in line ", number);
  }
  return "does not end with the count of its plans";
}

}  // namespace

TunedGemms load_tuned_gemms(const std::string& path, const GemmOrigin& here) {
  TunedGemms tuned;
  std::ifstream in(path);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  const std::string problem = in ? read_text(text.str(), here, tuned) : "cannot be opened";
  if (problem.empty()) return tuned;
  log_line(LogLevel::kWarning, concat("tuned GEMM plans in ", path, " are ignored: the file ",
                                      problem, ". Tune again: bertha bench kernels --tune."));
  return {};
}

void save_tuned_gemms(const std::string& path, const GemmOrigin& here, const TunedGemms& tuned) {
  const std::string partial = concat(path, ".", std::random_device{}());  // a name per writer
  std::ostringstream text;
  text << kMagic << "\ndevice " << here.device << "\nlibrary " << here.library << '\n';
  for (const auto& [key, plan] : tuned) write_plan(text, key, plan);
  text << "end " << tuned.size() << ' ';
  std::ofstream out(partial);
  out << text.str() << checksum_of(text.str()) << '\n';
  out.close();
  if (!out || std::rename(partial.c_str(), path.c_str()) != 0) {
    std::remove(partial.c_str());
    fail(ExitCode::kEnvironment, "writing tuned GEMM plans to ", path,
         " failed; check that its folder exists and has room.");
  }
}

}  // namespace bertha
