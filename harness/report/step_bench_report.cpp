#include "harness/report/step_bench_report.h"

#include <numeric>

#include "harness/report/console.h"
#include "harness/report/text_format.h"

namespace bertha {
namespace {

constexpr size_t kNameColumns = 26;
constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double per_second(double amount, double ms) { return ms > 0 ? amount / ms * 1e3 : 0; }

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

std::string speed_text(const OperationTime& operation) {
  if (operation.flops > 0) {
    const double flops = per_second(operation.flops, operation.ms);
    return flops < kTera ? fmt::format("{:.2f} GFLOP/s", flops / kGiga)
                         : fmt::format("{:.2f} TFLOP/s", flops / kTera);
  }
  if (operation.bytes == 0) return "";
  return fmt::format("{:.1f} GB/s", per_second(operation.bytes, operation.ms) / kGiga);
}

/// path: the operation's path in the JSON; "" = only in the text.
void add_operation(const std::string& path, const OperationTime& operation, double step_ms,
                   Report& report) {
  const auto named = [&](const char* name) { return path.empty() ? "" : path + name; };
  const std::string speed = speed_text(operation);
  report.table_line(
      "  {:<41} {:>11.1f}{:>11.3f}{:>11}{:>{}}", figure(named("name"), operation.name),
      figure(named("calls_per_step"), operation.calls), figure(named("ms_per_step"), operation.ms),
      share_text(operation.ms, step_ms), speed, speed.empty() ? 0 : 16);
  if (path.empty()) return;
  report.put(path + "flops_per_step", operation.flops);
  report.put(path + "bytes_per_step", operation.bytes);
}

void add_operations(const StepBenchReport& found, Report& report) {
  const double step_ms = mean(found.step_ms);
  report.table_line("\n{:<44}{:>11}{:>11}{:>11}", "operations of rank 0", "calls/step", "ms/step",
                    "of step");
  OperationTime rest{.name = "copies, ranks, launches", .ms = step_ms};
  for (size_t i = 0; i < found.operations.size(); ++i) {
    add_operation(fmt::format("operations/{}/", i), found.operations[i], step_ms, report);
    rest.ms -= found.operations[i].ms;
  }
  add_operation("", rest, step_ms, report);
}

void add_phases(const StepBenchReport& found, Report& report) {
  constexpr std::array<const char*, 4> kNames{"forward", "backward", "communication", "optimizer"};
  const double step_ms = mean(found.step_ms);
  const auto add = [&](const char* name, const Figure<double>& ms) {
    report.row(name, "{:.3f} ms  {}", ms, share_text(ms.shown, step_ms));
  };
  report.line("\nphases of rank 0, mean");
  double sum = 0;
  for (size_t i = 0; i < kNames.size(); ++i) {
    add(kNames[i], figure(fmt::format("phase_ms/{}", kNames[i]), found.phase_ms[i]));
    sum += found.phase_ms[i];
  }
  add("between steps", figure("", step_ms - sum));
}

void add_utilization(const StepBenchReport& found, double flops_per_second, Report& report) {
  constexpr const char* kName = "utilization (MFU)";
  if (found.peak_flops_per_second > 0) {
    report.row(kName, "{} % of {} TFLOP/s{}",
               figure("utilization", flops_per_second / found.peak_flops_per_second,
                      [](double x) { return fixed_text(100 * x, 1); }),
               figure("peak_flops_per_second", found.peak_flops_per_second,
                      [](double x) { return fixed_text(x / kTera, 1); }),
               found.kernels.fp8_gemms.empty() ? "" : ", the peak of 16 bits");
  } else {
    report.row(kName, "unknown; give --peak-tflops");
    report.put("utilization", nullptr);
    report.put("peak_flops_per_second", nullptr);
  }
}

void add_mean_step(const StepBenchReport& found, Report& report) {
  const double step_ms = mean(found.step_ms);
  const double flops_per_second =
      per_second(found.model_flops_global, step_ms) / static_cast<double>(found.ranks);
  const auto ms = [&](const char* name, double value) {
    return figure(fmt::format("step_ms/{}", name), value);
  };
  const auto ms_at = [&](const char* name, double share) {
    return ms(name, percentile(found.step_ms, share));
  };
  report.row("sequences per step", "{:.1f}", figure("seqs_per_step", found.seqs_global));
  report.row("tokens per step", "{:.1f}, fullest rank {:.1f}; masked {:.1f}",
             figure("tokens_per_step", found.tokens_global),
             figure("most_tokens_per_rank", found.most_tokens_per_rank),
             figure("masked_per_step", found.masked_global));
  report.row("step, median", "{:.3f} ms", ms_at("median", 0.5));
  report.row("step, p10 to p90", "{:.3f} to {:.3f} ms", ms_at("p10", 0.1), ms_at("p90", 0.9));
  report.row("step, mean", "{:.3f} ms", ms("mean", step_ms));
  report.put("step_ms/all", found.step_ms);
  report.row("sequences/s", "{}",
             figure("seqs_per_second", per_second(found.seqs_global, step_ms), scaled_text));
  report.row("tokens/s", "{}",
             figure("tokens_per_second", per_second(found.tokens_global, step_ms), scaled_text));
  report.row("model TFLOP/s per rank", "{}",
             figure("model_flops_per_second_per_rank", flops_per_second,
                    [](double flops) { return fixed_text(flops / kTera, 3); }));
  add_utilization(found, flops_per_second, report);
  report.row("device memory, peak", "{} of {}",
             figure("peak_memory_bytes", found.peak_memory_bytes, bytes_text),
             figure("total_memory_bytes", found.total_memory_bytes, bytes_text));
  if (found.joules_global > 0) {
    const double watts = found.joules_global / (step_ms / 1e3);
    report.row("energy", "{:.1f} J per step, {:.0f} W per GPU",
               figure("joules_per_step", found.joules_global),
               watts / static_cast<double>(found.ranks));
  }
}

}  // namespace

Report report_of(const StepBenchReport& found) {
  Report report(kNameColumns);
  report.line("training step of {}, {} GELU, {}, {}, {}{}", figure("model", found.model),
              figure("gelu", word_of(found.gelu)), figure("precision", found.precision),
              figure("ranks", found.ranks, counted("rank")), figure("device", found.device),
              kernels_text(found.kernels));
  report.put("attention", found.kernels.attention);
  report.put("gelu_gemms", found.kernels.gelu_gemms);
  report.put("graphs", found.kernels.graphs);
  report.put("fp8_gemms", found.kernels.fp8_gemms);
  if (!found.kernels.fp8_gemms.empty()) report.row("fp8 GEMMs", "{}", found.kernels.fp8_gemms);
  report.row("steps", "{} timed after {}, {} each", figure("steps", found.step_ms.size()),
             figure("warmup_steps", found.warmup_steps),
             figure("micro_batches_per_step", found.micro_batches, counted("micro-batch")));
  add_mean_step(found, report);
  report.row("training", "mean loss {:.3f}, {} skipped", figure("loss", found.loss),
             figure("skipped_updates", found.skipped_updates, counted("update")));
  add_phases(found, report);
  if (!found.operations.empty()) add_operations(found, report);
  return report;
}

}  // namespace bertha
