#include "harness/train/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/random/draws.h"
#include "harness/report/text_format.h"
#include "kernels/ops/elementwise.h"

namespace bertha {
namespace {

constexpr double kRoundF32 = 0x1p-24;

double rounding_of(DType io, bool fp8) {
  if (fp8) return 0x1p-3;  // e5m2, the coarser of both formats
  if (io == DType::kBF16) return 0x1p-9;
  return io == DType::kF16 ? 0x1p-12 : kRoundF32;
}

/// What io cannot tell from zero.
double smallest_of(DType io) { return io == DType::kF16 ? 0x1p-24 : 0x1p-126; }

/// The root of the mean square of what two tensors of the same shape differ by, from their sums.
double distance(const TensorFigures& a, const TensorFigures& b) {
  double squares = 0;
  for (size_t i = 0; i < a.signed_sums.size(); ++i) {
    const double difference = a.signed_sums[i] - b.signed_sums[i];
    squares += difference * difference;
  }
  return std::sqrt(squares / static_cast<double>(std::max<int64_t>(a.elements, 1)));
}

/// What the tensor's figures say, if that is wrong.
std::string wrong_figure(const TensorFigures& run, const TensorFigures& reference, double tolerance,
                         double smallest) {
  if (run.not_finite > 0) {
    return concat(grouped_text(run.not_finite), " of ", grouped_text(run.elements),
                  " elements are not finite; in fp32 ",
                  reference.not_finite > 0
                      ? concat(grouped_text(reference.not_finite),
                               " are not either: weights or data are out of bounds, not the "
                               "precision")
                      : concat("all are, the largest ", reference.largest, ": it overflows"));
  }
  if (reference.not_finite > 0) {
    return concat("all elements are finite; in fp32 ", grouped_text(reference.not_finite),
                  " are not");
  }
  if (std::isinf(tolerance)) return {};
  const auto check = [&](const char* figure, double found, double wanted, double of) {
    const double allowed = tolerance * of + smallest;
    const double apart = std::abs(found - wanted);
    return apart <= allowed ? ""
                            : concat(figure, " ", found, ", in fp32 ", wanted,
                                     "; roundings explain a difference of ", allowed);
  };
  std::string wrong = check("root of the mean square", run.rms, reference.rms, reference.rms);
  if (wrong.empty()) wrong = check("mean", run.mean, reference.mean, reference.rms);
  if (wrong.empty()) {
    wrong = check("largest element", run.largest, reference.largest, reference.largest);
  }
  return wrong;
}

}  // namespace

double rounding_error(DType io, bool fp8, int64_t terms) {
  return std::hypot(rounding_of(io, fp8), kRoundF32 * std::sqrt(static_cast<double>(terms)));
}

std::vector<float> with_rounding_errors(std::vector<float> weights, double rounding) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const double error = mixed_seed(1, i) % 2 == 0 ? rounding : -rounding;
    weights[i] = static_cast<float>(weights[i] * (1 + error));
  }
  return weights;
}

double figure_tolerance(const Reference& reference, size_t i, double rounding) {
  const TensorFigures& exact = reference.figures.at(i);
  const TensorFigures& with_errors = reference.with_errors.at(i);
  if (exact.not_finite == 0 && with_errors.not_finite > 0) {
    return std::numeric_limits<double>::infinity();
  }
  const double independent = 4 * std::sqrt(2.0 * static_cast<double>(i + 1)) * rounding;
  const double apart = distance(exact, with_errors);
  return apart > 0 ? std::max(independent, 8 * apart / exact.rms) : independent;
}

std::optional<Finding> first_finding(const std::vector<TensorFigures>& run,
                                     const Reference& reference, DType io, double rounding) {
  const std::vector<TensorFigures>& exact = reference.figures;
  BERTHA_CHECK(run.size() == exact.size(), run.size(), " tensors, want ", exact.size());
  for (size_t i = 0; i < run.size(); ++i) {
    BERTHA_CHECK(run[i].name == exact[i].name, run[i].name, ", want ", exact[i].name);
    const std::string text =
        wrong_figure(run[i], exact[i], figure_tolerance(reference, i, rounding), smallest_of(io));
    if (!text.empty()) return Finding{.tensor = run[i].name, .text = text};
  }
  return std::nullopt;
}

std::vector<TensorFigures> replay_step(const PostMortem& post_mortem, const ParamTable& table,
                                       const std::vector<float>& weights, const ModelParts& parts) {
  Device& device = *parts.device;
  const View exact_shape(nullptr, DType::kF32, {table.elements});
  const Buffer exact = device.allocate(exact_shape.bytes());
  device.copy(*parts.stream, exact.data(), weights.data(), exact_shape.bytes());
  const Buffer flat = device.allocate(table.elements * size_bytes(parts.io));
  const Buffer gradients = device.allocate(table.elements * size_bytes(parts.io));
  const View in_io(flat.data(), parts.io, {table.elements});
  const View gradients_view(gradients.data(), parts.io, {table.elements});
  parts.ops->run(Cast{.from = View(exact.data(), DType::kF32, {table.elements}), .to = in_io});
  parts.stream->wait_on_host();

  BatchRows capacity;
  for (const TracedStep::MicroBatch& micro : post_mortem.traced.micro_batches) {
    capacity.tokens = std::max(capacity.tokens, micro.batch.num_tokens);
    capacity.seqs = std::max(capacity.seqs, micro.batch.num_seqs);
    capacity.masked = std::max(capacity.masked, micro.batch.num_masked);
  }
  Bert model(post_mortem.config.model, table, capacity, parts);
  model.bind(in_io, gradients_view);
  return trace_step(post_mortem.traced, model, parts, table, gradients_view);
}

}  // namespace bertha
