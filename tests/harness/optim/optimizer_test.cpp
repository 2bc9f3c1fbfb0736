#include "harness/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <span>

#include "kernels/base/tests/tolerance.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/lamb_state.h"
#include "tests/harness/optim/optimizer_runs.h"
#include "tests/support/thread_collectives.h"

namespace bertha::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void expect_close(const std::vector<float>& found, const std::vector<float>& want, size_t count,
                  const std::string& what) {
  for (size_t i = 0; i < count; ++i) {
    ASSERT_NEAR(found[i], want[i], tolerance::kLambF32 * std::max(1.0f, std::abs(want[i])))
        << what << " of element " << i;
  }
}

bool same_bits(const LambState& a, const LambState& b) { return memcmp(&a, &b, sizeof(a)) == 0; }

class EachOptimizer : public ::testing::TestWithParam<OptimizerName> {
 protected:
  EachOptimizer() { spec.config.name = GetParam(); }

  RunSpec spec = ragged_spec();
};

INSTANTIATE_TEST_SUITE_P(Names, EachOptimizer, ::testing::ValuesIn(kOptimizers),
                         [](const auto& test) { return std::string(word_of(test.param)); });

TEST_P(EachOptimizer, ShardedOverTwoThreeAndFourRanksEqualsUnsharded) {
  const RunResult alone = run_on_threads(1, spec)[0];
  const auto count = static_cast<size_t>(spec.table.elements);
  for (const int ranks : {2, 3, 4}) {
    for (const double bucket_mib : kBucketsMib) {
      spec.config.bucket_mib = bucket_mib;
      const std::vector<RunResult> results = run_on_threads(ranks, spec);
      const std::string world = concat(" on ", ranks, " ranks with ", bucket_mib, " MiB");
      expect_close(results[0].master, alone.master, count, "weight" + world);
      expect_close(results[0].m, alone.m, count, "m" + world);
      expect_close(results[0].v, alone.v, count, "v" + world);
      for (const RunResult& result : results) {
        EXPECT_EQ(result.model_weights, results[0].master);
        EXPECT_TRUE(same_bits(result.states.back(), results[0].states.back()));
      }
      EXPECT_NEAR(results[0].states.back().gradient_norm, alone.states.back().gradient_norm,
                  tolerance::kLambF32 * alone.states.back().gradient_norm);
    }
  }
}

void expect_same(const RunResult& found, const RunResult& want, const std::string& what) {
  EXPECT_EQ(found.model_weights, want.model_weights) << what;
  EXPECT_EQ(found.master, want.master) << what;
  EXPECT_EQ(found.m, want.m) << what;
  EXPECT_EQ(found.v, want.v) << what;
  EXPECT_TRUE(same_bits(found.states.back(), want.states.back())) << what;
}

TEST_P(EachOptimizer, BucketsChangeNothingOnASingleRank) {
  const RunResult whole = run_on_threads(1, spec)[0];
  for (const double bucket_mib : kBucketsMib) {
    spec.config.bucket_mib = bucket_mib;
    expect_same(run_on_threads(1, spec)[0], whole, concat(bucket_mib, " MiB"));
  }
}

// Below what is final lies no number: a sum that began too early would skip the update.
TEST(Optimizer, SumsThatBeginDuringBackwardGiveTheSameBits) {
  for (const ClipTime clip : {ClipTime::kAfter, ClipTime::kBefore}) {
    for (const int ranks : {1, 2, 3}) {
      for (const double bucket_mib : kBucketsMib) {
        RunSpec spec = ragged_spec();
        spec.config.clip = clip;
        spec.config.bucket_mib = bucket_mib;
        const RunResult at_once = run_on_threads(ranks, spec)[0];
        EXPECT_EQ(at_once.states.back().skipped_steps, 0);
        for (const auto& final_from :
             std::vector<std::vector<int64_t>>{{21000, 20500, 18900, 9000, 1, 0}, {10000}}) {
          spec.final_from = final_from;
          expect_same(run_on_threads(ranks, spec)[0], at_once,
                      concat("clip ", word_of(clip), ", ", ranks, " ranks, ", bucket_mib, " MiB, ",
                             final_from.size(), " calls"));
        }
      }
    }
  }
}

