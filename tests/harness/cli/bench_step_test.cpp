#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/cli/bench_fixture.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

class BenchStepTest : public BenchFixture {
 protected:
  BenchStepTest() : BenchFixture("step --steps 3 --warmup 1") {}
};

TEST_F(BenchStepTest, TimesStepsWithoutData) {
  const Ran ran = run("");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("training step of tiny, tanh GELU, f32, 1 rank, cpu, 1 thread\n"));
  EXPECT_THAT(ran.out, HasSubstr("utilization (MFU)       unknown; give --peak-tflops\n"));
  const Json found = json();
  EXPECT_EQ(found["steps"], 3);
  EXPECT_EQ(found["seqs_per_step"], 8.0);
  EXPECT_EQ(found["tokens_per_step"], 8 * 64.0);
  EXPECT_EQ(found["masked_per_step"], 8 * 9.0);
  EXPECT_EQ(found["skipped_updates"], 0);
  // Near log 300 + log 2: it has not learned anything yet.
  EXPECT_NEAR(found["loss"].get<double>(), 6.4, 0.5);
  EXPECT_GT(found["peak_memory_bytes"], 1 << 20);
  double phases_ms = 0;
  for (const Json& ms : found["phase_ms"]) phases_ms += ms.get<double>();
  EXPECT_GT(phases_ms, 0);
  EXPECT_LE(phases_ms, 1.001 * found["step_ms"]["mean"].get<double>());
  EXPECT_FALSE(std::filesystem::exists(folder_.path("runs")));
}

TEST_F(BenchStepTest, TimesOperationsAndCountsThem) {
  const Ran ran = run("--by-operation --peak-tflops 0.5");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr(" % of 0.5 TFLOP/s\n"));
  const Json found = json();
  double calls = 0;
  double ms = 0;
  for (const Json& operation : found["operations"]) {
    ms += operation["ms_per_step"].get<double>();
    if (operation["name"] == "linear_fwd 512x64x32") calls = operation["calls_per_step"];
  }
  EXPECT_EQ(calls, 1.0);  // the last layer computes fewer rows there
  EXPECT_LE(ms, 1.001 * found["step_ms"]["mean"].get<double>());
  EXPECT_THAT(ran.out, ContainsRegex("\n  attention_bwd +2.0 "));
  EXPECT_THAT(ran.out, ContainsRegex("\n  lamb_step +1.0 "));
}

TEST_F(BenchStepTest, AdamWIsOneOperation) {
  const Ran ran = run("--by-operation --set optimizer.name=adamw");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("\n  adamw_step +1.0 "));
  EXPECT_THAT(ran.out, Not(ContainsRegex("lamb_(moments|apply|step)")));
}

TEST_F(BenchStepTest, OverTwoRanksDealsLengthsAndKeepsToTheTokens) {
  const std::string lengths = folder_.write("lengths.txt", "# length count\n10 5\n33 7\n64 9\n");
  const Ran ran =
      run_on_two_ranks("--lengths " + lengths + " --tokens-per-rank 200 --grad-accum 2");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json found = json();
  EXPECT_EQ(found["ranks"], 2);
  EXPECT_LE(found["tokens_per_step"], 800.0);
  EXPECT_GE(found["tokens_per_step"], 792.0);
  EXPECT_LE(found["most_tokens_per_rank"], 400.0);
  EXPECT_GT(found["seqs_per_step"], 12.0);
}

TEST_F(BenchStepTest, WrongInputsEndWithOneSentence) {
  const std::string wrong = folder_.write("wrong.txt", "3 4\nx\n");
  const Ran file = run_on_two_ranks("--lengths " + wrong);
  EXPECT_EQ(file.code, 4);
  EXPECT_THAT(file.err, HasSubstr("wrong.txt:2: found \"x\""));
  EXPECT_EQ(run("--lengths /nowhere").code, 4);
  const Ran tokens = run("--tokens-per-rank 63");
  EXPECT_EQ(tokens.code, 2);
  EXPECT_THAT(tokens.err, HasSubstr("63 tokens per rank, want at least the longest sequence, 64."));
  EXPECT_EQ(run("--set log.profile_steps=4").code, 2);
  EXPECT_EQ(run("--profile-steps 2:3").code, 0);
}

/// `bertha LINE` with so much address space.
Ran run_within_mib(int64_t mib, const std::string& line) {
  const std::string limited = concat("ulimit -v ", mib * 1024, " && exec \"$@\"");
  return run_program(with({"/bin/sh", "-c", limited, "sh", BERTHA_PROGRAM}, split(line)));
}

TEST_F(BenchStepTest, TheLargestBatchIsTheLastThatRunsInTheMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer reserves more address space than any limit leaves";
#endif
  // Logits of the most masked tokens allowed, of which few are computed: 8 MiB for each sequence.
  const Ran some = run_within_mib(900, line("--largest-batch --set model.vocab_size=32760 --set "
                                            "data.max_masked_per_seq=64"));
  ASSERT_EQ(some.code, 0) << some.err;
  const int64_t most = json()["largest_micro_batch_seqs"];
  EXPECT_GT(most, 1);
  EXPECT_THAT(some.out, HasSubstr(concat("largest micro-batch: ", most, " sequences")));
  EXPECT_THAT(some.err, HasSubstr(concat(most + 1, " sequences: out of memory")));
  const Ran none = run_within_mib(900, line("--largest-batch --set model.feed_forward=60000 --set "
                                            "model.layers=200"));
  EXPECT_EQ(none.code, 6) << none.err;
  EXPECT_THAT(none.err, HasSubstr("not even one sequence of 64 tokens fits"));
  EXPECT_EQ(run_on_two_ranks("--largest-batch").code, 2);
}

TEST_F(BenchStepTest, MemoryAndThreadsThatThereAreNotHaveTheirKeys) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer reserves more address space than any limit leaves";
#endif
  const Ran memory =
      run_within_mib(900, line("--set model.feed_forward=60000 --set model.layers=200"));
  EXPECT_EQ(memory.code, 6);
  EXPECT_THAT(memory.err, HasSubstr("train.global_batch_seqs"));
  EXPECT_THAT(memory.err, HasSubstr("`bertha plan` forecasts"));
  const Ran threads = run_within_mib(900, line("--set train.threads_per_rank=4096"));
  EXPECT_EQ(threads.code, 5);
  EXPECT_THAT(threads.err, HasSubstr("of 4096 cannot be started"));
  EXPECT_THAT(threads.err, HasSubstr("train.threads_per_rank sets the number of threads"));
}

}  // namespace
}  // namespace bertha
