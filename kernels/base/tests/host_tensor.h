#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/view.h"

namespace bertha {

/// Elements in host memory with their extents; `view()` is what an operation takes.
template <class T>
struct HostTensor {
  HostTensor() = default;
  explicit HostTensor(std::initializer_list<int64_t> extents_in, T fill = T{})
      : extents(extents_in), values(static_cast<size_t>(count(extents_in)), fill) {}

  View view() { return {values.data(), kDTypeOf<T>, std::span(extents)}; }

  T& operator[](int64_t index) { return values[static_cast<size_t>(index)]; }
  const T& operator[](int64_t index) const { return values[static_cast<size_t>(index)]; }
  int64_t elements() const { return static_cast<int64_t>(values.size()); }
  std::vector<double> doubles() const { return {values.begin(), values.end()}; }

  static int64_t count(std::initializer_list<int64_t> extents) {
    int64_t product = 1;
    for (const int64_t extent : extents) product *= extent;
    return product;
  }

  std::vector<int64_t> extents;
  std::vector<T> values;
};

/// Multiples of 2^-10 in [-2, 2): sums with a multiple of 2^-10 are exact in f32, so that finite
/// differences have no error in their arguments.
inline HostTensor<float> random_tensor(std::initializer_list<int64_t> extents, uint32_t seed) {
  HostTensor<float> tensor(extents);
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> units(-2048, 2047);
  for (float& value : tensor.values) value = static_cast<float>(units(engine)) / 1024.0f;
  return tensor;
}

/// NaN everywhere: an output that is not overwritten, or is added to, shows.
inline HostTensor<float> garbage_tensor(std::initializer_list<int64_t> extents) {
  return HostTensor<float>(extents, std::numeric_limits<float>::quiet_NaN());
}

inline HostTensor<int32_t> random_ids(int64_t count, int32_t limit, uint32_t seed) {
  HostTensor<int32_t> ids({count});
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int32_t> uniform(0, limit - 1);
  for (int32_t& id : ids.values) id = uniform(engine);
  return ids;
}

/// {seed, step} of a dropout, in the form that operations read.
inline HostTensor<uint64_t> random_state(uint64_t seed, uint64_t step) {
  HostTensor<uint64_t> state({2});
  state.values = {seed, step};
  return state;
}

}  // namespace bertha
