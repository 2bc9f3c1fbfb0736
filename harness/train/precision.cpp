#include "harness/train/precision.h"

#include "kernels/base/error.h"

namespace bertha {

DType planned_io(const TrainConfig& config, bool on_gpu) {
  if (config.precision == Precision::kFp32) return DType::kF32;
  if (config.precision == Precision::kFp16) return DType::kF16;
  if (config.precision == Precision::kBf16) return DType::kBF16;
  return on_gpu ? DType::kBF16 : DType::kF32;
}

DType choose_io(const Config& config, const Device& device) {
  const DType io = planned_io(config.train, device.has_io(DType::kBF16));
  if (!device.has_io(io)) {
    fail(ExitCode::kUsage, "train.precision is ", word_of(config.train.precision), ", which ",
         device.description(), " does not support; set it to auto or fp32.");
  }
  if (io == DType::kF16 && config.optimizer.loss_scale == LossScaling::kOff) {
    fail(ExitCode::kUsage,
         "train.precision is fp16 but optimizer.loss_scale is off, so small gradients would become "
         "zero; set optimizer.loss_scale to dynamic, or train.precision to bf16.");
  }
  const ModelConfig& model = config.model;
  const bool fits_fp8 = model.hidden % 16 == 0 && model.feed_forward % 16 == 0;
  if (has_fp8_gemms(config.train) && io == DType::kBF16 && !fits_fp8) {
    fail(ExitCode::kUsage, "train.precision is fp8 with model.hidden ", model.hidden,
         " and model.feed_forward ", model.feed_forward, ", but fp8 GEMMs on a GPU need multiples ",
         "of 16; change these widths, or set train.precision to bf16.");
  }
  return io;
}

bool has_fp8_gemms(const TrainConfig& config) { return config.precision == Precision::kFp8; }

std::string precision_text(DType io, const TrainConfig& config) {
  return concat(name(io), has_fp8_gemms(config) ? " with fp8 GEMMs" : "");
}

}  // namespace bertha
