#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/sequence_group.h"
#include "tests/cuda/gpu.h"

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

/// The factors of one row of probabilities.
inline double factor_of(const Case& c, int64_t token, int64_t head, int64_t key) {
  if (c.probability == 0.0f) return 1.0;
  const int64_t element = (token * c.heads + head) * c.max_seq_tokens + key;
  return is_kept(kSeed, kStep, kSite, element, c.probability)
             ? 1.0 / (1.0 - static_cast<double>(c.probability))
             : 0.0;
}

/// One head of one sequence.
class HeadReference {
 public:
  HeadReference(const Case& c, const HostTensor<float>& qkv, const HostTensor<float>& dout,
                int64_t first, int64_t length, int64_t head)
      : c_(c), qkv_(qkv), dout_(dout), first_(first), length_(length), head_(head) {}

  void run(Reference& to) {
    std::vector<double> p(static_cast<size_t>(length_));
    std::vector<double> f(p.size());
    std::vector<double> dp(p.size());
    for (int64_t q = 0; q < length_; ++q) {
      to.lse[static_cast<size_t>(head_ * c_.tokens() + first_ + q)] = softmax(q, p);
      double delta = 0.0;
      for (int64_t k = 0; k < length_; ++k) {
        const auto at = static_cast<size_t>(k);
        f[at] = factor_of(c_, first_ + q, head_, k);
        dp[at] = 0.0;
        for (int64_t d = 0; d < c_.head_size; ++d) {
          dp[at] += f[at] * in(dout_, out_at(q, d)) * in(qkv_, qkv_at(k, 2, d));
        }
        delta += p[at] * dp[at];
        to.largest_dscore_term =
            std::max(to.largest_dscore_term, std::abs(p[at] * dp[at]) * c_.scale());
      }
      for (int64_t k = 0; k < length_; ++k) {
        const auto at = static_cast<size_t>(k);
        add(to, q, k, p[at], f[at], p[at] * (dp[at] - delta) * c_.scale());
      }
    }
  }

 private:
  static double in(const HostTensor<float>& tensor, int64_t at) {
    return static_cast<double>(tensor[at]);
  }
  int64_t qkv_at(int64_t row, int64_t part, int64_t d) const {
    return (((first_ + row) * 3 + part) * c_.heads + head_) * c_.head_size + d;
  }
  int64_t out_at(int64_t row, int64_t d) const {
    return ((first_ + row) * c_.heads + head_) * c_.head_size + d;
  }

  double softmax(int64_t q, std::vector<double>& p) const {
    double top = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < length_; ++k) {
      double score = 0.0;
      for (int64_t d = 0; d < c_.head_size; ++d) {
        score += in(qkv_, qkv_at(q, 0, d)) * in(qkv_, qkv_at(k, 1, d));
      }
      p[static_cast<size_t>(k)] = score * c_.scale();
      top = std::max(top, score * c_.scale());
    }
    double sum = 0.0;
    for (double& value : p) sum += value = std::exp(value - top);
    for (double& value : p) value /= sum;
    return top + std::log(sum);
  }

  void add(Reference& to, int64_t q, int64_t k, double p, double f, double dscore) const {
    for (int64_t d = 0; d < c_.head_size; ++d) {
      const auto at = [&](int64_t row, int64_t part) {
        return static_cast<size_t>(qkv_at(row, part, d));
      };
      to.out[static_cast<size_t>(out_at(q, d))] += p * f * in(qkv_, qkv_at(k, 2, d));
      to.dqkv[at(q, 0)] += dscore * in(qkv_, qkv_at(k, 1, d));
      to.dqkv[at(k, 1)] += dscore * in(qkv_, qkv_at(q, 0, d));
      to.dqkv[at(k, 2)] += p * f * in(dout_, out_at(q, d));
    }
  }

  const Case& c_;
  const HostTensor<float>& qkv_;
  const HostTensor<float>& dout_;
  int64_t first_;
  int64_t length_;
  int64_t head_;
};

inline Reference reference_of(const Case& c, const HostTensor<float>& qkv,
                              const HostTensor<float>& dout) {
  Reference to;
  to.out.assign(dout.values.size(), 0.0);
  to.lse.assign(static_cast<size_t>(c.heads * c.tokens()), 0.0);
  to.dqkv.assign(qkv.values.size(), 0.0);
  int64_t first = 0;
  for (const int64_t length : c.lengths) {
    for (int64_t head = 0; head < c.heads; ++head) {
      HeadReference(c, qkv, dout, first, length, head).run(to);
    }
    first += length;
  }
  return to;
}

}  // namespace bertha::testing
