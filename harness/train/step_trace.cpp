#include "harness/train/step_trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/half.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

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

}  // namespace

TensorFigures figures_of(std::string name, const View& values, HostPieces& pieces) {
  TensorFigures figures{.name = std::move(name), .elements = values.elements()};
  double sum = 0, squares = 0;
  pieces.each(values, [&](const View& piece) {
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
  });
  const auto finite =
      static_cast<double>(std::max<int64_t>(figures.elements - figures.not_finite, 1));
  figures.mean = sum / finite;
  figures.rms = std::sqrt(squares / finite);
  return figures;
}

std::vector<TensorFigures> trace_step(const TracedStep& step, Bert& model, const ModelParts& parts,
                                      const ParamTable& table, const View& gradients) {
  const Buffer state_buffer = parts.device->allocate(sizeof(LambState));
  const LambState state{.loss_scale = step.loss_scale};
  parts.device->copy(*parts.stream, state_buffer.data(), &state, sizeof(LambState));
  parts.stream->wait_on_host();
  const View state_view(state_buffer.data(), DType::kU8, {static_cast<int64_t>(sizeof(LambState))});

  HostPieces pieces(*parts.device, *parts.stream);
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
      all.push_back(figures_of(of_many + saved.name, saved.values, pieces));
    }
    model.backward();
  }
  for (auto param = table.params.rbegin(); param != table.params.rend(); ++param) {
    all.push_back(figures_of("gradient of " + param->name,
                             gradients.rows(param->offset, param->elements), pieces));
  }
  return all;
}

}  // namespace bertha
