#include <cmath>
#include <cstdio>

#include "kernels/base/cpu/cpu_devices.h"
#include "kernels/rows/cpu/cpu_row_ops.h"
#include "kernels/rows/row_ops.h"

// PReLU and softmax of two numbers, through headers and libraries of the package.
int main() {
  using namespace bertha;
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::unique_ptr<Stream> stream = device->make_stream();
  const std::unique_ptr<RowOps> ops = make_cpu_row_ops(*device, *stream);
  float values[2] = {-3.0f, 2.0f};
  float slope = 0.5f;
  const View channel(values, DType::kF32, {1, 1, 2});
  ops->run(PreluFwd{.x = channel, .slope = View(&slope, DType::kF32, {1}), .y = channel});
  std::printf("PReLU = %g, %g, want -1.5, 2\n", static_cast<double>(values[0]),
              static_cast<double>(values[1]));
  const bool right = values[0] == -1.5f && values[1] == 2.0f;
  const View row(values, DType::kF32, {1, 2});
  ops->run(SoftmaxFwd{
      .x = row, .bias = View(), .mask = View(), .y = row, .dropped = View(), .kept_mask = View()});
  std::printf("softmax = %g, %g\n", static_cast<double>(values[0]), static_cast<double>(values[1]));
  const double wanted = 1 / (1 + std::exp(-3.5));
  return right && std::fabs(static_cast<double>(values[1]) - wanted) < 1e-6 ? 0 : 1;
}
