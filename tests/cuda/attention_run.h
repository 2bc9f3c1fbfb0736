#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/attention.h"
#include "tests/cuda/attention_reference.h"

namespace bertha::testing {

// Runs attention cases on the GPU and compares them with attention_reference.h.

/// One batch on the GPU, forward and backward.
struct Results {
  HostTensor<float> out;
  HostTensor<float> lse;
  HostTensor<uint8_t> mask;
  HostTensor<float> dqkv;
  HostTensor<float> dbias;
};

struct Inputs {
  HostTensor<float> qkv;
  HostTensor<float> dout;
  HostTensor<float> dbias;  // what is there before

  explicit Inputs(const Case& c)
      : qkv(rounded_to(c.dtype, random_tensor({c.tokens(), 3, c.heads, c.head_size}, 1))),
        dout(rounded_to(c.dtype, random_tensor({c.tokens(), c.heads, c.head_size}, 2))),
        dbias(c.accumulate == Accumulate::kYes
                  ? rounded_to(c.dtype, random_tensor({3 * c.heads * c.head_size}, 3))
                  : garbage_tensor({3 * c.heads * c.head_size})) {
    // What stands in padding rows must not matter: this is the most that the contract allows.
    const auto poison = [&](HostTensor<float>& tensor, int64_t row_elements) {
      std::fill(tensor.values.begin() + c.live() * row_elements, tensor.values.end(), 0x1p15f);
    };
    poison(qkv, 3 * c.heads * c.head_size);
    poison(dout, c.heads * c.head_size);
  }
};

/// recorded: unless null, the launches are a graph that was recorded with sequences of these
/// lengths, as many and of as many tokens in all. dqkv_fp8: of AttentionBwd.
inline Results run(const TestBackend& backend, const Case& c, const Inputs& inputs,
                   bool wants_dbias = true, const Case* recorded = nullptr,
                   const Fp8Result& dqkv_fp8 = {}) {
  const DeviceTensor qkv(backend, c.dtype, inputs.qkv);
  const DeviceTensor dout(backend, c.dtype, inputs.dout);
  const Case& first = recorded == nullptr ? c : *recorded;
  const DeviceTensor starts(backend, starts_of(first));
  const DeviceTensor state(backend, random_state(kSeed, kStep));
  const DeviceTensor out(backend, c.dtype, garbage_tensor({c.tokens(), c.heads, c.head_size}));
  const DeviceTensor lse(backend, DType::kF32, garbage_tensor({c.heads, c.tokens()}));
  const DeviceTensor dqkv(backend, c.dtype, garbage_tensor({c.tokens(), 3, c.heads, c.head_size}));
  const DeviceTensor dbias(backend, c.dtype, inputs.dbias);
  const DeviceTensor mask(backend,
                          HostTensor<uint8_t>({c.tokens(), c.heads, c.max_seq_tokens / 8}, 0x5A));
  const std::vector<SequenceGroup> groups = groups_of(first);
  const Dropout dropout{.random = state.view(), .probability = c.probability, .site = kSite};
  const auto enqueue = [&] {
    backend.ops->run(AttentionFwd{.qkv = qkv.view(),
                                  .cu_seqlens = starts.view(),
                                  .out = out.view(),
                                  .lse = lse.view(),
                                  .mask = mask.view(),
                                  .groups = groups,
                                  .dropout = dropout,
                                  .max_seq_tokens = c.max_seq_tokens,
                                  .scale = static_cast<float>(c.scale())});
    backend.ops->run(AttentionBwd{.dout = dout.view(),
                                  .qkv = qkv.view(),
                                  .out = out.view(),
                                  .lse = lse.view(),
                                  .mask = mask.view(),
                                  .cu_seqlens = starts.view(),
                                  .dqkv = dqkv.view(),
                                  .dbias = wants_dbias ? dbias.view() : View(),
                                  .groups = groups,
                                  .dropout = dropout,
                                  .max_seq_tokens = c.max_seq_tokens,
                                  .scale = static_cast<float>(c.scale()),
                                  .accumulate = c.accumulate,
                                  .dqkv_fp8 = dqkv_fp8});
  };
  enqueue();
  if (recorded != nullptr) {
    const std::unique_ptr<Graph> graph = backend.device->record(*backend.stream, enqueue);
    const DeviceTensor other_starts(backend, starts_of(c));
    backend.device->copy(*backend.stream, starts.view().data, other_starts.view().data,
                         starts.view().bytes());
    backend.device->launch(*backend.stream, *graph);
    backend.wait();
  }
  return {out.floats(), lse.floats(), mask.values<uint8_t>(), dqkv.floats(), dbias.floats()};
}

inline void expect_mask(const Case& c, const HostTensor<uint8_t>& mask) {
  int64_t first = 0;
  for (const int64_t length : c.lengths) {
    for (int64_t token = first; token < first + length; ++token) {
      for (int64_t head = 0; head < c.heads; ++head) {
        for (int64_t key = 0; key < length; ++key) {
          const int64_t element = (token * c.heads + head) * c.max_seq_tokens + key;
          const bool kept = (mask[element / 8] >> (element % 8) & 1) != 0;
          ASSERT_EQ(kept, is_kept(kSeed, kStep, kSite, element, c.probability))
              << c.text() << ": token " << token << ", head " << head << ", key " << key;
        }
      }
    }
    first += length;
  }
}

/// dbias is the sum of what dqkv has, as it was stored: only the sum itself rounds.
inline void expect_column_sums(const Case& c, const Inputs& inputs, const Results& got) {
  const auto columns = static_cast<size_t>(3 * c.heads * c.head_size);
  std::vector<double> sums(columns, 0.0);
  std::vector<double> magnitudes(columns, 0.0);
  const auto add = [&](size_t column, float value) {
    sums[column] += static_cast<double>(value);
    magnitudes[column] += static_cast<double>(std::abs(value));
  };
  for (size_t i = 0; i < got.dqkv.values.size(); ++i) add(i % columns, got.dqkv.values[i]);
  for (size_t column = 0; column < columns; ++column) {
    if (c.accumulate == Accumulate::kYes) add(column, inputs.dbias.values[column]);
    ASSERT_NEAR(static_cast<double>(got.dbias.values[column]), sums[column],
                tolerance::stored_column_sum(rounding(c.dtype), sums[column], magnitudes[column],
                                             c.tokens()))
        << c.text() << ": dbias, column " << column;
  }
}

/// Part 0, 1, 2 of a [T, 3, A, D] tensor: query, key, value.
template <class T>
std::vector<T> part_of(const Case& c, const std::vector<T>& qkv, int64_t part) {
  const auto width = static_cast<size_t>(c.heads * c.head_size);
  std::vector<T> values;
  for (size_t token = 0; token < static_cast<size_t>(c.tokens()); ++token) {
    const auto from =
        qkv.begin() + static_cast<std::ptrdiff_t>((3 * token + static_cast<size_t>(part)) * width);
    values.insert(values.end(), from, from + static_cast<std::ptrdiff_t>(width));
  }
  return values;
}

using Variant = CudaOptions::AttentionVariant;

/// The kernels of one variant, made once per program.
inline const TestBackend& kernels(Variant variant) {
  static std::map<Variant, TestBackend> made;
  if (variant == Variant::kAuto) return gpu();
  const auto found = made.find(variant);
  if (found != made.end()) return found->second;
  return made.emplace(variant, make_gpu({.attention = variant})).first->second;
}

/// Element types that a variant serves.
inline std::vector<DType> dtypes(Variant variant) {
  if (variant == Variant::kGrouped) return {std::begin(kIoTypes), std::end(kIoTypes)};
  return {DType::kF16, DType::kBF16};
}

inline void expect_matches_reference(Variant variant, const Case& c,
                                     const Case* recorded = nullptr) {
  const Inputs inputs(c);
  const Reference want = reference_of(c, inputs.qkv, inputs.dout);
  const Results got = run(kernels(variant), c, inputs, true, recorded);
  const double u = rounding(c.dtype);
  expect_close(got.out.values, want.out, tolerance::attention_out(u), c.text() + ": out");
  expect_close(got.lse.values, want.lse, tolerance::kAttentionF32, c.text() + ": lse", 8.0);
  if (c.probability > 0.0f) expect_mask(c, got.mask);
  constexpr const char* kNames[] = {": dquery", ": dkey", ": dvalue"};
  for (int64_t part = 0; part < 3; ++part) {
    const std::vector<double> wanted = part_of(c, want.dqkv, part);
    double magnitude = largest_magnitude(wanted);
    // Inputs are at most 2. In a sequence of one token the two terms of dS cancel to nothing.
    if (part < 2) magnitude = std::max(magnitude, 2.0 * want.largest_dscore_term);
    const double bound = part < 2 ? tolerance::attention_dscore(u) : tolerance::attention_out(u);
    expect_close(part_of(c, got.dqkv.values, part), wanted, bound, c.text() + kNames[part],
                 magnitude);
  }
  expect_column_sums(c, inputs, got);
  const int64_t width = c.heads * c.head_size;
  for (int64_t i = c.live() * width; i < c.tokens() * width; ++i) ASSERT_EQ(got.out[i], 0.0f);
  for (int64_t i = c.live() * 3 * width; i < c.tokens() * 3 * width; ++i) {
    ASSERT_EQ(got.dqkv[i], 0.0f);
  }
}

}  // namespace bertha::testing