/// Other collectives, with a list of which elements of which buffer they were called for.
class LoggedCollectives final : public Collectives {
 public:
  explicit LoggedCollectives(Collectives& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Stream& stream() override { return inner_.stream(); }
  void reduce_scatter_sum(const View& full, const View& shard) override {
    reduced.push_back(full);
    inner_.reduce_scatter_sum(full, shard);
  }
  void all_gather(const View& shard, const View& full) override {
    gathered.push_back(full);
    inner_.all_gather(shard, full);
  }
  void all_reduce_sum(const View& values) override {
    summed.push_back(values);
    inner_.all_reduce_sum(values);
  }
  void all_reduce_max(const View& values) override { inner_.all_reduce_max(values); }

  std::vector<View> reduced;
  std::vector<View> gathered;
  std::vector<View> summed;

 private:
  Collectives& inner_;
};

TEST(Optimizer, OnlyLambSumsTheNormsOfTensorsOverRanks) {
  for (const OptimizerName name : kOptimizers) {
    run_ranks(2, [&](Device& device, Collectives& inner) {
      RunSpec spec = ragged_spec();
      spec.config.name = name;
      spec.steps = 1;
      LoggedCollectives collectives(inner);
      run_updates(device, collectives, spec);
      std::vector<int64_t> elements;
      for (const View& values : collectives.summed) elements.push_back(values.elements());
      const int64_t norms = 2 * make_shard_plan(spec.table, {}).norm_rows;
      EXPECT_EQ(elements, name == OptimizerName::kLamb ? std::vector<int64_t>({1, norms})
                                                       : std::vector<int64_t>{1});
    });
  }
}

/// Other collectives that take factors, as copies between GPUs do: what is sent ahead must be what
/// is summed.
class ScalingCollectives final : public Collectives {
 public:
  explicit ScalingCollectives(Collectives& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Stream& stream() override { return inner_.stream(); }
  void reduce_scatter_sum(const View&, const View&) override { FAIL() << "not scaled"; }
  void all_gather(const View& shard, const View& full) override { inner_.all_gather(shard, full); }
  void all_reduce_sum(const View& values) override { inner_.all_reduce_sum(values); }
  void all_reduce_max(const View& values) override { inner_.all_reduce_max(values); }

  std::unique_ptr<ScaledSums> make_scaled_sums(Device&, int64_t bytes) override {
    prepared_bytes = bytes;
    return std::make_unique<Sums>(inner_);
  }

  int64_t prepared_bytes = 0;

 private:
  class Sums final : public ScaledSums {
   public:
    explicit Sums(Collectives& inner) : inner_(inner) {}
    void send_ahead(const View& full) override {
      EXPECT_TRUE(sent_.emplace(full.data, values_of(full)).second) << "sent twice";
    }
    void reduce_scatter(std::span<const ScatterSum> sums, const View& factor) override {
      for (const ScatterSum& sum : sums) {
        std::vector<float> values = values_of(sum.full);
        EXPECT_EQ(sent_.at(sum.full.data), values) << "changed since it was sent";
        for (float& value : values) value *= *factor.as<float>();
        inner_.reduce_scatter_sum(View(values.data(), DType::kF32, {sum.full.elements()}),
                                  sum.shard);
      }
      EXPECT_EQ(sent_.size(), sums.size());
      sent_.clear();
    }

   private:
    static std::vector<float> values_of(const View& view) {
      return {view.as<float>(), view.as<float>() + view.elements()};
    }

    Collectives& inner_;
    std::map<const void*, std::vector<float>> sent_;
  };

  Collectives& inner_;
};

TEST(Optimizer, AClipInsideTheSumGivesTheBitsOfOneBeforeIt) {
  for (const int ranks : {1, 2, 3}) {
    for (const double bucket_mib : kBucketsMib) {
      RunSpec spec = ragged_spec();
      spec.config.clip = ClipTime::kBefore;
      spec.config.bucket_mib = bucket_mib;
      spec.config.max_gradient_norm = 0.7;
      const RunResult want = run_on_threads(ranks, spec)[0];
      for (const auto& final_from : std::vector<std::vector<int64_t>>{{}, {21000, 9000, 1}}) {
        spec.final_from = final_from;
        run_ranks(ranks, [&](Device& device, Collectives& inner) {
          ScalingCollectives collectives(inner);
          expect_same(run_updates(device, collectives, spec), want,
                      concat(ranks, " ranks, ", bucket_mib, " MiB"));
          EXPECT_GE(collectives.prepared_bytes,
                    spec.table.elements * static_cast<int64_t>(sizeof(float)));
        });
      }
    }
  }
}

/// Another stream, with a count of what it waited for.
class LoggedStream final : public Stream {
 public:
  explicit LoggedStream(Device& device) : inner_(device.make_stream()) {}

