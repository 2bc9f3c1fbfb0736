#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/rows/cuda/cuda_row_ops.h"
#include "kernels/rows/ops/layer_norm.h"
#include "kernels/rows/ops/softmax.h"

namespace {

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

/// Largest distance of the rows' sums from `wanted`.
double furthest_sum(const std::vector<float>& values, int rows, int columns, double wanted) {
  double furthest = 0;
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int c = 0; c < columns; ++c) sum += static_cast<double>(values[r * columns + c]);
    furthest = std::fmax(furthest, std::fabs(sum - wanted));
  }
  return furthest;
}

}  // namespace

// Softmax and LayerNorm of a program's own memory, in order with its own work on its own stream.
int main() {
  constexpr int kRows = 300;
  constexpr int kColumns = 513;
  const size_t bytes = sizeof(float) * kRows * kColumns;
  cudaStream_t stream = nullptr;
  float* x = nullptr;  // [rows, columns], and so are the others but the statistics, [rows]
  float* shares = nullptr;
  float* normal = nullptr;
  float* mean = nullptr;
  float* rstd = nullptr;
  check(cudaSetDevice(0));
  check(cudaStreamCreate(&stream));
  for (float** matrix : {&x, &shares, &normal}) check(cudaMalloc(matrix, bytes));
  for (float** column : {&mean, &rstd}) check(cudaMalloc(column, sizeof(float) * kRows));
  std::vector<float> host(size_t{kRows} * kColumns);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i * 7919 % 1000) * 0.01f;
  check(cudaMemcpyAsync(x, host.data(), bytes, cudaMemcpyHostToDevice, stream));

  {
    using namespace bertha;
    const std::unique_ptr<Device> device = make_cuda_device(0);
    const std::unique_ptr<Stream> mine = borrow_cuda_stream(stream);
    const std::unique_ptr<RowOps> ops = make_cuda_row_ops(*device, *mine);
    const View input(x, DType::kF32, {kRows, kColumns});
    ops->run(SoftmaxFwd{.x = input,
                        .bias = View(),
                        .mask = View(),
                        .y = View(shares, DType::kF32, {kRows, kColumns}),
                        .dropped = View(),
                        .kept_mask = View()});
    ops->run(LayerNormFwd{.x = input,
                          .gamma = View(),
                          .beta = View(),
                          .y = View(normal, DType::kF32, {kRows, kColumns}),
                          .mean = View(mean, DType::kF32, {kRows}),
                          .rstd = View(rstd, DType::kF32, {kRows})});
  }

  check(cudaMemcpyAsync(host.data(), shares, bytes, cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  const double off_one = furthest_sum(host, kRows, kColumns, 1.0);
  check(cudaMemcpyAsync(host.data(), normal, bytes, cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  const double off_zero = furthest_sum(host, kRows, kColumns, 0.0);
  for (float* pointer : {x, shares, normal, mean, rstd}) check(cudaFree(pointer));
  check(cudaStreamDestroy(stream));
  std::printf("sums of rows: softmax off 1 by %g, LayerNorm off 0 by %g\n", off_one, off_zero);
  return off_one < 1e-5 && off_zero < 1e-2 ? 0 : 1;
}
