#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "harness/backend.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/cli/bench_batches.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/options.h"
#include "harness/comm/binding.h"
#include "harness/report/report.h"
#include "harness/report/text_format.h"
#include "harness/train/precision.h"
#include "kernels/base/bench/bench_report.h"
#include "kernels/base/bench/op_bench.h"
#include "kernels/base/error.h"
#include "kernels/bench/gemm_roof.h"
#include "kernels/bench/op_cases.h"
#include "kernels/cpu/cpu_backend.h"

namespace bertha {
namespace {

struct KernelOptions {
  std::vector<std::string> operations;
  std::optional<Precision> dtype;
  std::string lengths;
  std::string json;
  std::string tune;  // retired after 1.0.0
  std::string dump;
  int64_t tokens = 24576;
  int64_t launches = 100;
  double peak_tflops = 0;  // 0 = measured
  double peak_gbps = 0;    // 0 = measured
};

/// A backend and its kind of attention kernels: "grouped"; "" if there is only one kind.
struct Contender {
  std::unique_ptr<Backend> backend;
  DType io;
  std::string attention;
  std::unique_ptr<OpBench<Ops>> bench;

  /// The kernels of the case's direction: `attention` names one for each direction if they differ,
  /// as in "persistent forward, grouped backward".
  std::string kernels(const OpCase& op) const {
    const size_t comma = attention.find(", ");
    if (comma == std::string::npos) return attention.substr(0, attention.find(" ("));
    const std::string part =
        op.operation == "attention_bwd" ? attention.substr(comma + 2) : attention.substr(0, comma);
    return part.substr(0, part.find(' '));
  }
};

/// Backends and model that the benchmark of one process uses.
struct Setting {
  Config config = {};
  RankGpu gpu = {};
  CoreShare cores = {};
  BenchModel model = {};

