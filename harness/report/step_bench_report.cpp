#include "harness/report/step_bench_report.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "harness/report/console.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kNameColumns = 26;
constexpr size_t kOperationColumns = 44;
constexpr int64_t kFigureColumns = 11;
constexpr int64_t kSpeedColumns = 16;
constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

std::string row(const std::string& name, const std::string& value) {
  return fact_line(name, value, kNameColumns);
}

std::string figure(const std::string& text) { return right_aligned(text, kFigureColumns); }

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double per_second(double amount, double ms) { return ms > 0 ? amount / ms * 1e3 : 0; }

std::string share_text(double part, double whole) {
  return whole > 0 ? fixed_text(100 * part / whole, 1) + " %" : "-";
}

std::string speed_text(const OperationRow& operation) {
  if (operation.flops > 0) {
    const double flops = per_second(operation.flops, operation.ms);
    return flops < kTera ? fixed_text(flops / kGiga, 2) + " GFLOP/s"
                         : fixed_text(flops / kTera, 2) + " TFLOP/s";
  }
  if (operation.bytes > 0) {
    return fixed_text(per_second(operation.bytes, operation.ms) / kGiga, 1) + " GB/s";
  }
  return "";
}

std::string operation_line(const OperationRow& operation, double step_ms) {
  const std::string speed = speed_text(operation);
  return fact_line(
      operation.name,
      concat(figure(fixed_text(operation.calls, 1)), figure(fixed_text(operation.ms, 3)),
             figure(share_text(operation.ms, step_ms)),
             speed.empty() ? "" : right_aligned(speed, kSpeedColumns)),
      kOperationColumns);
}

std::string operations_text(const StepBenchReport& report) {
  const double step_ms = mean(report.step_ms);
  std::string title = "\noperations of rank 0";
  title.resize(1 + kOperationColumns, ' ');
  std::string text =
      concat(title, figure("calls/step"), figure("ms/step"), figure("of step"), "\n");
  double sum = 0;
  for (const OperationRow& operation : report.operations) {
    text += operation_line(operation, step_ms);
    sum += operation.ms;
  }
  return text + operation_line({.name = "copies, ranks, launches", .ms = step_ms - sum}, step_ms);
}

std::string phases_text(const StepBenchReport& report) {
  constexpr std::array<const char*, 4> kNames{"forward", "backward", "communication", "optimizer"};
  const double step_ms = mean(report.step_ms);
  std::string text = "\nphases of rank 0, mean\n";
  double sum = 0;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const double ms = report.phase_ms[i];
    sum += ms;
    text += row(kNames[i], concat(fixed_text(ms, 3), " ms  ", share_text(ms, step_ms)));
  }
  return text + row("between steps", concat(fixed_text(step_ms - sum, 3), " ms  ",
                                            share_text(step_ms - sum, step_ms)));
}

std::string utilization_text(const StepBenchReport& report, double utilization) {
  if (report.peak_flops_per_second <= 0) return "unknown; give --peak-tflops";
  return concat(fixed_text(100 * utilization, 1), " % of ",
                fixed_text(report.peak_flops_per_second / kTera, 1), " TFLOP/s",
                report.kernels.fp8_gemms.empty() ? "" : ", the peak of 16 bits");
}

}  // namespace

StepBenchRates rates_of(const StepBenchReport& report) {
  const double step_ms = mean(report.step_ms);
  StepBenchRates rates{.seqs_per_second = per_second(report.seqs_global, step_ms),
                       .tokens_per_second = per_second(report.tokens_global, step_ms),
                       .flops_per_second = per_second(report.model_flops_global, step_ms) /
                                           static_cast<double>(report.ranks)};
  if (report.peak_flops_per_second > 0) {
    rates.utilization = rates.flops_per_second / report.peak_flops_per_second;
  }
  return rates;
}