  void record(Event& event) override { inner_->record(event); }
  void wait_for(const Event& event) override {
    ++waits;
    inner_->wait_for(event);
  }
  void wait_on_host() override { inner_->wait_on_host(); }

  int64_t waits = 0;

 private:
  std::unique_ptr<Stream> inner_;
};

std::vector<Bucket> as_buckets(const std::vector<View>& views, const View& flat) {
  std::vector<Bucket> buckets;
  for (const View& view : views) {
    buckets.push_back({.begin = view.as<float>() - flat.as<float>(), .elements = view.elements()});
  }
  return buckets;
}

void expect_buckets(const std::vector<Bucket>& found, const std::vector<Bucket>& want) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(found[i].begin, want[i].begin);
    EXPECT_EQ(found[i].elements, want[i].elements);
  }
}

TEST(Optimizer, SumsABucketOnceBackwardHasPassedItAndWaitsForWeightsOnceTheyAreNeeded) {
  for (const ClipTime clip : {ClipTime::kAfter, ClipTime::kBefore}) {
    run_ranks(2, [&](Device& device, Collectives& inner) {
      RunSpec spec = ragged_spec();
      spec.config.clip = clip;
      spec.config.bucket_mib = 0.01;
      const std::vector<Bucket> all =
          make_shard_plan(spec.table, {.shard = inner.rank(),
                                       .shards = 2,
                                       .bucket_elements = bucket_elements(0.01, DType::kF32)})
              .buckets;
      ASSERT_GT(all.size(), 5u);
      const std::vector<Bucket> backwards(all.rbegin(), all.rend());

      LoggedStream stream(device);
      LoggedCollectives collectives(inner);
      const std::unique_ptr<Ops> ops = make_cpu_ops(device, stream);
      Optimizer optimizer(spec.config, 10, spec.table, {&device, &stream, ops.get(), &collectives});
      optimizer.set_weights(spec.weights.data());
      for (int step = 0; step < 2; ++step) {
        collectives.reduced.clear();
        collectives.gathered.clear();
        const bool clips_before = clip == ClipTime::kBefore;
        for (const int64_t from : {spec.table.elements, all[4].begin + 1, all[2].begin}) {
          optimizer.gradients_final(from);
          const auto passed = std::count_if(all.begin(), all.end(), [&](const Bucket& bucket) {
            return !clips_before && bucket.begin >= from;
          });
          expect_buckets(as_buckets(collectives.reduced, optimizer.gradients()),
                         {backwards.begin(), backwards.begin() + passed});
        }
        optimizer.reduce_gradients();
        expect_buckets(as_buckets(collectives.reduced, optimizer.gradients()), backwards);

        optimizer.update_weights();
        const int64_t waits = stream.waits;
        optimizer.await_weights(0);
        EXPECT_EQ(stream.waits, waits);
        optimizer.await_weights(all[1].begin);
        EXPECT_EQ(stream.waits, waits + 1);
        optimizer.await_weights(all[1].begin + 1);
        optimizer.await_weights(all[1].begin);
        EXPECT_EQ(stream.waits, waits + 2);
        const View weights = optimizer.weights();
        EXPECT_EQ(stream.waits, waits + static_cast<int64_t>(all.size()));
        expect_buckets(as_buckets(collectives.gathered, weights), all);
      }
    });
  }
}

TEST_P(EachOptimizer, TheSameRunGivesTheSameBits) {
  expect_same(run_on_threads(3, spec)[1], run_on_threads(3, spec)[1], "again");
}

