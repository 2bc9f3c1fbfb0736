#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/config/keys.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/cli/run_program.h"
#include "tests/support/load_settings.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

TEST(CommandLine, HelpNamesTheWordsThatAnOptionTakes) {
  const auto help = [](const std::string& command) { return run_line(command + " --help").out; };
  for (const std::string command : {"prepare", "convert"}) {
    EXPECT_THAT(help("data " + command), HasSubstr("--layout variable|fixed "));
  }
  EXPECT_THAT(help("bench loader"), HasSubstr("--exchange-padding off|allgather|lengths\n"));
  EXPECT_THAT(help("train"), HasSubstr("--backend auto|cpu|cuda "));
  EXPECT_THAT(help("data verify"), HasSubstr("Usage: bertha data verify [OPTIONS] PATH\n"));
  EXPECT_THAT(help("data vocab"), HasSubstr("--text PATH... "));
  EXPECT_THAT(help("data vocab"), HasSubstr("File to write (required)\n"));
}

TEST(CommandLine, EvalOffersOnlyWhatItHeeds) {
  const std::string help = run_line("eval --help").out;
  for (const char* const option : {"--config", "--set", "--target-accuracy", "--backend"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
  for (const char* const option : {"--max-steps", "--lr", "--resume", "--init-checkpoint"}) {
    EXPECT_THAT(help, Not(HasSubstr(option)));
  }
}

TEST(CommandLine, HelpOfACommandNeedsNoDashes) {
  EXPECT_EQ(run_line("help config show").out, run_line("config show --help").out);
}

TEST(CommandLine, VersionNamesHashBackendsAndLibraries) {
  const Ran ran = run_line("--version");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(run_line("-V").out, ran.out);
  EXPECT_THAT(
      ran.out,
      MatchesRegex("bertha [0-9.]+(-dev)? \\(([0-9a-f]+\\+?|unknown)\\)\nbackends: cpu(.|\n)*"));
  for (const std::string library : {"Open MPI", "HDF5", "OpenBLAS", "yaml-cpp", "CLI11"}) {
    EXPECT_THAT(ran.out, ContainsRegex("\n" + library + " [0-9]+\\."));
  }
}

// Libraries of CUDA cost memory and time at every start; those that a run needs load then.
TEST(CommandLine, StartsWithoutTheLibrariesOfCuda) {
  const Ran ran = run_program({"/usr/bin/env", "LD_TRACE_LOADED_OBJECTS=1", BERTHA_PROGRAM});
  EXPECT_THAT(ran.out, HasSubstr("libhdf5"));
  EXPECT_THAT(ran.out, Not(HasSubstr("libcublas")));
  EXPECT_THAT(ran.out, Not(HasSubstr("libcudart")));
  EXPECT_THAT(ran.out, Not(HasSubstr("libcuda.so")));
}

TEST(CommandLine, MistakesEndWithCodeTwoAndOneSentence) {
  struct Case {
    std::string line;
    std::string err;
  };
  const std::vector<Case> cases{
      {"paln", "unknown command paln; did you mean plan?"},
      {"zebra", "unknown command zebra; see bertha --help"},
      {"wach", "unknown command wach; did you mean watch?"},
      {"-q watch x", "watch must be the first word; write bertha watch"},
      {"config shwo", "config: unknown command shwo; did you mean show?"},
      {"plan --max-stesp 3", "plan: unknown option --max-stesp; did you mean --max-steps?"},
      {"plan --max_stesp=3", "plan: unknown option --max-stesp; did you mean --max-steps?"},
      {"--versoin", "unknown option --versoin; did you mean --version?"},
      {"plan extra", "plan: unknown argument extra; see bertha plan --help"},
      {"plan --gpu-memory lots",
       "--gpu-memory: found \"lots\", want a size such as 141GB or 80GiB"},
      {"config check --set train.sede=1",
       "--set train.sede=1: train.sede: unknown key; did you mean train.seed?"},
      {"config check --max-steps none",
       "--max-steps none: train.max_steps: found \"none\", want an integer (64k and 1.5M are fine "
       "too)"},
      {"plan --set model.heads=3",
       "--set model.heads=3: model.heads = 3 does not divide model.hidden = 1024; choose a divisor "
       "of model.hidden"},
      {"config check --global-batch 7 --ranks 2",
       "--global-batch 7: train.global_batch_seqs = 7 is not divisible by 2 ranks x "
       "train.accumulation_steps = 1 (2); choose 8"},
      {"data convert a -o b --layout fxed",
       "data convert: --layout: found \"fxed\", want variable|fixed; see bertha data convert "
       "--help"},
      {"bench loader --seconds 0",
       "bench loader: --seconds: found \"0\", want a number above 0, up to 1000000; see bertha "
       "bench loader "
       "--help"},
      {"plan --ranks 0",
       "plan: --ranks: found \"0\", want a whole number, 1 to 1048576; see bertha plan --help"},
      {"data verify a --threads two",
       "data verify: --threads: found \"two\", want a whole number, 0 or more; see bertha data "
       "verify "
       "--help"},
      {"plan --config none.yaml", "none.yaml: no such file; give the path of a YAML file"},
  };
  for (const Case& wrong : cases) {
    const Ran ran = run_line(wrong.line);
    EXPECT_EQ(ran.code, 2) << wrong.line;
    EXPECT_EQ(ran.err, "bertha: error: " + wrong.err + "\n") << wrong.line;
    EXPECT_THAT(ran.out, Not(HasSubstr("missing"))) << wrong.line;
  }
}

// Such lines once ran the second command without what it needs.
TEST(CommandLine, TwoCommandsOnALineAreAMistake) {
  for (const char* const line :
       {"config show train", "data verify x train", "plan train", "train plan", "bench plan"}) {
    const Ran ran = run_line(line);
    EXPECT_EQ(ran.code, 2) << line;
    EXPECT_THAT(ran.out, IsEmpty()) << line;
    EXPECT_THAT(ran.err, MatchesRegex("bertha: error: [^\n]*unknown [^\n]*\n")) << line;
  }
}

// The first examples of the help, as a newcomer types them.
TEST(CommandLine, DataThatIsMissingIsNamedWithItsKey) {
  const TempFolder folder;
  const std::string source = kSourceDir;
  const std::string cure =
      "; run launch/quickstart, or prepare shards with `bertha data prepare` and give their "
      "folder\n";
  const auto train = run_line("train", folder.path(""));
  EXPECT_EQ(train.code, 2);
  EXPECT_EQ(train.err, "bertha: error: data.train is not set" + cure.substr(0, cure.size() - 1) +
                           "; data.synthetic=true trains on synthetic data\n");
  const auto eval = run_line("eval --checkpoint not_there", folder.path(""));
  EXPECT_EQ(eval.code, 2);
  EXPECT_EQ(eval.err, "bertha: error: data.eval is not set" + cure.substr(0, cure.size() - 1) +
                          "; its --hold-out makes them, in the folder eval\n");
  const auto quickstart =
      run_line("train --config " + source + "/configs/quickstart.yaml", folder.path(""));
  EXPECT_EQ(quickstart.code, 4);
  EXPECT_THAT(quickstart.err, EndsWith("bertha: error: data.train: runs/quickstart/data/"
                                       "train: no such file or folder" +
                                       cure));
}

// What needs neither data nor a trained model, from the folder of the sources.
TEST(CommandLine, TheExamplesOfPlanAndConfigRun) {
  size_t count = 0;
  for (const std::string command : {"plan", "config", "config show", "config check"}) {
    const std::string help = run_line(command + " --help").out;
    std::istringstream lines(help.substr(0, help.find("\nUsage: ")));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("  bertha ")) continue;
      const Ran ran = run_line(line.substr(9), kSourceDir);
      // 4: plan names data that launch/quickstart has not made yet.
      const bool mistake = line.find("model.heads=3") != std::string::npos;
      const bool plan = line.starts_with("  bertha plan");
      EXPECT_TRUE(ran.code == (mistake ? 2 : 0) || (plan && ran.code == 4)) << line << ran.err;
      EXPECT_EQ(ran.out.empty(), mistake) << line;
      ++count;
    }
  }
  EXPECT_GE(count, 12u);
}

