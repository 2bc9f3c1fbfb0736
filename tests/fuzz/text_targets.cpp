#include <cstdio>

#include "harness/config/load.h"
#include "kernels/cuda/gemm/gemm_plan_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/source_dir.h"

namespace bertha::fuzz {
namespace {

/// --- YAML ---

void read_yaml(const std::string& bytes) {
  const LoadedConfig loaded = load_config({scratch_file("config.yaml", bytes)}, {});
  use(loaded.config.train.max_steps + std::ssize(loaded.origins));
}

std::vector<std::string> yaml_seeds() {
  return {bytes_of(std::string(kSourceDir) + "/configs/quickstart.yaml"),
          "train: {seed: 7, time_limit: 1h30m}\nmodel:\n  name: 'it''s'\nlog: {run_dir: \"a\\n\"}\n"
          "include: [config.yaml]\n"};
}

/// --- GEMM plans ---

const GemmOrigin kHere{.device = "a GPU", .library = "a library"};

void read_plans(const std::string& bytes) {
  use(std::ssize(load_tuned_gemms(scratch_file("plans.txt", bytes), kHere)));
}

std::vector<std::string> plan_seeds() {
  TunedGemms tuned;
  for (const int64_t rows : {256, 24576}) {
    const GemmKey key{.kind = GemmKind::kForward,
                      .dtype = DType::kBF16,
                      .epilogue = GemmEpilogue::kBias,
                      .accumulate = Accumulate::kNo,
                      .rows = rows,
                      .inputs = 1024,
                      .outputs = 4096,
                      .matrix_alignment = 16,
                      .bias_alignment = 2,
                      .sm_count = 116};
    tuned[key] = {~uint64_t{0}, 0, 1};
  }
  save_tuned_gemms(scratch_path("seed_plans.txt"), kHere, tuned);
  return {bytes_of(scratch_path("seed_plans.txt"))};
}

/// The fourth line is the checksum: 64-bit FNV-1a of what follows it.
std::string repair_plans(const std::string& bytes) {
  size_t line = 0;
  for (int i = 0; i < 3; ++i) line = bytes.find('\n', line) + 1;
  const size_t records = bytes.find('\n', line) + 1;
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = records; i < bytes.size(); ++i) {
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3;
  }
  return bytes.substr(0, line) + std::to_string(hash) + "\n" + bytes.substr(records);
}

constexpr FuzzTarget kTargets[] = {
    {.name = "yaml", .read = read_yaml, .seeds = yaml_seeds, .refusal = ExitCode::kUsage},
    {.name = "gemm_plans", .read = read_plans, .seeds = plan_seeds, .repair = repair_plans},
};

}  // namespace

std::span<const FuzzTarget> text_targets() { return kTargets; }

}  // namespace bertha::fuzz