TEST_P(EachOptimizer, GapsAndPaddingStayZero) {
  const RunResult result = run_on_threads(3, spec)[0];
  std::vector<bool> covered(result.master.size());
  for (const ParamInfo& param : spec.table.params) {
    for (int64_t i = 0; i < param.elements; ++i) {
      covered[static_cast<size_t>(param.offset + i)] = true;
    }
  }
  for (size_t i = 0; i < covered.size(); ++i) {
    if (!covered[i]) {
      ASSERT_EQ(result.model_weights[i], 0.0f) << i;
    }
  }
}

TEST_P(EachOptimizer, AnInfinityOnOneRankSkipsTheUpdateOnEveryRank) {
  const auto finite = spec.gradient;
  for (const ClipTime clip : {ClipTime::kBefore, ClipTime::kAfter}) {
    spec.config.clip = clip;
    spec.gradient = finite;
    spec.steps = 2;
    const RunResult before = [&] {
      RunSpec one_step = spec;
      one_step.steps = 1;
      return run_on_threads(3, one_step)[0];
    }();
    spec.gradient = [finite](int step, int rank, int ranks) {
      std::vector<float> part = finite(step, rank, ranks);
      if (step == 1 && rank == 2) part[70] = -kInfinity;
      return part;
    };
    for (const RunResult& result : run_on_threads(3, spec)) {
      EXPECT_EQ(result.model_weights, before.model_weights) << word_of(clip);
      EXPECT_EQ(result.m, before.m);
      EXPECT_EQ(result.v, before.v);
      EXPECT_EQ(result.states[1].skipped_steps, 1);
      EXPECT_EQ(result.states[1].skips_in_a_row, 1);
      EXPECT_EQ(result.states[1].successful_steps, 1);
      EXPECT_EQ(result.states[1].loss_scale, 8.0f);
    }
  }
}

/// Two ranks whose own means have norms 10 and 0.5 at right angles.
RunSpec uneven_spec(ClipTime clip) {
  RunSpec spec;
  spec.config = {.max_gradient_norm = 1.0, .clip = clip};
  spec.table = table_of({{.name = "w", .shape = {2}}});
  spec.weights = random_flat(spec.table, 9, 1.0f);
  spec.steps = 1;
  spec.gradient = [](int, int rank, int ranks) {
    std::vector<float> mean(64);
    (rank == 0 ? mean[0] : mean[1]) = rank == 0 ? 10.0f : 0.5f;
    for (float& value : mean) value /= static_cast<float>(ranks);
    return mean;
  };
  return spec;
}

TEST(Optimizer, ClippingBeforeTheReductionLimitsEachRanksOwnMean) {
  const LambState state = run_on_threads(2, uneven_spec(ClipTime::kBefore))[0].states[0];
  // Means of norm 1 and 0.5 remain; half of each adds up.
  EXPECT_NEAR(state.gradient_norm, std::hypot(0.5, 0.25), 1e-6);
  EXPECT_EQ(state.gradient_multiplier, 1.0f);
}

TEST(Optimizer, ClippingAfterTheReductionLimitsTheNormOfTheMean) {
  const LambState state = run_on_threads(2, uneven_spec(ClipTime::kAfter))[0].states[0];
  EXPECT_NEAR(state.gradient_norm, std::hypot(5.0, 0.25), 1e-6);
  EXPECT_NEAR(state.gradient_multiplier, 1.0 / std::hypot(5.0, 0.25), 1e-6);
}

TEST(Optimizer, BothClipPointsAgreeWhenAllRanksHoldTheSameGradient) {
  RunSpec spec = ragged_spec();
  const ParamTable table = spec.table;
  spec.gradient = [table](int step, int, int ranks) {
    return random_flat(table, 70 + static_cast<uint32_t>(step), 0.1f / static_cast<float>(ranks));
  };
  spec.config.clip = ClipTime::kAfter;
  const RunResult after = run_on_threads(2, spec)[0];
  spec.config.clip = ClipTime::kBefore;
  const RunResult before = run_on_threads(2, spec)[0];
  EXPECT_GT(after.states[0].gradient_norm, spec.config.max_gradient_norm);
  expect_close(before.master, after.master, after.master.size(), "weight");
}