TEST(CommandLine, AnUnfinishedCommandListsWhatCanFollow) {
  const Ran none = run_line("");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, StartsWith("bertha: error: want a command: "));
  const Ran ran = run_line("config");
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.err,
            "bertha: error: config: want a command: show, check, diff; see bertha config --help\n");
}

TEST(CommandLine, TheLastWordWinsAndOriginsNameIt) {
  const TempFolder folder;
  const std::string file = folder.write("a.yaml", "train: {seed: 3, max_steps: 5}\n");
  const Ran ran =
      run_line("config show --seed 4 -c " + file + " --set train.seed=5 --seed=6 --lr 1e-3");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("\n  seed: 6 +# --seed 6\n"));
  EXPECT_THAT(ran.out, ContainsRegex("\n  max_steps: 5 +# steps; .*a.yaml:1:18\n"));
  EXPECT_THAT(ran.out, ContainsRegex("\n  base_learning_rate: 0.001 +# --lr 1e-3\n"));
  EXPECT_THAT(ran.out, ContainsRegex("\n  beta_1: 0.9 +# default\n"));
}

TEST(CommandLine, ConfigShowPlainLoadsBackEqual) {
  const TempFolder folder;
  const Ran ran = run_line("config show --plain --seed 9");
  const Config config = test::load_settings({folder.write("a.yaml", ran.out)}).config;
  EXPECT_EQ(config.train.seed, 9);
  EXPECT_EQ(to_yaml(config), ran.out);
}

