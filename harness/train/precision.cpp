#include "harness/train/precision.h"

#include "kernels/base/error.h"

namespace bertha {

DType planned_io(const TrainConfig& config, bool on_gpu) {
  if (config.precision == "fp32") return DType::kF32;
  if (config.precision == "fp16") return DType::kF16;
  if (config.precision == "bf16") return DType::kBF16;
  return on_gpu ? DType::kBF16 : DType::kF32;
}

DType choose_io(const Config& config, const Device& device) {
  const DType io = planned_io(config.train, device.has_io(DType::kBF16));
  if (!device.has_io(io)) {
    fail(ExitCode::kUsage, "train.precision is ", config.train.precision, ", which ",
         device.description(), " does not train in; set it to auto or fp32.");
  }
  if (io == DType::kF16 && config.optimizer.loss_scale == "off") {
    fail(ExitCode::kUsage,
         "train.precision is fp16 and optimizer.loss_scale is off: small gradients would become "
         "zero; set optimizer.loss_scale to dynamic, or train.precision to bf16.");
  }
  return io;
}

}  // namespace bertha