std::string step_bench_text(const StepBenchReport& report) {
  const StepBenchRates rates = rates_of(report);
  const auto ms_at = [&](double share) { return fixed_text(percentile(report.step_ms, share), 3); };
  std::string text = concat("training step of ", report.model, ", ", report.gelu, " GELU, ",
                            report.precision, ", ", counted_text(report.ranks, "rank"), ", ",
                            report.device, kernels_text(report.kernels), "\n");
  const std::string& fp8_gemms = report.kernels.fp8_gemms;
  if (!fp8_gemms.empty()) text += row("fp8 GEMMs", fp8_gemms);
  text += row("steps", concat(report.step_ms.size(), " timed after ", report.warmup_steps, ", ",
                              counted_text(report.micro_batches, "micro-batch"), " each"));
  text += row("sequences per step", fixed_text(report.seqs_global, 1));
  text += row("tokens per step", concat(fixed_text(report.tokens_global, 1), ", fullest rank ",
                                        fixed_text(report.most_tokens_per_rank, 1), "; masked ",
                                        fixed_text(report.masked_global, 1)));
  text += row("step, median", ms_at(0.5) + " ms");
  text += row("step, p10 to p90", concat(ms_at(0.1), " to ", ms_at(0.9), " ms"));
  text += row("step, mean", fixed_text(mean(report.step_ms), 3) + " ms");
  text += row("sequences/s", scaled_text(rates.seqs_per_second));
  text += row("tokens/s", scaled_text(rates.tokens_per_second));
  text += row("model TFLOP/s per rank", fixed_text(rates.flops_per_second / kTera, 3));
  text += row("utilization (MFU)", utilization_text(report, rates.utilization));
  text += row("device memory, peak", concat(bytes_text(report.peak_memory_bytes), " of ",
                                            bytes_text(report.total_memory_bytes)));
  if (report.joules_global > 0) {
    const double watts = report.joules_global / (mean(report.step_ms) / 1e3);
    text += row("energy",
                concat(fixed_text(report.joules_global, 1), " J per step, ",
                       fixed_text(watts / static_cast<double>(report.ranks), 0), " W per GPU"));
  }
  text += row("training", concat("mean loss ", fixed_text(report.loss, 3), ", ",
                                 counted_text(report.skipped_updates, "update"), " skipped"));
  text += phases_text(report);
  if (!report.operations.empty()) text += operations_text(report);
  return text;
}

std::string step_bench_json(const StepBenchReport& report) {
  using Json = nlohmann::ordered_json;
  const StepBenchRates rates = rates_of(report);
  Json json{{"model", report.model},
            {"gelu", report.gelu},
            {"device", report.device},
            {"attention", report.kernels.attention},
            {"gelu_gemms", report.kernels.gelu_gemms},
            {"graphs", report.kernels.graphs},
            {"fp8_gemms", report.kernels.fp8_gemms},
            {"precision", report.precision},
            {"ranks", report.ranks},
            {"micro_batches_per_step", report.micro_batches},
            {"warmup_steps", report.warmup_steps},
            {"steps", report.step_ms.size()},
            {"seqs_per_step", report.seqs_global},
            {"tokens_per_step", report.tokens_global},
            {"masked_per_step", report.masked_global},
            {"most_tokens_per_rank", report.most_tokens_per_rank},
            {"step_ms",
             {{"median", percentile(report.step_ms, 0.5)},
              {"p10", percentile(report.step_ms, 0.1)},
              {"p90", percentile(report.step_ms, 0.9)},
              {"mean", mean(report.step_ms)},
              {"all", report.step_ms}}},
            {"seqs_per_second", rates.seqs_per_second},
            {"tokens_per_second", rates.tokens_per_second},
            {"model_flops_per_second_per_rank", rates.flops_per_second},
            {"peak_flops_per_second", nullptr},
            {"utilization", nullptr},
            {"phase_ms",
             {{"forward", report.phase_ms[0]},
              {"backward", report.phase_ms[1]},
              {"communication", report.phase_ms[2]},
              {"optimizer", report.phase_ms[3]}}},
            {"peak_memory_bytes", report.peak_memory_bytes},
            {"total_memory_bytes", report.total_memory_bytes},
            {"loss", report.loss},
            {"skipped_updates", report.skipped_updates}};
  if (report.joules_global > 0) json["joules_per_step"] = report.joules_global;
  if (report.peak_flops_per_second > 0) {
    json["peak_flops_per_second"] = report.peak_flops_per_second;
    json["utilization"] = rates.utilization;
  }
  for (const OperationRow& operation : report.operations) {
    json["operations"].push_back({{"name", operation.name},
                                  {"calls_per_step", operation.calls},
                                  {"ms_per_step", operation.ms},
                                  {"flops_per_step", operation.flops},
                                  {"bytes_per_step", operation.bytes}});
  }
  return json.dump(2) + "\n";
}

}  // namespace bertha
