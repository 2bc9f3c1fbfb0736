#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/base/arguments.h"
#include "kernels/base/tests/finite_difference.h"

namespace bertha {

// Checks of a test's Case: arguments and results of one operation, with forward(threads) and
// backward(threads, accumulate).

/// An input of a Case, and where backward leaves its gradient.
template <class Case>
struct InputGradient {
  const char* name;
  HostTensor<float> Case::*input;
  HostTensor<float> Case::*gradient;
};

/// Backward of dy gives the slopes of the sum of y * dy.
template <class Case>
void expect_finite_differences(Case c, std::initializer_list<InputGradient<Case>> all) {
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  for (const auto& of : all) {
    expect_gradient(of.name, c.*of.input, c.*of.gradient, [&] {
      c.forward(1);
      return weighted_sum(c.y, c.dy);
    });
  }
}

/// With Accumulate::kYes, backward adds to each of `sums` what it writes with kNo. The tolerance is
/// for one addition in f32 to sums up to about 100.
template <class Case>
void expect_backward_adds(Case c, std::initializer_list<HostTensor<float> Case::*> sums) {
  constexpr float kBefore = 7.0f;
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  std::vector<HostTensor<float>> written;
  for (const auto sum : sums) {
    written.push_back(c.*sum);
    (c.*sum).values.assign((c.*sum).values.size(), kBefore);
  }
  c.backward(1, Accumulate::kYes);
  size_t index = 0;
  for (const auto sum : sums) {
    for (int64_t i = 0; i < (c.*sum).elements(); ++i) {
      EXPECT_NEAR((c.*sum)[i], written[index][i] + kBefore, 1e-5f) << "sum " << index;
    }
    ++index;
  }
}

/// One and three threads give the same bits.
template <class Case, class T>
void expect_same_for_threads(const Case& start,
                             std::initializer_list<HostTensor<T> Case::*> results) {
  Case one = start;
  Case three = start;
  one.forward(1);
  one.backward(1, Accumulate::kNo);
  three.forward(3);
  three.backward(3, Accumulate::kNo);
  size_t index = 0;
  for (const auto result : results) {
    EXPECT_EQ((one.*result).values, (three.*result).values) << "result " << index++;
  }
}

}  // namespace bertha
