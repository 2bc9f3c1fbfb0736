#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/base/sequence_group.h"
#include "kernels/base/tests/naive_dropout.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/naive_attention.h"

namespace bertha::testing {

// Attention cases of the CUDA tests, and attention by its definition in f64.

inline constexpr uint64_t kSeed = 0x123456789abcdef0;
inline constexpr uint64_t kStep = 41;
inline constexpr uint32_t kSite = 5;
inline constexpr int64_t kBucketTokens = 128;

struct Case {
  std::vector<int64_t> lengths;
  int64_t padding = 0;  // tokens behind the last sequence
  int64_t heads = 1;
  int64_t head_size = 64;
  int64_t max_seq_tokens = 512;
  DType dtype = DType::kBF16;
  float probability = 0.0f;
  Accumulate accumulate = Accumulate::kYes;  // into dbias

  int64_t live() const {
    int64_t sum = 0;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }
  int64_t tokens() const { return live() + padding; }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_size)); }
  std::string text() const {
    return concat(name(dtype), " A = ", heads, ", D = ", head_size, ", S = ", max_seq_tokens,
                  ", p = ", probability, ", ", lengths.size(), " sequences, the first of ",
                  lengths.empty() ? 0 : lengths.front());
  }
};

inline HostTensor<int32_t> starts_of(const Case& c) {
  HostTensor<int32_t> starts({static_cast<int64_t>(c.lengths.size()) + 1});
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    starts.values[i + 1] = starts.values[i] + static_cast<int32_t>(c.lengths[i]);
  }
  return starts;
}

/// As the loader makes them: consecutive sequences of one bucket.
inline std::vector<SequenceGroup> groups_of(const Case& c) {
  std::vector<SequenceGroup> groups;
  int64_t token = 0;
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    const int64_t length = c.lengths[i];
    const int64_t bucket = (length + kBucketTokens - 1) / kBucketTokens * kBucketTokens;
    if (groups.empty() || groups.back().bucket_tokens != bucket) {
      groups.push_back(
          {.first_seq = static_cast<int64_t>(i), .first_token = token, .bucket_tokens = bucket});
    }
    SequenceGroup& group = groups.back();
    ++group.num_seqs;
    group.num_tokens += length;
    group.longest_seq_tokens = std::max(group.longest_seq_tokens, length);
    token += length;
  }
  return groups;
}

/// Attention in f64 on the same inputs.
struct Reference {
  std::vector<double> out;
  std::vector<double> lse;
  std::vector<double> dqkv;
  double largest_dscore_term = 0.0;  // probability * its gradient * scale, before the mean goes off
};

inline Reference reference_of(const Case& c, const HostTensor<float>& qkv,
                              const HostTensor<float>& dout) {
  Reference to;
  to.out.assign(dout.values.size(), 0.0);
  to.lse.assign(static_cast<size_t>(c.heads * c.tokens()), 0.0);
  to.dqkv.assign(qkv.values.size(), 0.0);
  const std::vector<double> qkv_values = qkv.doubles();
  const std::vector<double> dout_values = dout.doubles();
  const NaiveDropout dropout{kSeed, kStep, kSite, c.probability};
  int64_t first = 0;
  for (const int64_t length : c.lengths) {
    const NaiveAttention sequence{
        .heads = c.heads,
        .head_size = c.head_size,
        .scale = c.scale(),
        .first = first,
        .length = length,
        .factor = [&, first](int64_t head, int64_t query, int64_t key) {
          return dropout.factor(((first + query) * c.heads + head) * c.max_seq_tokens + key);
        }};
    sequence.forward(qkv_values, to.out, to.lse, c.tokens());
    to.largest_dscore_term =
        std::max(to.largest_dscore_term, sequence.backward(qkv_values, dout_values, to.dqkv));
    first += length;
  }
  return to;
}

}  // namespace bertha::testing