TEST(CommandLine, ConfigDiffShowsBothValuesAndTheirOrigins) {
  const TempFolder folder;
  const std::string a = folder.write("a.yaml", "train: {seed: 3, max_steps: 5}\n");
  folder.write("run/resolved.yaml", "train: {seed: 9}\n");
  folder.write("run/resolved.resume1.yaml", "train: {max_steps: 5}\n");
  for (const char* start : {"run/env.json", "run/env.resume1.json"}) folder.write(start, "{}");
  const Ran ran = run_line("config diff a.yaml run", folder.path(""));
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string first = "3  # a.yaml:1:9";
  EXPECT_EQ(ran.out, "key         a.yaml           run\ntrain.seed  " + first + "  " +
                         value_text(*find_key("train.seed"), Config{}) + "  # default\n");
  EXPECT_EQ(run_line("config diff " + a + " " + a).out, "no key differs\n");
  EXPECT_EQ(run_line("config diff " + a + " /none").code, 2);
  EXPECT_EQ(run_line("config diff " + a).code, 2);
}

TEST(CommandLine, ConfigShowDocIsTheTableOfTheReadme) {
  EXPECT_EQ(run_line("config show --doc").out, key_table_markdown());
}

TEST(CommandLine, PlanNeedsNoDataAndSaysWhatIsMissing) {
  const Ran ran = run_line(
      "plan --config configs/mlperf_closed_8gpu_448.yaml --ranks 8 "
      "--gpu-memory 80GiB --set data.vocab=/none/vocab.txt",
      kSourceDir);
  EXPECT_EQ(ran.code, 4) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("336,232,258"));
  EXPECT_THAT(ran.out, HasSubstr("6,700 of 448 sequences on 8 ranks"));
  EXPECT_THAT(ran.out, HasSubstr("step 335  samples 150,000\n"));
  EXPECT_THAT(ran.out, HasSubstr("fits"));
  EXPECT_THAT(ran.out, HasSubstr("missing\n  data.train is not set; prepare shards with"));
  EXPECT_THAT(ran.out, HasSubstr("  data.vocab: /none/vocab.txt does not exist; train one with"));
}

TEST(CommandLine, PlanEndsWithTheCodeThatTheRunWould) {
  const auto plan = [](const std::string& more) { return run_line("plan --ranks 1 " + more); };
  EXPECT_EQ(plan("").code, 0);  // no path is set: that is listed, and no mistake
  EXPECT_THAT(plan("--set data.synthetic=true").out, HasSubstr("tokens: data.synthetic\n"));
  EXPECT_EQ(plan("--gpu-memory 1GB").code, 6);
  const Ran folder = plan("--set data.vocab=/usr");
  EXPECT_EQ(folder.code, 4);
  EXPECT_THAT(folder.out, HasSubstr("data.vocab: /usr: has neither vocab.txt nor tokenizer.json"));
  const Ran no_unit = plan("--gpu-memory 24");
  EXPECT_THAT(no_unit.err, HasSubstr("--gpu-memory: found \"24\", want a size such as 141GB"));
  EXPECT_THAT(no_unit.out, IsEmpty());
  EXPECT_THAT(plan("--set train.max_steps=1e15").err, HasSubstr("2e+07 evaluations"));
  EXPECT_EQ(plan("--set train.max_steps=1e15").code, 2);
  EXPECT_THAT(plan("--set model.layer_norm_epsilon=1e-300").err, HasSubstr("1e-30 to 0.1"));
}

