#include "harness/comm/shard_check.h"

#include <algorithm>
#include <iterator>

namespace bertha {

namespace {

/// Whether two views have a byte in common.
bool overlap(const View& a, const View& b) {
  const char* a_begin = static_cast<const char*>(a.data);
  const char* b_begin = static_cast<const char*>(b.data);
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

}  // namespace

void check_shard(const Collectives& collectives, const View& full, const View& shard) {
  const int index = collectives.shard();
  const int count = collectives.shard_count();
  BERTHA_CHECK(full.dtype == shard.dtype && full.elements() == count * shard.elements(), "full ",
               full.shape_text(), ", shard ", shard.shape_text(), ", ", count, " of them");
  const char* own_slot = static_cast<const char*>(full.data) + index * shard.bytes();
  BERTHA_CHECK(shard.data == own_slot || !overlap(full, shard), "shard ", index,
               " overlaps the full view outside its own slot");
}

void check_sum(const View& values) {
  constexpr DType kSummed[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64};
  BERTHA_CHECK(std::ranges::find(kSummed, values.dtype) != std::end(kSummed), "sum of ",
               name(values.dtype), ", want f64, f32, f16, bf16 or i64");
}

void check_maximum(const View& values) {
  BERTHA_CHECK(values.dtype == DType::kI32, "maximum of ", name(values.dtype), ", want i32");
}

}  // namespace bertha
