#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "harness/backend.h"
#include "harness/cli/attention_dump.h"
#include "harness/cli/bench_batches.h"
#include "harness/cli/bench_commands.h"
#include "harness/cli/bench_op_cases.h"
#include "harness/cli/choice.h"
#include "harness/cli/config_options.h"
#include "harness/cli/option_checks.h"
#include "harness/cli/rank_config.h"
#include "harness/comm/binding.h"
#include "harness/model/device_batch.h"
#include "harness/report/attention_bench_report.h"
#include "harness/report/files.h"
#include "harness/train/precision.h"
#include "kernels/base/error.h"
#include "kernels/bench/op_bench.h"
#include "kernels/bench/op_cases.h"

namespace bertha {
namespace {

struct AttentionOptions {
  std::string dtype;
  std::string lengths;
  std::string json;
  std::string dump;
  int64_t tokens = 24576;
  int64_t calls = 100;
  double peak_tflops = 0;  // 0 = measured
  bool lanes = false;
};

/// One kind of attention kernels, ready to run.
struct Contender {
  std::string kernels;
  Backend backend;
  std::unique_ptr<OpBench> bench;
};

/// Everything that the benchmark of one process needs.
struct Setting {
  Config config = {};
  BackendChoice choice = {};
  CoreShare cores = {};
  BenchModel model = {};
  DType io = DType::kF32;

  /// The kernels that cuda.attention leads to; "" on the CPU.
  std::string describe(const CudaConfig& cuda) const {
    return describe_attention(choice, cuda,
                              {.io = io,
                               .head_size = model.hidden / model.heads,
                               .max_seq_tokens = model.mask_width,
                               .has_dropout = model.attention_dropout > 0});
  }

