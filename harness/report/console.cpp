#include "harness/report/console.h"

#include <algorithm>
#include <vector>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kTimeColumns = 9;  // "12:34:56 " in front of every line

/// A part of the line: in few letters, and in words; without any it is left out.
struct Field {
  int level = 0;  // 0 = always there; others as far as they fit, in this order
  std::string brief;
  std::string words;
};

/// A number with three digits and a scale: five columns hold it.
std::string scaled(double value) { return right_aligned(scaled_text(value), 5); }

std::vector<Field> fields_of(const StepRecord& record, const RunFacts& facts) {
  const std::string last_step = grouped_text(facts.max_steps);
  const std::string step = concat(
      "step ", right_aligned(grouped_text(record.step), std::ssize(last_step)), "/", last_step);
  const std::string eta = right_aligned(duration_text(record.eta_seconds), 6);
  const auto times = [&](const char* forward, const char* backward, const char* exchange,
                         const char* optimizer) {
    const auto ms = [](double value) { return right_aligned(ms_text(value), 3); };
    return concat("(data ", ms(record.data_wait_ms), forward, ms(record.forward_ms), backward,
                  ms(record.backward_ms), exchange, ms(record.communication_ms), optimizer,
                  ms(record.optimizer_ms), ")");
  };
  const std::string loss = " " + right_aligned(fixed_text(record.mlm_loss, 3), 6);
  const std::string accuracy = fixed_text(record.mlm_accuracy, 3);
  const std::string rate = right_aligned(exponent_text(record.learning_rate), 6);
  const RankSummary& ranks = record.ranks;

  std::vector<Field> fields{
      {0, step, step},
      {0, "mlm" + loss, "mlm loss" + loss},
      {1, "acc " + accuracy, "accuracy " + accuracy},
      {5, figure_text("nsp", record.nsp_loss), figure_text("nsp loss", record.nsp_loss)},
      {6, "lr " + rate, "learning rate " + rate},
      {7, "norm " + scaled(record.gradient_norm), "gradient norm " + scaled(record.gradient_norm)}};
  if (record.skipped_steps > 0) {
    fields.push_back({3, concat("skip ", record.skipped_steps),
                      concat("skipped ", grouped_text(record.skipped_steps))});
  }
  fields.push_back({8, right_aligned(ms_text(record.step_ms), 3) + " ms",
                    right_aligned(ms_text(record.step_ms), 3) + " ms/step"});
  fields.push_back({11, times(" fwd ", " bwd ", " comm ", " opt "),
                    times(", forward ", ", backward ", ", exchange ", ", optimizer ")});
  fields.push_back({2, scaled(record.seqs_per_second) + " seq/s",
                    scaled(record.seqs_per_second) + " sequences/s"});
  fields.push_back({9, scaled(record.tokens_per_second) + " tok/s",
                    scaled(record.tokens_per_second) + " tokens/s"});
  if (facts.peak_flops_per_second > 0 && record.flops_per_second > 0) {
    const std::string mfu =
        concat("MFU ",
               right_aligned(
                   fixed_text(100 * record.flops_per_second / facts.peak_flops_per_second, 0), 2),
               "%");
    fields.push_back({4, mfu, mfu});
  }
  if (ranks.power_watts > 0) {
    fields.push_back({10, scaled(ranks.power_watts) + " W", scaled(ranks.power_watts) + " watts"});
  }
  if (ranks.lowest_sm_mhz > 0) {
    const std::string mhz = right_aligned(fixed_text(ranks.lowest_sm_mhz, 0), 4) + " MHz";
    fields.push_back({12, mhz, mhz});
    fields.push_back(
        {13, bytes_text(record.memory_bytes), "memory " + bytes_text(record.memory_bytes)});
  }
  fields.push_back({0, "end " + eta, "end in " + eta});
  return fields;
}

/// As many fields as fit behind the time of day, and then as many of them in words.
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
  const std::string step = "eval  step " + grouped_text(record.step);
  const std::string target =
      target_accuracy > 0 ? concat(" (target ", fixed_text(target_accuracy, 4), ")") : "";
  const std::string accuracy = fixed_text(record.mlm_accuracy, 4) + target;
  const std::string loss = fixed_text(record.mlm_loss, 3);
  const std::string time = fixed_text(record.seconds, 1) + " s";
  return line_of({{0, step, step},
                  {0, "acc " + accuracy, "accuracy " + accuracy},
                  {1, "mlm " + loss, "mlm loss " + loss},
                  {2, figure_text("nsp acc", record.nsp_accuracy),
                   figure_text("nsp accuracy", record.nsp_accuracy)},
                  {3, time, time}},
                 columns);
}

std::string kernels_text(const KernelFacts& kernels) {
  const std::string kinds = kernels.attention.empty() ? ""
                                                      : concat(", attention ", kernels.attention,
                                                               ", GELU GEMMs ", kernels.gelu_gemms);
  return kinds + (kernels.graphs ? ", graphs" : "");
}

std::string start_line(const Config& config, const RunFacts& facts) {
  const TrainConfig& train = config.train;
  // What a constant answer scores is not known before the data are opened.
  const std::string least = train.target_times_constant > 0 ? "at least " : "";
  const std::string until =
      train.target_accuracy > 0
          ? concat("to accuracy ", least, fixed_text(train.target_accuracy, 4), " or step ",
                   grouped_text(facts.max_steps))
          : concat("to step ", grouped_text(facts.max_steps));
  const std::string& fp8_gemms = facts.kernels.fp8_gemms;
  const std::string fp8 = fp8_gemms.empty() ? "" : ", fp8 GEMMs " + fp8_gemms;
  return concat(config.model.name, ", ", scaled_text(static_cast<double>(facts.parameters)),
                " parameters, on ", facts.device, ", ", counted_text(facts.world_size, "rank"),
                kernels_text(facts.kernels), fp8, "; ",
                counted_text(config.train.global_batch_seqs, "sequence"), " per step, from step ",
                grouped_text(facts.first_step), " ", until);
}

std::string data_line(const TrainConfig& train, const DataFacts& facts) {
  const std::string target =
      facts.target_accuracy > train.target_accuracy
          ? concat("; target accuracy ", fixed_text(facts.target_accuracy, 4), ", ",
                   scaled_text(train.target_times_constant), " times the best constant answer")
          : "";
  return concat(counted_text(facts.train_samples_per_epoch, "training sequence"), " per epoch, ",
                grouped_text(facts.eval_samples), " for evaluation", target);
}

}  // namespace bertha
