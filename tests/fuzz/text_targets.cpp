#include <cstdio>

#include "harness/config/load.h"
#include "harness/mlperf/curve_doctor.h"
#include "harness/mlperf/log_writer.h"
#include "harness/mlperf/submission.h"
#include "harness/report/metrics.h"
#include "harness/report/system_facts.h"
#include "harness/train/post_mortem.h"
#include "kernels/cuda/gemm/gemm_plan_file.h"
#include "kernels/ops/gemm_shape.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/harness/report/fixtures.h"
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

/// --- MLLOG and metrics.jsonl ---

void read_mllog(const std::string& bytes) {
  const std::string path = scratch_file("result_0.txt", bytes);
  use(std::ssize(submission_report(check_submission({path}), RuleSet::k5_0_0)));
}

std::vector<std::string> mllog_seeds() {
  const std::string path = scratch_path("seed.txt");
  int64_t now = 1715252859434;
  MlperfLog log(path, [&now] { return now += 7; });
  log.init_start(test::test_config());
  log.init_stop(test::test_config(), test::test_facts());
  log.run_start(0);
  log.eval_start(448);
  log.eval_stop(test::test_eval(1, 0.7203));
  log.run_stop({.status = "success", .samples = 448}, 10000);
  return {bytes_of(path)};
}

void read_metrics_lines(const std::string& bytes) {
  const Metrics metrics = read_metrics(scratch_file("metrics.jsonl", bytes));
  use(std::ssize(curve_report("metrics.jsonl", examine_curve(metrics))));
}

std::vector<std::string> metrics_seeds() {
  const std::string path = scratch_path("seed.jsonl");
  MetricsFile file(path);
  file.run(test::test_config(), test::test_facts());
  file.data(test::test_data_facts());
  for (const int64_t step : {1, 2, 3}) file.step(test::test_step(step));
  file.eval(test::test_eval(3, 0.5));
  file.event("an event");
  file.stop({.status = "success", .samples = 448});
  return {bytes_of(path)};
}

/// --- system.json of a run ---

void read_system(const std::string& bytes) {
  const std::string path = scratch_file("system.json", bytes);
  const SystemFacts facts = read_system_facts(path);
  write_system_facts(scratch_path("again.json"), facts);
  use(read_system_facts(scratch_path("again.json")).nodes);
}

std::vector<std::string> system_seeds() {
  const std::string path = scratch_path("system.json");
  write_system_facts(path, {.host = {}, .versions = {{"bertha", "1.0.0"}}});
  return {bytes_of(path)};
}

/// --- the post-mortem of a rank ---

void read_post_mortem_bytes(const std::string& bytes) {
  const PostMortem read = read_post_mortem(scratch_file("post_mortem.rank_0000.json", bytes));
  for (const auto& micro : read.traced.micro_batches) use(micro.batch.num_tokens);
  use(std::ssize(read.figures));
}

std::vector<std::string> post_mortem_seeds() {
  return {R"({"step": 3, "not_finite": ["weight a"], "replay": {
  "config": "model: {layers: 1, max_positions: 64}\ndata: {max_seq_tokens: 64}\n",
  "rank": 0, "num_ranks": 2, "io": "bf16", "device": "a GPU", "dropout_seed": 1,
  "first_micro_step": 4, "loss_scale": 1.0, "fp8_scale_exponents": [1, -2],
  "micro_batches": [{"masked": 2, "seqs": 1, "numerator": 1.0, "nsp_weight": 1.0, "samples": [
    {"id": 7, "token_ids": [2, 5, 9, 3], "segment_ids": [0, 0, 1, 1], "masked_positions": [1, 2],
     "masked_ids": [8, 9], "next_sentence_label": 1}]}],
  "figures": [{"name": "a", "elements": 4, "not_finite": 0, "largest": 1.5, "mean": 0.5,
               "rms": 1.0}]}})"};
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
    tuned[key] = {.algorithm = {~uint64_t{0}, 0, 1}, .us = 351.25};
  }
  save_tuned_gemms(scratch_path("seed_plans.txt"), kHere, tuned);
  return {bytes_of(scratch_path("seed_plans.txt"))};
}

/// The last word is the checksum: 64-bit FNV-1a of what stands before it.
std::string repair_plans(const std::string& bytes) {
  const std::string covered = bytes.substr(0, bytes.rfind(' ') + 1);
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : covered) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash));
  return covered + digits + "\n";
}

constexpr FuzzTarget kTargets[] = {
    {.name = "yaml", .read = read_yaml, .seeds = yaml_seeds, .refusal = ExitCode::kUsage},
    {.name = "mllog", .read = read_mllog, .seeds = mllog_seeds},
    {.name = "metrics", .read = read_metrics_lines, .seeds = metrics_seeds},
    {.name = "system_json", .read = read_system, .seeds = system_seeds},
    {.name = "post_mortem", .read = read_post_mortem_bytes, .seeds = post_mortem_seeds},
    {.name = "gemm_plans", .read = read_plans, .seeds = plan_seeds, .repair = repair_plans},
};

}  // namespace

std::span<const FuzzTarget> text_targets() { return kTargets; }

}  // namespace bertha::fuzz