  Contender contender(CudaOptions::AttentionVariant variant, World& world) const {
    CudaConfig cuda = config.cuda;
    cuda.attention = variant;
    const int threads = cores.threads_for(config.train.threads_per_rank);
    std::unique_ptr<Backend> backend = make_backend(gpu, cuda, threads, world);
    const DType io = choose_io(config, backend->device());
    std::string attention =
        backend->attention_kernels({.io = io,
                                    .head_size = model.hidden / model.heads,
                                    .max_seq_tokens = model.mask_width,
                                    .has_dropout = model.attention_dropout > 0});
    auto bench =
        std::make_unique<OpBench<Ops>>(OpBench<Ops>::Parts{.device = &backend->device(),
                                                           .stream = &backend->stream(),
                                                           .ops = &backend->ops(),
                                                           .make_reference = make_cpu_ops,
                                                           .io = io,
                                                           .reference_threads = cores.threads});
    return {std::move(backend), io, std::move(attention), std::move(bench)};
  }
};

bool is_attention(const OpCase& op) { return op.operation.starts_with("attention_"); }

/// With cuda.attention: auto, all kinds of attention kernels; the first also runs the other
/// operations. Kinds that do not support the model are noted.
std::vector<Contender> contenders(const Setting& setting, bool has_attention, World& world,
                                  std::vector<std::string>& notes) {
  using Variant = CudaOptions::AttentionVariant;
  const Variant asked = setting.config.cuda.attention;
  const bool compares = has_attention && asked == Variant::kAuto && !setting.gpu.is_none();
  std::vector<Contender> all;
  all.push_back(setting.contender(compares ? Variant::kGrouped : asked, world));
  if (!compares) return all;
  for (const Variant kind : {Variant::kPersistent, Variant::kSplit}) {
    try {
      all.push_back(setting.contender(kind, world));
    } catch (const Error& error) {
      if (error.code != ExitCode::kUsage) throw;
      notes.push_back(concat(word_of(kind), " is not measured: ", error.what()));
    }
  }
  return all;
}

/// The kinds of attention kernels take turns, so that the clock of a warm device is the same.
std::vector<OpResult> measure(const std::vector<OpCase>& cases, std::vector<Contender>& contenders,
                              int64_t launches) {
  std::vector<OpResult> rows;
  for (const OpCase& op : cases) {
    for (const Contender& contender : contenders) {
      rows.push_back(contender.bench->run(op, launches));
      if (!is_attention(op)) break;
      rows.back().kernels = contender.kernels(op);
    }
  }
  return rows;
}

/// The name in safetensors: "BF16", "F8_E4M3".
std::string safetensors_word(DType dtype) {
  std::string word = name(dtype);
  std::ranges::transform(word, word.begin(),
                         [](unsigned char letter) { return std::toupper(letter); });
  return is_fp8(dtype) ? "F8_" + word : word;
}

/// FOLDER/all_512-grouped.safetensors.
std::string dump_path(const std::string& folder, const std::string& mix,
                      const std::string& kernels) {
  std::string name = concat(mix, "-", kernels, ".safetensors");
  std::erase(name, ',');
  std::ranges::replace(name, ' ', '_');
  return concat(folder, "/", name);
}

/// Every tensor of a finished attention_bwd call under its name in the case (qkv, out, lse, mask,
/// dout, dqkv, cu_seqlens, random). Blocks: the host, until the tensors have been copied.
void write_dump(const std::string& path, const OpCase& op, const OpCall& call,
                const Backend& backend, const std::map<std::string, std::string>& metadata) {
  std::vector<SafeTensorsWriter::Entry> entries;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    entries.push_back({.name = op.tensors[i].name,
                       .shape = op.tensors[i].extents,
                       .dtype = safetensors_word(call.tensors[i].dtype)});
  }
  SafeTensorsWriter writer(path, entries, metadata);
  for (const View& view : call.tensors) {
    const Buffer pinned = backend.device().allocate_pinned(view.bytes());
    backend.device().copy(backend.stream(), pinned.data(), view.data, view.bytes());
    backend.stream().wait_on_host();
    writer.append(static_cast<const char*>(pinned.data()), view.bytes());
  }
  writer.finish();
}

void dump(const Setting& setting, const std::vector<BenchBatch>& batches, const std::string& folder,
          const std::vector<Contender>& contenders) {
  std::filesystem::create_directories(folder);
  const float dropout = setting.model.attention_dropout;
  for (const BenchBatch& batch : batches) {
    const OpCase op = attention_cases(setting.model, batch, dropout).back();
    for (const Contender& contender : contenders) {
      const std::string kernels = contender.attention.empty() ? "cpu" : contender.attention;
      const std::string path = dump_path(folder, batch.name, kernels);
      contender.bench->run_once(op, [&](const OpCall& call) {
        write_dump(path, op, call, *contender.backend,
                   {{"mix", batch.name},
                    {"kernels", kernels},
                    {"dropout", concat(dropout)},
                    {"site", concat(kBenchDropoutSite)}});
      });
      std::cout << "written: " << path << "\n";
    }
  }
}

int run_kernels(const CLI::App& command, const KernelOptions& options, CommandContext& context) {
  World& world = *context.world;
  if (world.size() != 1) {
    fail(ExitCode::kUsage, "bench kernels runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  Setting setting{.config = config_for_ranks(command, world, BatchRule::kAnySize)};
  Config& config = setting.config;
  if (options.dtype) config.train.precision = *options.dtype;
  if (config.train.precision == Precision::kFp16) {
    config.optimizer.loss_scale = LossScaling::kDynamic;  // required for fp16
  }
  setting.gpu = choose_gpu(config.train.backend, world);
  setting.cores = core_share(world);
  setting.model = bench_model(config);

  if (!options.tune.empty()) {
    fail(ExitCode::kUsage,
         "--tune is retired: GEMMs are tuned at their first use; run `bertha bench step --set "
         "cuda.tune_gemms=true --set cuda.gemm_plans=",
         options.tune, "`");
  }
  BenchReport report{.model = config.model.name,
                     .date = utc_date(),
                     .peak_flops_per_second = 1e12 * options.peak_tflops,
                     .peak_bytes_per_second = 1e9 * options.peak_gbps};
  std::vector<Contender> all;
  all.push_back(setting.contender(config.cuda.attention, world));
  const Device& device = all.front().backend->device();
  report.precision = name(all.front().io);
  report.device = device.description();
  const std::vector<BenchBatch> batches =
      bench_batches(config, options.lengths, options.tokens, device, world);
  std::vector<OpCase> cases =
      chosen_cases(make_op_cases(setting.model, batches), options.operations);
  const auto is_fp8_case = [](const OpCase& op) { return op.operation == "quantize"; };
  if (!all.front().backend->has_fp8() && std::erase_if(cases, is_fp8_case) > 0) {
    report.notes.push_back("quantize is not measured: portable kernels have no fp8");
  }
  all.clear();  // frees its memory before the next ones allocate theirs
  all = contenders(setting, std::ranges::any_of(cases, is_attention), world, report.notes);

  report.tokens = batches.front().rows();
  for (const BenchBatch& batch : batches) {
    std::vector<int32_t> lengths(batch.cu_seqlens.size());
    std::adjacent_difference(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), lengths.begin());
    lengths.erase(lengths.begin());  // 0, the start of the first sequence
    report.mixes.push_back({batch.name, lengths});
  }
  double largest_flops = 0;
  for (const OpCase& op : cases) largest_flops = std::max(largest_flops, op.flops);
  if (largest_flops > 0 && options.peak_tflops == 0) {
    report.peak_flops_per_second = gemm_roof(*all.front().bench, largest_flops, options.launches);
  }
  report.rows = measure(cases, all, options.launches);
  if (options.json != "-") std::cout << bench_text(report);
  write_json(options.json, bench_json(report));
  if (!options.dump.empty()) dump(setting, batches, options.dump, all);
  return static_cast<int>(all_verified(report) ? ExitCode::kSuccess : ExitCode::kNumeric);
}

}  // namespace

void add_bench_kernels_command(CLI::App& bench, Chosen& chosen) {
  CLI::App& kernels = add_command(
      bench, chosen,
      {.name = "kernels",
       .description = "Checks and times every operation of a training step at the shapes of the "
                      "model, and for comparison a plain copy of as many bytes and a large GEMM. "
                      "Measures attention with every kind of kernels that cuda.attention allows. "
                      "Exit code 7 if a result is wrong.",
       .examples = {"bertha bench kernels --lengths lengths.txt --json kernels.json",
                    "bertha bench kernels --op attention,linear_fwd --tokens 8192",
                    "bertha bench kernels --op attention --dump dump --repeats 5",
                    "bertha bench kernels --config configs/models/base.yaml --dtype fp16"}});
  KernelOptions& options = set_action<KernelOptions>(kernels, chosen, run_kernels);
  add_text(
      kernels, "--op", options.operations, "NAME[,..]",
      "Only these operations, separated by commas; attention = attention_fwd and attention_bwd")
      .separated_by_commas();
  add_choice<Precision>(kernels, "--dtype", options.dtype,
                        {Precision::kBf16, Precision::kFp16, Precision::kFp32},
                        "Precision of the operations (train.precision)");
  add_count(kernels, "--tokens", options.tokens, "Live tokens of the batch (default {})", 1,
            int64_t{1} << 24);
  add_text(kernels, "--lengths", options.lengths, "FILE",
           "Counts of sequence lengths, as for `bench step`, for a batch of mixed lengths");
  add_count(kernels, "--repeats", options.launches, "Launches to time (default {})", 1, 1000000);
  add_number(kernels, "--peak-tflops", options.peak_tflops,
             "Peak of GEMMs (default: that of a large GEMM, measured)", kAboveZero);
  add_number(kernels, "--peak-gbps", options.peak_gbps,
             "Peak of other operations (default: that of a plain copy of as many bytes, measured)",
             kAboveZero);
  add_text(kernels, "--tune", options.tune, "FILE", "Retired; prints what to use instead");
  add_text(
      kernels, "--dump", options.dump, "DIR",
      "Folder for the inputs and outputs of attention with the model's dropout, a safetensors file "
      "per batch and kind of kernels, for tests/comparisons/attention_peers.py --check");
  add_json(kernels, options.json);
  add_config_options(kernels, ShortOptions::kStepBench);
}

}  // namespace bertha