TEST(CommandLine, PlanSaysWhatWouldFit) {
  const auto plan = [](const std::string& more) {
    return run_line("plan --global-batch 448 --ranks 1 " + more).out;
  };
  EXPECT_THAT(plan("--gpu-memory 80GB"),
              ContainsRegex("%: does not fit; [0-9]+ sequences? per micro-batch "
                            "would: set train.accumulation_steps to [0-9]+\n"));
  EXPECT_THAT(plan("--gpu-memory 80GB --set eval.batch_seqs=448"),
              ContainsRegex("steps to [0-9]+, and eval.batch_seqs to [0-9]+\n"));
  EXPECT_THAT(plan("--gpu-memory 1GB"), HasSubstr("not even with one sequence"));
  EXPECT_THAT(plan("--gpu-memory 80GB"), HasSubstr("CUDA context, libraries"));
  EXPECT_THAT(plan("--gpu-memory 10TB"), HasSubstr("%: fits; up to "));
  EXPECT_THAT(plan(""), HasSubstr("CUDA context, libraries"));
  EXPECT_THAT(plan("--backend cpu"), Not(HasSubstr("CUDA context, libraries")));
}

TEST(CommandLine, PlanEstimatesTheTimeOfARunOnAGpu) {
  const TempFolder folder;
  const std::string json = folder.path("plan.json");
  const auto plan = [&](const std::string& more) {
    return run_line("plan --global-batch 448 " + more);
  };
  const std::string one = plan("--ranks 1 --grad-accum 4 --json " + json).out;
  EXPECT_THAT(one, ContainsRegex("at +[0-9.]+TFLOP/s of each H200 in 16 bits"));
  EXPECT_THAT(one, ContainsRegex("run +[0-9hms]+ to the last step"));
  const auto report = nlohmann::json::parse(std::ifstream(json));
  EXPECT_GT(report.at("time").at("step_ms").get<double>(), 0);
  EXPECT_EQ(report.at("command"), "plan");
  EXPECT_EQ(report.at("exit_code"), 0);
  const Ran small = plan("--ranks 1 --gpu-memory 1GB --json -");
  EXPECT_EQ(small.code, 6);
  const auto printed = nlohmann::json::parse(small.out);  // in place of the text
  EXPECT_EQ(printed.at("exit_code"), 6);
  EXPECT_EQ(printed.at("fits"), false);
  EXPECT_THAT(plan("--ranks 1 --backend cpu").out,
              HasSubstr("not estimated: only 16-bit and fp8 steps"));
}

TEST(CommandLine, NamesOfTheToolsAreHandedOver) {
  const TempFolder folder;
  folder.write("bertha-tools", "#!/bin/sh\necho \"$BERTHA $*\"\nexit 9\n");
  std::filesystem::permissions(folder.path("bertha-tools"), std::filesystem::perms::owner_all);
  const Ran found = run_program(
      {"/usr/bin/env", "PATH=" + folder.path(""), BERTHA_PROGRAM, "watch", "a run", "--once"});
  EXPECT_EQ(found.code, 9);
  EXPECT_EQ(found.out,
            std::filesystem::canonical(BERTHA_PROGRAM).string() + " watch a run --once\n");
  const Ran none = run_program(
      {"/usr/bin/env", "-C", folder.path(""), "PATH=/nowhere", BERTHA_PROGRAM, "plot", "x"});
  EXPECT_EQ(none.code, 5);
  EXPECT_THAT(none.err, HasSubstr("plot needs bertha-tools, which is not installed"));
  const Ran ranks = run_program({"/usr/bin/env", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0",
                                 "PATH=" + folder.path(""), BERTHA_PROGRAM, "watch"});
  EXPECT_EQ(ranks.code, 5);
  EXPECT_THAT(ranks.err, HasSubstr("watch: OMPI_COMM_WORLD_SIZE=2, want one process"));
}

TEST(CommandLineOnRanks, HelpIsPrintedOnce) {
  const Ran ran = run_line_on_ranks(2, "bench loader --help");
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, HasSubstr("Examples:"));
  EXPECT_EQ(ran.out.find("Examples:"), ran.out.rfind("Examples:")) << ran.out;
}

}  // namespace
}  // namespace bertha
