#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "data/pipeline/transport.h"

namespace bertha {

/// A rank's contribution to a common step: values, or the reason why it cannot continue.
struct Contribution {
  enum class Kind : int64_t { kValues, kFailure, kLeaving };
  Kind kind = Kind::kValues;
  std::vector<int64_t> values;           // kValues
  std::exception_ptr failure = nullptr;  // kFailure
};

/// What `work` returns, or the failure that ends it.
Contribution contribution_of(const std::function<std::vector<int64_t>()>& work);

/// Every rank's values in rank order; counts may differ. One all_gather_bytes.
///
/// Errors    when a rank brings a failure, all ranks throw the Error of the lowest such rank, with
///           its words, so that no rank waits for one that has stopped. When a rank leaves (its
///           pipeline is being destroyed) and none fails, all throw Error(kInternal).
std::vector<std::vector<int64_t>> gather_values(Transport& transport, const Contribution& mine);

/// The sums of every rank's values, `count` on each, in few messages with many ranks: nothing is
/// gathered but failures.
///
/// Errors    as gather_values().
std::vector<int64_t> sum_values(Transport& transport, const Contribution& mine, int64_t count);

}  // namespace bertha
