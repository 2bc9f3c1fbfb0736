#include "tests/cuda/paired_adds.h"

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/cuda/embedding/paired_atomic_add.cuh"

namespace bertha::testing {
namespace {

constexpr int kRun = 5;  // elements per thread: odd, so that runs begin at every alignment
constexpr int kGuards = 9;

template <class T>
__global__ void fill_table(T* memory, int before, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < before + count + kGuards; i += blockDim.x) {
    memory[i] = from_float<T>(i >= before && i < before + count ? 1.0f : 2.0f);
  }
}

template <class T>
__global__ void add_rows(T* table, int width) {
  T* row = table + static_cast<int>(blockIdx.x) * width;
  const int first = static_cast<int>(threadIdx.x) * kRun;
  float values[kRun];
  for (int i = 0; i < kRun; ++i) values[i] = static_cast<float>(first + i + 1);
  const int left = width - first;
  if (left > 0) add_run_atomically(row + first, values, left < kRun ? left : kRun);
}

template <class T>
__global__ void widen(const T* from, float* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += blockDim.x) to[i] = to_float(from[i]);
}

}  // namespace

std::vector<float> paired_adds(DType dtype, int rows, int width, int offset, int times) {
  const int count = rows * width;
  const int all = offset + count + kGuards;
  std::vector<float> values(static_cast<size_t>(all));
  dispatch_io(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* memory = nullptr;
    float* wide = nullptr;
    BERTHA_CUDA_CHECK(cudaMalloc(&memory, static_cast<size_t>(all) * sizeof(T)));
    BERTHA_CUDA_CHECK(cudaMalloc(&wide, static_cast<size_t>(all) * sizeof(float)));
    fill_table<T><<<1, 256>>>(memory, offset, count);
    const int threads = (width + kRun - 1) / kRun;
    add_rows<T><<<dim3(static_cast<unsigned>(rows), static_cast<unsigned>(times)),
                  static_cast<unsigned>(threads)>>>(memory + offset, width);
    widen<T><<<1, 256>>>(memory, wide, all);
    BERTHA_CUDA_CHECK(cudaGetLastError());
    BERTHA_CUDA_CHECK(
        cudaMemcpy(values.data(), wide, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
    BERTHA_CUDA_CHECK(cudaFree(memory));
    BERTHA_CUDA_CHECK(cudaFree(wide));
  });
  return values;
}

}  // namespace bertha::testing
