#include <cstdio>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/linear.h"

// y = x w^T + bias for [1,2] x [1,2], through the installed headers and libraries.
int main() {
  const std::unique_ptr<bertha::Device> device = bertha::make_cpu_device(1);
  const std::unique_ptr<bertha::Stream> stream = device->make_stream();
  const std::unique_ptr<bertha::Ops> ops = bertha::make_cpu_ops(*device, *stream);
  std::vector<float> x = {2.0f, 3.0f};
  std::vector<float> weight = {10.0f, 100.0f};
  float bias = 5.0f;
  float y = 0.0f;
  ops->run(bertha::LinearFwd{.x = bertha::View(x.data(), bertha::DType::kF32, {1, 2}),
                             .weight = bertha::View(weight.data(), bertha::DType::kF32, {1, 2}),
                             .bias = bertha::View(&bias, bertha::DType::kF32, {1}),
                             .y = bertha::View(&y, bertha::DType::kF32, {1, 1}),
                             .pre_activation = bertha::View()});
  std::printf("y = %g, want 325\n", static_cast<double>(y));
  return y == 325.0f ? 0 : 1;
}
