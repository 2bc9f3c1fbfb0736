#include "harness/train/replay.h"

#include <algorithm>
#include <cmath>

#include "harness/report/text_format.h"

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

std::string numbers_of(const TensorFigures& f) {
  return concat("largest ", scaled_text(f.largest), ", mean ", scaled_text(f.mean), ", rms ",
                scaled_text(f.rms));
}

}  // namespace

double figure_tolerance(DType io, bool fp8, int64_t tensors_before, int64_t terms) {
  const double roundings = 2.0 * static_cast<double>(tensors_before + 1);
  const double each =
      std::hypot(rounding_of(io, fp8), kRoundF32 * std::sqrt(static_cast<double>(terms)));
  return 4 * std::sqrt(roundings) * each;
}

std::optional<Finding> first_finding(const std::vector<TensorFigures>& run,
                                     const std::vector<TensorFigures>& reference, DType io,
                                     bool fp8, int64_t terms) {
  BERTHA_CHECK(run.size() == reference.size(), run.size(), " tensors, want ", reference.size());
  for (size_t i = 0; i < run.size(); ++i) {
    const TensorFigures& a = run[i];
    const TensorFigures& b = reference[i];
    BERTHA_CHECK(a.name == b.name, a.name, ", want ", b.name);
    if (a.not_finite > 0) {
      return Finding{
          .tensor = a.name,
          .text = concat(grouped_text(a.not_finite), " of ", grouped_text(a.elements),
                         " elements are not finite; in fp32 ",
                         b.not_finite > 0 ? concat(grouped_text(b.not_finite),
                                                   " are not either: weights or data "
                                                   "are out of bounds, not the precision")
                                          : concat("all are (", numbers_of(b), "): it overflows"))};
    }
    const double tolerance = figure_tolerance(io, fp8, static_cast<int64_t>(i), terms);
    const double floor = smallest_of(io);
    const bool is_close = b.not_finite == 0 && a.elements == b.elements &&
                          std::abs(a.rms - b.rms) <= tolerance * b.rms + floor &&
                          std::abs(a.mean - b.mean) <= tolerance * b.rms + floor &&
                          std::abs(a.largest - b.largest) <= tolerance * b.largest + floor;
    if (is_close) continue;
    return Finding{
        .tensor = a.name,
        .text = concat(numbers_of(a), "; in fp32 ",
                       b.not_finite > 0 ? concat(grouped_text(b.not_finite), " are not finite")
                                        : numbers_of(b),
                       "; roundings explain a part of ", scaled_text(tolerance))};
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
