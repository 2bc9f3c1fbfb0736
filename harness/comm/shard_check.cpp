#include "harness/comm/shard_check.h"

namespace bertha {

bool overlap(const View& a, const View& b) {
  const char* a_begin = static_cast<const char*>(a.data);
  const char* b_begin = static_cast<const char*>(b.data);
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

void check_shard(const Collectives& collectives, const View& full, const View& shard) {
  const int rank = collectives.rank();
  const int size = collectives.size();
  BERTHA_CHECK(full.dtype == shard.dtype && full.elements() == size * shard.elements(), "full ",
               full.shape_text(), ", shard ", shard.shape_text(), ", ", size, " ranks");
  const char* own_slot = static_cast<const char*>(full.data) + rank * shard.bytes();
  BERTHA_CHECK(shard.data == own_slot || !overlap(full, shard), "the shard of rank ", rank,
               " overlaps the full view beside its own slot");
}

void check_maximum(const View& values) {
  BERTHA_CHECK(values.dtype == DType::kI32, "maximum of ", name(values.dtype), ", want i32");
}

}  // namespace bertha