TEST(Optimizer, SettingWeightsClearsMomentsAndCounters) {
  run_ranks(2, [](Device& device, Collectives& collectives) {
    const RunSpec spec = ragged_spec();
    const std::unique_ptr<Stream> stream = device.make_stream();
    const std::unique_ptr<Ops> ops = make_cpu_ops(device, *stream);
    Optimizer optimizer(spec.config, 10, spec.table,
                        {&device, stream.get(), ops.get(), &collectives});
    optimizer.set_weights(spec.weights.data());
    const std::vector<float> part = spec.gradient(0, collectives.rank(), 2);
    std::copy(part.begin(), part.end(), optimizer.gradients().as<float>());
    optimizer.reduce_gradients();
    optimizer.update_weights();
    const auto& state = *static_cast<const LambState*>(optimizer.state().data);
    EXPECT_EQ(state.successful_steps, 1);

    optimizer.set_weights(spec.weights.data());
    EXPECT_EQ(state.successful_steps, 0);
    EXPECT_EQ(state.loss_scale, 16.0f);
    for (int64_t i = 0; i < optimizer.shard_elements(); ++i) {
      ASSERT_EQ(optimizer.m().as<float>()[i], 0.0f);
      ASSERT_EQ(optimizer.v().as<float>()[i], 0.0f);
    }
    for (size_t i = 0; i < spec.weights.size(); ++i) {
      ASSERT_EQ(optimizer.weights().as<float>()[i], spec.weights[i]);
    }
  });
}

/// Fills an optimizer from a finished run, as a checkpoint would, and makes the next update.
std::vector<float> continue_run(int ranks, const RunSpec& spec, const RunResult& saved, int step) {
  std::vector<float> weights;
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    const std::unique_ptr<Stream> stream = device.make_stream();
    const std::unique_ptr<Ops> ops = make_cpu_ops(device, *stream);
    Optimizer optimizer(spec.config, spec.schedule_steps, spec.table,
                        {&device, stream.get(), ops.get(), &collectives});
    const auto load = [&](const View& shard, const std::vector<float>& flat) {
      for (const ShardRange& range : optimizer.shard_ranges()) {
        for (int64_t i = 0; i < range.elements; ++i) {
          const auto at = static_cast<size_t>(range.flat_begin + i);
          shard.as<float>()[range.shard_begin + i] = at < flat.size() ? flat[at] : 0.0f;
        }
      }
    };
    load(optimizer.master(), saved.master);
    load(optimizer.m(), saved.m);
    load(optimizer.v(), saved.v);
    *static_cast<LambState*>(optimizer.state().data) = saved.states.back();
    optimizer.publish_master();
    const std::vector<float> part = spec.gradient(step, collectives.rank(), ranks);
    std::transform(part.begin(), part.end(), optimizer.gradients().as<float>(),
                   [&](float value) { return value * saved.states.back().loss_scale; });
    optimizer.reduce_gradients();
    optimizer.update_weights();
    if (collectives.rank() == 0) {
      const View view = optimizer.weights();
      weights.assign(view.as<float>(), view.as<float>() + view.elements());
    }
  });
  return weights;
}

TEST_P(EachOptimizer, ContinuesFromItsShardsBitwiseAtTheSameRanksAndCloselyAtOthers) {
  spec.config.bucket_mib = 0.01;
  spec.steps = 3;
  const RunResult saved = run_on_threads(3, spec)[0];
  spec.steps = 4;
  const RunResult uninterrupted = run_on_threads(3, spec)[0];
  EXPECT_EQ(continue_run(3, spec, saved, 3), uninterrupted.model_weights);
  for (const int ranks : {1, 2, 4}) {
    for (const double bucket_mib : kBucketsMib) {
      spec.config.bucket_mib = bucket_mib;
      expect_close(continue_run(ranks, spec, saved, 3), uninterrupted.model_weights,
                   static_cast<size_t>(spec.table.elements),
                   concat("weight on ", ranks, " ranks with ", bucket_mib, " MiB"));
    }
  }
}

}  // namespace
}  // namespace bertha::testing
