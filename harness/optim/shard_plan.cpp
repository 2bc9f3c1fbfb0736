#include "harness/optim/shard_plan.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kLineElements = 128;  // 256 bytes of f16: slices have an allocation's alignment

/// Full buckets from the end of each of the two parts; the first bucket of each is smaller.
std::vector<Bucket> cut_buckets(int64_t flat_elements, int64_t late_elements, int64_t elements) {
  std::vector<Bucket> buckets;
  for (int64_t end = flat_elements; end > 0; end = buckets.back().begin) {
    const int64_t part_begin = end > late_elements ? late_elements : 0;
    const int64_t begin = std::max(part_begin, end - elements);
    buckets.push_back({.begin = begin, .elements = end - begin});
  }
  std::ranges::reverse(buckets);
  return buckets;
}

/// Merges adjacent slices, such as all slices of a single shard, into one range: a tensor is
/// divided only where another shard follows.
std::vector<ShardRange> own_ranges(const std::vector<Bucket>& buckets, int shard, int shards) {
  std::vector<ShardRange> ranges;
  for (const Bucket& bucket : buckets) {
    const int64_t slice_elements = bucket.elements / shards;
    const int64_t flat_begin = bucket.begin + shard * slice_elements;
    if (!ranges.empty() && ranges.back().flat_begin + ranges.back().elements == flat_begin) {
      ranges.back().elements += slice_elements;
    } else {
      ranges.push_back({.flat_begin = flat_begin,
                        .shard_begin = bucket.begin / shards,
                        .elements = slice_elements});
    }
  }
  return ranges;
}

/// Adds the overlaps of the flat range [begin, end), a part of a tensor, with the shard.
void add_overlaps(ShardPlan& plan, int64_t begin, int64_t end, bool decay) {
  for (const ShardRange& range : plan.ranges) {
    const int64_t from = std::max(begin, range.flat_begin);
    const int64_t to = std::min(end, range.flat_begin + range.elements);
    if (from >= to) continue;
    const int64_t to_shard = range.shard_begin - range.flat_begin;
    plan.segments.push_back(LambSegment{
        .tensor = plan.norm_rows, .begin = from + to_shard, .end = to + to_shard, .decay = decay});
  }
}

}  // namespace

int64_t bucket_elements(double bucket_mib, DType io) {
  return static_cast<int64_t>(bucket_mib * (1 << 20)) / size_bytes(io);
}

ShardPlan make_shard_plan(const ParamTable& table, const ShardPlanRequest& request) {
  const int shard = request.shard;
  const int shards = request.shards;
  BERTHA_CHECK(shards >= 1 && shard >= 0 && shard < shards, "shard ", shard, " of ", shards);
  const int64_t unit = kLineElements * shards;
  const int64_t late_elements = table.part_begins.size() > 1 ? table.part_begins[1] : 0;
  ShardPlan plan;
  plan.flat_elements = round_up(table.elements, unit);
  plan.shard_elements = plan.flat_elements / shards;
  plan.buckets = cut_buckets(plan.flat_elements, round_up(late_elements, unit),
                             std::max(request.bucket_elements / unit * unit, unit));
  plan.ranges = own_ranges(plan.buckets, shard, shards);
  for (const ParamInfo& param : table.params) {
    BERTHA_CHECK(param.elements % param.norm_parts == 0, param.name, " has ", param.elements,
                 " elements, not divisible into ", param.norm_parts, " parts");
    const int64_t part_elements = param.elements / param.norm_parts;
    for (int64_t part = 0; part < param.norm_parts; ++part) {
      const int64_t begin = param.offset + part * part_elements;
      if (param.has_gradient) add_overlaps(plan, begin, begin + part_elements, param.decay);
      plan.norm_rows += 1;
    }
  }
  return plan;
}

}  // namespace bertha
