#include "harness/train/step_trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/half.h"

namespace bertha {
namespace {

constexpr int64_t kPieceElements = 4 << 20;

float element_of(const View& values, int64_t i) {
  switch (values.dtype) {
    case DType::kF16:
      return to_float(values.as<Half>()[i]);
    case DType::kBF16:
      return to_float(values.as<BFloat16>()[i]);
    default:
      return values.as<float>()[i];
  }
}

/// Copies tensors to the host piece by piece and sums them up.
class Figures {
 public:
  explicit Figures(const ModelParts& parts)
      : parts_(parts),
        pinned_(parts.device->allocate_pinned(kPieceElements * size_bytes(DType::kF32))) {}

  TensorFigures of(std::string name, const View& values) {
    const int64_t elements = values.elements();
    TensorFigures figures{.name = std::move(name), .elements = elements};
    double sum = 0, squares = 0;
    const char* data = static_cast<const char*>(values.data);
    for (int64_t at = 0; at < elements; at += kPieceElements) {
      const View piece(pinned_.data(), values.dtype, {std::min(kPieceElements, elements - at)});
      parts_.device->copy(*parts_.stream, piece.data, data + at * size_bytes(values.dtype),
                          piece.bytes());
      parts_.stream->wait_on_host();
      for (int64_t i = 0; i < piece.elements(); ++i) {
        const double x = element_of(piece, i);
        if (!std::isfinite(x)) {
          ++figures.not_finite;
          continue;
        }
        figures.largest = std::max(figures.largest, std::abs(x));
        sum += x;
        squares += x * x;
      }
    }
    const auto finite = static_cast<double>(std::max<int64_t>(elements - figures.not_finite, 1));
    figures.mean = sum / finite;
    figures.rms = std::sqrt(squares / finite);
    return figures;
  }

 private:
  const ModelParts& parts_;
  Buffer pinned_;
};

}  // namespace

std::vector<TensorFigures> trace_step(const TracedStep& step, Bert& model, const ModelParts& parts,
                                      const ParamTable& table, const View& gradients) {
  const Buffer state_buffer = parts.device->allocate(sizeof(LambState));
  const LambState state{.loss_scale = step.loss_scale};
  parts.device->copy(*parts.stream, state_buffer.data(), &state, sizeof(LambState));
  parts.stream->wait_on_host();
  const View state_view(state_buffer.data(), DType::kU8, {static_cast<int64_t>(sizeof(LambState))});

  Figures figures(parts);
  std::vector<TensorFigures> all;
  model.set_scale_exponents(step.fp8_scale_exponents);
  model.begin_step();
  uint64_t micro_step = step.first_micro_step;
  for (const TracedStep::MicroBatch& micro : step.micro_batches) {
    const uint64_t number = micro_step - step.first_micro_step + 1;
    const std::string of_many =
        step.micro_batches.size() > 1 ? concat("micro-batch ", number, ": ") : "";
    model.set_random(step.dropout_seed, micro_step++);
    model.upload(micro.batch);
    model.forward_train(micro.mean, state_view);
    for (const NamedView& saved : model.activations()) {
      all.push_back(figures.of(of_many + saved.name, saved.values));
    }
    model.backward();
  }
  for (auto param = table.params.rbegin(); param != table.params.rend(); ++param) {
    all.push_back(
        figures.of("gradient of " + param->name, gradients.rows(param->offset, param->elements)));
  }
  return all;
}

}  // namespace bertha