  Contender contender(const std::string& variant, World& world) const {
    CudaConfig cuda = config.cuda;
    cuda.attention = variant;
    const std::string kernels = describe(cuda);
    const int threads = config.train.threads_per_rank > 0
                            ? static_cast<int>(config.train.threads_per_rank)
                            : cores.threads;
    Contender made{.kernels = kernels.empty() ? "cpu" : kernels,
                   .backend = make_backend(choice, cuda, threads, world),
                   .bench = nullptr};
    made.bench = std::make_unique<OpBench>(OpBench::Parts{.device = made.backend.device.get(),
                                                          .stream = made.backend.stream.get(),
                                                          .ops = made.backend.ops.get(),
                                                          .io = io,
                                                          .reference_threads = cores.threads});
    return made;
  }
};

/// The variants that cuda.attention names: all there are for auto. What cannot serve the model is
/// noted then, and refused where it is named.
std::vector<Contender> contenders(const Setting& setting, World& world,
                                  std::vector<std::string>& notes) {
  const std::string& asked = setting.config.cuda.attention;
  const bool is_one = setting.choice.kind == BackendChoice::Kind::kCpu || asked != "auto";
  std::vector<Contender> all;
  all.push_back(setting.contender(is_one ? asked : "grouped", world));
  if (is_one) return all;
  try {
    all.push_back(setting.contender("persistent", world));
  } catch (const Error& error) {
    if (error.code != ExitCode::kUsage) throw;
    notes.push_back(concat("persistent is not measured: ", error.what()));
  }
  return all;
}

AttentionMix mix_of(const BenchBatch& batch) {
  AttentionMix mix{.name = batch.name, .lengths = {}, .token_rows = batch.rows()};
  for (size_t b = 1; b < batch.cu_seqlens.size(); ++b) {
    mix.lengths.push_back(batch.cu_seqlens[b] - batch.cu_seqlens[b - 1]);
  }
  return mix;
}

std::vector<float> dropouts(const BenchModel& model) {
  if (model.attention_dropout == 0) return {0};
  return {0, model.attention_dropout};
}

/// Both directions over one batch. The kinds of kernels take turns, so that the clock of a warm
/// device is the same for all.
void measure(const Setting& setting, const BenchBatch& batch, const AttentionOptions& options,
             std::vector<Contender>& contenders, AttentionBenchReport& report) {
  for (const float dropout : dropouts(setting.model)) {
    for (const OpCase& op : attention_cases(setting.model, batch, dropout)) {
      const bool is_backward = op.operation == "attention_bwd";
      std::vector<std::string> measured;
      for (const Contender& contender : contenders) {
        const std::string kernels = kernels_of(contender.kernels, is_backward);
        if (std::ranges::find(measured, kernels) != measured.end()) continue;
        measured.push_back(kernels);
        OpResult found = contender.bench->run(op, options.calls);
        report.rows.push_back({.mix = batch.name,
                               .dropout = static_cast<double>(dropout),
                               .is_backward = is_backward,
                               .kernels = kernels,
                               .times_us = std::move(found.times_us),
                               .flops = found.flops,
                               .error = found.error,
                               .worst = found.worst});
      }
    }
  }
}

/// The sequences of one group of a batch.
BenchBatch only(const BenchBatch& batch, const SequenceGroup& group, int64_t multiple) {
  BenchBatch part;
  part.name = batch.name;
  part.tokens = group.num_tokens;
  part.word_ids.resize(static_cast<size_t>(round_up(group.num_tokens, multiple)));
  for (int64_t seq = 0; seq <= group.num_seqs; ++seq) {
    part.cu_seqlens.push_back(batch.cu_seqlens[static_cast<size_t>(group.first_seq + seq)] -
                              static_cast<int32_t>(group.first_token));
  }
  part.groups = {group};
  part.groups.front().first_seq = 0;
  part.groups.front().first_token = 0;
  return part;
}

std::vector<LaneSpan> lanes_of(const Setting& setting, const OpCase& op,
                               const Contender& contender) {
  std::vector<LaneSpan> spans;
  contender.bench->run_once(op, [&](const OpCall& call) {
    spans = attention_lanes(setting.choice, contender.backend, [&](Ops& ops) {
      op.call({.ops = ops, .tensors = call.tensors, .extent = call.extent});
    });
  });
  return spans;
}

/// The groups of a batch on their streams, and each by itself.
std::vector<AttentionTimeline> timelines_of(const Setting& setting, const BenchBatch& batch,
                                            const Contender& contender) {
  const float dropout = setting.model.attention_dropout;
  const int64_t multiple = contender.backend.device->token_multiple();
  std::vector<AttentionTimeline> timelines;
  for (const OpCase& op : attention_cases(setting.model, batch, dropout)) {
    timelines.push_back({.mix = batch.name,
                         .dropout = static_cast<double>(dropout),
                         .is_backward = op.operation == "attention_bwd",
                         .groups = {}});
    for (const LaneSpan& span : lanes_of(setting, op, contender)) {
      timelines.back().groups.push_back({.span = span});
    }
  }
  for (const SequenceGroup& group : batch.groups) {
    const std::vector<OpCase> alone =
        attention_cases(setting.model, only(batch, group, multiple), dropout);
    for (size_t direction = 0; direction < alone.size(); ++direction) {
      for (const LaneSpan& span : lanes_of(setting, alone[direction], contender)) {
        for (AttentionLaneRow& row : timelines[direction].groups) {
          if (row.span.longest_seq_tokens != group.longest_seq_tokens) continue;
          row.alone_us = span.end_us - span.begin_us;
        }
      }
    }
  }
  return timelines;
}

void dump(const Setting& setting, const std::vector<BenchBatch>& batches, const std::string& folder,
          const std::vector<Contender>& contenders) {
  std::filesystem::create_directories(folder);
  for (const BenchBatch& batch : batches) {
    const OpCase op = attention_cases(setting.model, batch, setting.model.attention_dropout).back();
    for (const Contender& contender : contenders) {
      const std::string path = dump_path(folder, batch.name, contender.kernels);
      contender.bench->run_once(op, [&](const OpCall& call) {
        write_attention_dump(path, op, call, *contender.backend.device, *contender.backend.stream,
                             {.mix = batch.name,
                              .kernels = contender.kernels,
                              .dropout = setting.model.attention_dropout,
                              .site = kBenchDropoutSite});
      });
      std::cout << "written: " << path << "\n";
    }
  }
}

Setting make_setting(const CLI::App& command, const AttentionOptions& options, World& world) {
  Setting setting{.config = config_for_ranks(command, world, BatchRule::kAnySize)};
  Config& config = setting.config;
  if (!options.dtype.empty()) config.train.precision = options.dtype;
  if (config.train.precision == "fp16") config.optimizer.loss_scale = "dynamic";  // fp16 wants one
  setting.choice = choose_backend(config.train, world);
  setting.cores = take_core_share(world, setting.choice.gpu_bus_id);
  setting.model = bench_model(config);
  setting.io = planned_io(config.train, setting.choice.kind == BackendChoice::Kind::kCuda);
  return setting;
}

int run_attention_bench(const CLI::App& command, const AttentionOptions& options,
                        CommandContext& context) {
  World& world = *context.world;
  if (world.size() != 1) {
    fail(ExitCode::kUsage, "bench attention runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  const Setting setting = make_setting(command, options, world);
  const Config& config = setting.config;
  std::vector<std::string> notes;
  std::vector<Contender> all = contenders(setting, world, notes);
  const Device& device = *all.front().backend.device;
  choose_io(config, device);
  const std::vector<BenchBatch> batches = bench_batches(config,
                                                        {.lengths_path = options.lengths,
                                                         .tokens = options.tokens,
                                                         .multiple = device.token_multiple()},
                                                        world);
  AttentionBenchReport report{.model = config.model.name,
                              .device = device.description(),
                              .precision = name(setting.io),
                              .date = utc_date(),
                              .chosen = setting.describe(config.cuda),
                              .notes = notes,
                              .heads = setting.model.heads,
                              .head_size = setting.model.hidden / setting.model.heads,
                              .peak_flops_per_second = 1e12 * options.peak_tflops,
                              .peak_is_given = options.peak_tflops > 0,
                              .mixes = {},
                              .rows = {},
                              .timelines = {}};
  if (options.lanes) {
    for (const BenchBatch& batch : batches) {
      for (AttentionTimeline& timeline : timelines_of(setting, batch, all.front())) {
        report.timelines.push_back(std::move(timeline));
      }
    }
  }
  for (const BenchBatch& batch : batches) {
    report.mixes.push_back(mix_of(batch));
    measure(setting, batch, options, all, report);
  }
  if (!report.peak_is_given) {
    double largest_flops = 0;
    for (const AttentionRow& row : report.rows) {
      largest_flops = std::max(largest_flops, row.flops);
    }
    report.peak_flops_per_second = all.front().bench->product_roof(largest_flops, options.calls);
  }
  std::cout << attention_bench_text(report) << attention_lanes_text(report.timelines);
  if (!options.json.empty()) write_text_file(options.json, attention_bench_json(report));
  if (!options.dump.empty()) dump(setting, batches, options.dump, all);
  return static_cast<int>(all_verified(report) ? ExitCode::kSuccess : ExitCode::kNumeric);
}

}  // namespace

void add_bench_attention_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& attention = add_command(
      bench, chosen,
      {.name = "attention",
       .description = "Checks and times attention forward and backward with every kind of kernels "
                      "that takes the model, over batches of mixed, long and short sequences, with "
                      "and without dropout, beside a large product. Exit code 7 when a result is "
                      "wrong.",
       .examples = {"bertha bench attention --lengths lengths.txt --json attention.json",
                    "bertha bench attention --set cuda.attention=grouped --tokens 8192",
                    "bertha bench attention --dump dump --repeats 5"}});
  const auto options = std::make_shared<AttentionOptions>();
  add_choice<std::string>(attention, "--dtype", options->dtype,
                          {{"bf16", "bf16"}, {"fp16", "fp16"}, {"fp32", "fp32"}},
                          "Short for train.precision");
  attention
      .add_option("--tokens", options->tokens,
                  concat("Live tokens of each batch (default ", options->tokens, ")"))
      ->check(whole_number(1, int64_t{1} << 24))
      ->type_name("N");
  attention
      .add_option("--lengths", options->lengths,
                  "Counts of sequence lengths, as `bench step` reads them, for a batch of mixed "
                  "lengths")
      ->type_name("FILE");
  attention
      .add_option("--repeats", options->calls,
                  concat("Calls to time (default ", options->calls, ")"))
      ->check(whole_number(1, 1000000))
      ->type_name("N");
  attention
      .add_option("--peak-tflops", options->peak_tflops,
                  "What rates are compared with (default: a large product, measured)")
      ->check(above_zero())
      ->type_name("X");
  attention
      .add_option(
          "--dump", options->dump,
          "Folder for what went in and came out with the model's dropout, a safetensors "
          "file per mix and kind of kernels, for tests/comparisons/attention_peers.py --check")
      ->type_name("DIR");
  attention.add_flag("--lanes", options->lanes,
                     "Also show when the groups of the grouped kernels ran on their streams, and "
                     "how long each takes by itself");
  attention.add_option("--json", options->json, "File for the same figures as JSON")
      ->type_name("FILE");
  add_config_options(attention, ShortOptions::kStepBench);
  attention.callback([&attention, &chosen, options] {
    chosen.action = [&attention, options](CommandContext& context) {
      return run_attention_bench(attention, *options, context);
    };
  });
}

}  // namespace bertha
