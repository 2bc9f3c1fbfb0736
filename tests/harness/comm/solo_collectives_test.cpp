#include "harness/comm/solo_collectives.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace bertha {
namespace {

View view_of(std::vector<float>& values) {
  return View(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
}

TEST(SoloCollectives, CopiesAndLeavesWhatIsInPlace) {
  const auto device = make_cpu_device(1);
  const auto collectives = make_solo_collectives(*device);
  EXPECT_EQ(collectives->rank(), 0);
  EXPECT_EQ(collectives->size(), 1);
  const std::vector<float> want{1, 2, 3};
  std::vector<float> values = want;
  std::vector<float> other(3, 9.0f);
  collectives->reduce_scatter_sum(view_of(values), view_of(other));
  EXPECT_EQ(other, want);
  other = {9, 9, 9};
  collectives->all_gather(view_of(values), view_of(other));
  EXPECT_EQ(other, want);
  collectives->reduce_scatter_sum(view_of(values), view_of(values));
  collectives->all_gather(view_of(values), view_of(values));
  collectives->all_reduce_sum(view_of(values));
  EXPECT_EQ(values, want);
}

TEST(SoloCollectives, RefusesAShardOfAnotherSize) {
  const auto device = make_cpu_device(1);
  const auto collectives = make_solo_collectives(*device);
  std::vector<float> values(3);
  std::vector<float> shorter(2);
  EXPECT_THROW(collectives->reduce_scatter_sum(view_of(values), view_of(shorter)), Error);
  EXPECT_THROW(collectives->all_gather(view_of(shorter), view_of(values)), Error);
}

TEST(SoloCollectives, RefusesWhatRanksWouldNotAddUp) {
  const auto device = make_cpu_device(1);
  const auto collectives = make_solo_collectives(*device);
  std::vector<float> values(3);
  View words = view_of(values);
  words.dtype = DType::kI32;
  EXPECT_THROW(collectives->all_reduce_sum(words), Error);
  EXPECT_THROW(collectives->all_reduce_max(view_of(values)), Error);
}

}  // namespace
}  // namespace bertha
