#include "tests/kernels/device_values.h"

#include "kernels/base/dropout_bits.h"
#include "kernels/base/error.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha::testing {
namespace {

constexpr int kThreads = 128;

__global__ void random_words(uint64_t seed, uint64_t step, uint32_t site, int64_t first_element,
                             int64_t count, uint32_t* words) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) words[i] = random_word(seed, step, site, first_element + i);
}

__global__ void kept_words(uint64_t seed, uint64_t step, uint32_t site, int64_t first_group,
                           uint32_t threshold, int64_t count, uint32_t* words) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) words[i] = kept_bits(seed, step, site, first_group + i, threshold);
}

__global__ void learning_rates(LrSchedule schedule, int64_t count, double* rates) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) rates[i] = scheduled_learning_rate(schedule, i);
}

void check(cudaError_t status) {
  if (status != cudaSuccess) fail(ExitCode::kEnvironment, cudaGetErrorString(status));
}

/// Runs launch(blocks, device pointer) for `count` values and brings them back.
template <class T, class Launch>
std::vector<T> values_of(int64_t count, const Launch& launch) {
  T* on_device = nullptr;
  check(cudaMalloc(&on_device, static_cast<size_t>(count) * sizeof(T)));
  launch(static_cast<unsigned>((count + kThreads - 1) / kThreads), on_device);
  check(cudaGetLastError());
  std::vector<T> values(static_cast<size_t>(count));
  check(cudaMemcpy(values.data(), on_device, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
  check(cudaFree(on_device));
  return values;
}

}  // namespace

std::vector<uint32_t> device_random_words(uint64_t seed, uint64_t step, uint32_t site,
                                          int64_t first_element, int64_t count) {
  return values_of<uint32_t>(count, [&](unsigned blocks, uint32_t* words) {
    random_words<<<blocks, kThreads>>>(seed, step, site, first_element, count, words);
  });
}

std::vector<uint32_t> device_kept_bits(uint64_t seed, uint64_t step, uint32_t site,
                                       int64_t first_group, float probability, int64_t count) {
  return values_of<uint32_t>(count, [&](unsigned blocks, uint32_t* words) {
    kept_words<<<blocks, kThreads>>>(seed, step, site, first_group, drop_threshold(probability),
                                     count, words);
  });
}

std::vector<double> device_learning_rates(const LrSchedule& schedule, int64_t count) {
  return values_of<double>(count, [&](unsigned blocks, double* rates) {
    learning_rates<<<blocks, kThreads>>>(schedule, count, rates);
  });
}

}  // namespace bertha::testing
