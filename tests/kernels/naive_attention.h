#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace bertha {

/// One sequence of attention by its definition, in f64; arrays are indexed [token][part][head][d].
struct NaiveAttention {
  int64_t heads = 0;
  int64_t head_size = 0;
  double scale = 1.0;
  int64_t first = 0;  // token
  int64_t length = 0;
  /// Dropout factor of (head, query, key), both counted from the start of the sequence.
  std::function<double(int64_t, int64_t, int64_t)> factor;

  size_t qkv_at(int64_t token, int64_t part, int64_t head, int64_t d) const {
    return static_cast<size_t>((((first + token) * 3 + part) * heads + head) * head_size + d);
  }
  size_t out_at(int64_t token, int64_t head, int64_t d) const {
    return static_cast<size_t>(((first + token) * heads + head) * head_size + d);
  }

  /// Probabilities of one query over all keys; returns the log-sum-exp.
  double probabilities(const std::vector<double>& qkv, int64_t head, int64_t query,
                       std::vector<double>& p) const {
    p.assign(static_cast<size_t>(length), 0.0);
    double top = -std::numeric_limits<double>::infinity();
    for (int64_t key = 0; key < length; ++key) {
      double score = 0.0;
      for (int64_t d = 0; d < head_size; ++d) {
        score += qkv[qkv_at(query, 0, head, d)] * qkv[qkv_at(key, 1, head, d)];
      }
      p[static_cast<size_t>(key)] = scale * score;
      top = std::max(top, scale * score);
    }
    double sum = 0.0;
    for (double& value : p) sum += value = std::exp(value - top);
    for (double& value : p) value /= sum;
    return top + std::log(sum);
  }

  void forward(const std::vector<double>& qkv, std::vector<double>& out, std::vector<double>& lse,
               int64_t tokens) const {
    std::vector<double> p;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t query = 0; query < length; ++query) {
        lse[static_cast<size_t>(head * tokens + first + query)] =
            probabilities(qkv, head, query, p);
        for (int64_t d = 0; d < head_size; ++d) out[out_at(query, head, d)] = 0.0;
        for (int64_t key = 0; key < length; ++key) {
          const double weight = p[static_cast<size_t>(key)] * factor(head, query, key);
          for (int64_t d = 0; d < head_size; ++d) {
            out[out_at(query, head, d)] += weight * qkv[qkv_at(key, 2, head, d)];
          }
        }
      }
    }
  }

  /// Chain rule term by term: through the weighted mean, the factors, the softmax, the product.
  /// Returns the largest |probability * its gradient * scale|, of which the mean is subtracted.
  double backward(const std::vector<double>& qkv, const std::vector<double>& dout,
                  std::vector<double>& dqkv) const {
    std::vector<double> p;
    std::vector<double> dp(static_cast<size_t>(length));
    double largest = 0.0;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t query = 0; query < length; ++query) {
        probabilities(qkv, head, query, p);
        double weighted = 0.0;
        for (int64_t key = 0; key < length; ++key) {
          const size_t k = static_cast<size_t>(key);
          const double f = factor(head, query, key);
          double sum = 0.0;
          for (int64_t d = 0; d < head_size; ++d) {
            const double g = dout[out_at(query, head, d)];
            sum += g * qkv[qkv_at(key, 2, head, d)];
            dqkv[qkv_at(key, 2, head, d)] += p[k] * f * g;
          }
          dp[k] = sum * f;
          weighted += p[k] * dp[k];
          largest = std::max(largest, std::abs(p[k] * dp[k]) * scale);
        }
        for (int64_t key = 0; key < length; ++key) {
          const size_t k = static_cast<size_t>(key);
          const double ds = p[k] * (dp[k] - weighted) * scale;
          for (int64_t d = 0; d < head_size; ++d) {
            dqkv[qkv_at(query, 0, head, d)] += ds * qkv[qkv_at(key, 1, head, d)];
            dqkv[qkv_at(key, 1, head, d)] += ds * qkv[qkv_at(query, 0, head, d)];
          }
        }
      }
    }
    return largest;
  }
};

}  // namespace bertha
