#include "harness/report/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/report/text_format.h"

namespace bertha {
namespace {

constexpr int64_t kTimeColumns = 9;  // "12:34:56 " before every line

/// A part of the line, in a brief form and in words. A part without words is left out.
struct Field {
  int level = 0;  // 0 = always shown; others if they fit, in this order
  std::string brief = {};
  std::string words = {};
};

/// A figure in both forms, in place of {}. Without `words`, `brief` is used for both.
Field field(int level, const std::string& figure, const std::string& brief,
            const std::string& words = "") {
  const auto with = [&](const std::string& pattern) {
    return fmt::format(fmt::runtime(pattern), figure);
  };
  return {level, with(brief), with(words.empty() ? brief : words)};
}

/// A field that is left out if `figure` is empty.
Field optional_field(int level, const std::optional<double>& figure, const std::string& brief,
                     const std::string& words) {
  return figure ? field(level, fixed_text(*figure, 3), brief, words) : Field{.level = level};
}

/// A number with three digits and a scale, in five columns.
std::string scaled(double value) { return fmt::format("{:>5}", scaled_text(value)); }

std::string ms(double value) { return fmt::format("{:>3}", ms_text(value)); }

std::vector<Field> fields_of(const StepRecord& record, const RunFacts& facts) {
  const std::string last_step = grouped_text(facts.max_steps);
  const auto times = [&](const char* pattern) {
    return fmt::format(fmt::runtime(pattern), ms(record.data_wait_ms), ms(record.forward_ms),
                       ms(record.backward_ms), ms(record.communication_ms),
                       ms(record.optimizer_ms));
  };
  const RankSummary& ranks = record.ranks;

  std::vector<Field> fields{
      field(0, fmt::format("{:>{}}", grouped_text(record.step), last_step.size()),
            "step {}/" + last_step),
      field(0, fmt::format("{:>6}", fixed_text(record.mlm_loss, 3)), "mlm {}", "mlm loss {}"),
      field(1, fixed_text(record.mlm_accuracy, 3), "acc {}", "accuracy {}"),
      optional_field(5, record.nsp_loss, "nsp {}", "nsp loss {}"),
      field(6, fmt::format("{:>6}", exponent_text(record.learning_rate)), "lr {}",
            "learning rate {}"),
      field(7, scaled(record.gradient_norm), "norm {}", "gradient norm {}")};
  if (record.skipped_steps > 0) {
    fields.push_back({3, fmt::format("skip {}", record.skipped_steps),
                      fmt::format("skipped {}", grouped_text(record.skipped_steps))});
  }
  fields.push_back(field(8, ms(record.step_ms), "{} ms", "{} ms/step"));
  fields.push_back({11, times("(data {} fwd {} bwd {} comm {} opt {})"),
                    times("(data {}, forward {}, backward {}, communication {}, optimizer {})")});
  fields.push_back(field(2, scaled(record.seqs_per_second), "{} seq/s", "{} sequences/s"));
  fields.push_back(field(9, scaled(record.tokens_per_second), "{} tok/s", "{} tokens/s"));
  if (facts.peak_flops_per_second > 0 && record.flops_per_second > 0) {
    const double mfu = 100 * record.flops_per_second / facts.peak_flops_per_second;
    fields.push_back(field(4, fmt::format("{:>2.0f}", mfu), "MFU {}%"));
  }
  if (ranks.power_watts > 0) {
    fields.push_back(field(10, scaled(ranks.power_watts), "{} W", "{} watts"));
  }
  if (ranks.lowest_sm_mhz > 0) {
    fields.push_back(field(12, fmt::format("{:>4.0f}", ranks.lowest_sm_mhz), "{} MHz"));
    fields.push_back(field(13, bytes_text(record.memory_bytes), "{}", "memory {}"));
  }
  fields.push_back(
      field(0, fmt::format("{:>6}", duration_text(record.eta_seconds)), "end {}", "end in {}"));
  return fields;
}

/// As many fields as fit after the time of day, as many of these as possible in words.
std::string line_of(const std::vector<Field>& fields, int64_t columns) {
  const auto line_with = [&](int levels, size_t in_words) {
    std::string line;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].level > levels || fields[i].words.empty()) continue;
      line += (line.empty() ? "" : "  ") + (i < in_words ? fields[i].words : fields[i].brief);
    }
    return line;
  };
  const auto fits = [&](const std::string& line) {
    return std::ssize(line) + kTimeColumns <= columns;
  };
  int levels = 0;
  const int most = std::ranges::max(fields, {}, &Field::level).level;
  while (levels < most && fits(line_with(levels + 1, 0))) ++levels;
  size_t in_words = 0;
  while (in_words < fields.size() && fits(line_with(levels, in_words + 1))) ++in_words;
  return line_with(levels, in_words);
}

}  // namespace

std::string step_line(const StepRecord& record, const RunFacts& facts, int64_t columns) {
  return line_of(fields_of(record, facts), columns);
}

std::string eval_line(const EvalRecord& record, double target_accuracy, int64_t columns) {
  const std::string target =
      target_accuracy > 0 ? fmt::format(" (target {:.4f})", target_accuracy) : "";
  return line_of({field(0, grouped_text(record.step), "eval  step {}"),
                  field(0, fixed_text(record.mlm_accuracy, 4) + target, "acc {}", "accuracy {}"),
                  field(1, fixed_text(record.mlm_loss, 3), "mlm {}", "mlm loss {}"),
                  optional_field(2, record.nsp_accuracy, "nsp acc {}", "nsp accuracy {}"),
                  field(3, fmt::format("{:.1f}", record.seconds), "{} s")},
                 columns);
}

std::string kernels_text(const KernelFacts& kernels) {
  const std::string kinds =
      kernels.attention.empty()
          ? ""
          : fmt::format(", attention {}, GELU GEMMs {}", kernels.attention, kernels.gelu_gemms);
  return kinds + (kernels.graphs ? ", graphs" : "");
}

std::string start_line(const Config& config, const RunFacts& facts) {
  const TrainConfig& train = config.train;
  // The accuracy of a constant answer is unknown before the data are opened.
  const std::string accuracy =
      train.target_accuracy > 0
          ? fmt::format("accuracy {}{:.4f} or ", train.target_times_constant > 0 ? "at least " : "",
                        train.target_accuracy)
          : "";
  const std::string& fp8_gemms = facts.kernels.fp8_gemms;
  return fmt::format("{}, {} parameters, on {}, {}{}{}{}; {} per step, from step {} to {}step {}",
                     config.model.name, scaled_text(static_cast<double>(facts.parameters)),
                     facts.device, counted_text(facts.world_size, "rank"),
                     kernels_text(facts.kernels), fp8_gemms.empty() ? "" : ", fp8 GEMMs ",
                     fp8_gemms, counted_text(train.global_batch_seqs, "sequence"),
                     grouped_text(facts.first_step), accuracy, grouped_text(facts.max_steps));
}

std::string data_line(const TrainConfig& train, const DataFacts& facts) {
  const std::string target =
      facts.target_accuracy > train.target_accuracy
          ? fmt::format("; target accuracy {:.4f}, {} times the best constant answer",
                        facts.target_accuracy, scaled_text(train.target_times_constant))
          : "";
  return fmt::format("{} per epoch, {} for evaluation{}",
                     counted_text(facts.train_samples_per_epoch, "training sequence"),
                     grouped_text(facts.eval_samples), target);
}

}  // namespace bertha
