#include "harness/plan/cost_plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "harness/model/bert.h"
#include "harness/model/flops.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "tests/support/load_settings.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

Config shape(const std::string& name) {
  return test::load_settings({std::string(kSourceDir) + "/configs/models/" + name + ".yaml"})
      .config;
}

// Multiply-adds of one product [rows, inner] x [inner, columns], counted one by one.
int64_t product(int64_t rows, int64_t inner, int64_t columns) {
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) count += inner;
  }
  return 2 * count;
}

TEST(ModelFlops, AreThoseOfEveryProductOfTheModel) {
  const Dims dims{.L = 3, .H = 16, .A = 2, .D = 8, .F = 40, .C = 30, .V = 32, .P = 9, .G = 2};
  const int64_t lengths[] = {9, 1, 4};
  const int64_t masked = 5;
  int64_t forward = 0;
  for (const int64_t t : lengths) {
    for (int64_t layer = 0; layer < dims.L; ++layer) {
      for (int64_t i = 0; i < 4; ++i) forward += product(t, dims.H, dims.H);  // q, k, v, output
      for (int64_t head = 0; head < dims.A; ++head) {
        forward += product(t, dims.D, t) + product(t, t, dims.D);  // scores, context
      }
      forward += product(t, dims.H, dims.F) + product(t, dims.F, dims.H);
    }
    forward += product(1, dims.H, dims.H) + product(1, dims.H, 2);  // pooler, sentence head
  }
  forward += product(masked, dims.H, dims.H) + product(masked, dims.H, dims.V);
  const StepWork work{
      .num_tokens = 14, .num_masked = masked, .num_seqs = 3, .squared_tokens = 81 + 1 + 16};
  EXPECT_EQ(model_flops_per_step(dims, work), static_cast<double>(3 * forward));
}

TEST(ModelFlops, OfTheLargestModelAndBatchOverflowNothing) {
  // The upper bounds of the keys.
  constexpr int64_t kLength = 32767;
  constexpr int64_t kSeqs = 1 << 24;
  const Dims dims{.L = 256,
                  .H = 65536,
                  .A = 1024,
                  .D = 64,
                  .F = 262144,
                  .C = 32768,
                  .V = 32768,
                  .P = kLength,
                  .G = 2};
  const StepWork work{.num_tokens = kSeqs * kLength,
                      .num_masked = kSeqs * kLength,
                      .num_seqs = kSeqs,
                      .squared_tokens = kSeqs * kLength * kLength};
  const double matrix = 65536.0 * 65536.0;
  const double per_token =
      256 * (8 * matrix + 16 * matrix + 4 * 65536.0 * kLength) + 2 * matrix + matrix;
  const double per_seq = 2 * matrix + 4 * 65536.0;
  EXPECT_DOUBLE_EQ(model_flops_per_step(dims, work), 3.0 * kSeqs * (kLength * per_token + per_seq));
}

TEST(CostPlan, CountsThePublishedParametersOfBertLarge) {
  const CostPlan plan = make_cost_plan({.config = shape("large"), .ranks = 8});
  EXPECT_EQ(plan.parameters, 336'232'258);  // MLPerf's BERT, vocabulary padded to 30,528
}

TEST(CostPlan, CountsTheParametersOfBertBase) {
  // Hugging Face BertForPreTraining, bert-base-uncased: 110,106,428; six padding rows and biases.
  const CostPlan plan = make_cost_plan({.config = shape("base")});
  EXPECT_EQ(plan.parameters, 110'106'428 + 6 * (768 + 1));
}

TEST(CostPlan, SharesTheOptimizerOverRanksAndTheBatchOverMicroBatches) {
  Config config = shape("base");
  config.train.global_batch_seqs = 64;
  config.train.accumulation_steps = 2;
  config.eval.batch_seqs = 1;
  const CostPlan one = make_cost_plan({.config = config, .ranks = 1, .io = DType::kBF16});
  const CostPlan four = make_cost_plan({.config = config, .ranks = 4, .io = DType::kBF16});
  EXPECT_EQ(one.seqs_per_micro_batch, 32);
  EXPECT_EQ(four.seqs_per_micro_batch, 8);
  ASSERT_EQ(one.memory.size(), 4U) << "a single shard has neither of the last two";
  ASSERT_EQ(four.memory.size(), 6U);
  constexpr int64_t kPaddingBytes = 4 * 128 * 12;  // every shard is whole 128s of elements
  EXPECT_NEAR(one.memory[0].bytes, four.memory[0].bytes, kPaddingBytes)
      << "weights are whole on every rank";
  EXPECT_NEAR(one.memory[2].bytes, 4 * four.memory[2].bytes, kPaddingBytes);
  EXPECT_EQ(3 * four.memory[4].bytes, four.memory[2].bytes) << "one f32 beside three";
  EXPECT_EQ(2 * four.memory[5].bytes, four.memory[4].bytes) << "a bf16 is half an f32";
  EXPECT_GT(one.memory[3].bytes, 3 * four.memory[3].bytes);
  const int64_t sum =
      std::accumulate(one.memory.begin(), one.memory.end(), int64_t{0},
                      [](int64_t bytes, const MemoryClass& part) { return bytes + part.bytes; });
  EXPECT_EQ(one.memory_bytes, sum);
}

int64_t bytes_of(const CostPlan& plan, const std::string& name) {
  for (const MemoryClass& part : plan.memory) {
    if (part.name == name) return part.bytes;
  }
  return -1;
}

TEST(CostPlan, AdamWHasNoUpdateDirection) {
  Config config = shape("base");
  const CostPlan lamb = make_cost_plan({.config = config, .ranks = 4});
  config.optimizer.name = OptimizerName::kAdamw;
  const CostPlan adamw = make_cost_plan({.config = config, .ranks = 4});
  EXPECT_EQ(bytes_of(adamw, "optimizer shard"), bytes_of(lamb, "optimizer shard"));
  EXPECT_EQ(bytes_of(adamw, "update direction"), -1);
  EXPECT_EQ(3 * bytes_of(lamb, "update direction"), bytes_of(lamb, "optimizer shard"));
  EXPECT_EQ(lamb.memory_bytes - adamw.memory_bytes, bytes_of(lamb, "update direction"));
}

TEST(CostPlan, AGpuNeedsMoreThanTheTensors) {
  Config config = shape("base");
  config.train.global_batch_seqs = 3;
  config.eval.batch_seqs = 1;
  config.data.max_seq_tokens = 100;
  PlanRequest request{.config = config, .io = DType::kBF16};
  const CostPlan cpu = make_cost_plan(request);
  request.on_gpu = true;
  const CostPlan gpu = make_cost_plan(request);
  EXPECT_EQ(bytes_of(cpu, "GEMM workspace"), -1);
  EXPECT_EQ(bytes_of(gpu, "GEMM workspace"), int64_t{64} << 20);
  EXPECT_EQ(bytes_of(gpu, "CUDA context, libraries"), int64_t{1} << 30);
  // 300 tokens, 228 masked ones and 3 first ones are rounded up: to whole 8s on the CPU, to whole
  // 64s on a GPU.
  const auto activations = [&](BatchRows rows) {
    rows.seqs = 3;
    rows.seq_tokens = 100;
    return activation_bytes_for(config.model, rows, DType::kBF16);
  };
  EXPECT_EQ(bytes_of(cpu, "activations and batches"),
            activations({.tokens = 304, .masked = 232, .needed = 240}));
  EXPECT_EQ(bytes_of(gpu, "activations and batches"),
            activations({.tokens = 320, .masked = 256, .needed = 320}));
}

TEST(CostPlan, PositionsThatNoSequenceReachesCostNoActivations) {
  Config config = shape("base");
  const auto activations = [&] {
    return bytes_of(make_cost_plan({.config = config, .io = DType::kBF16, .on_gpu = true}),
                    "activations and batches");
  };
  const int64_t of_512 = activations();
  config.model.max_positions = 32767;
  EXPECT_EQ(activations(), of_512);
  config.data.max_seq_tokens = 1024;
  EXPECT_GT(activations(), of_512);
}

TEST(CostPlan, GpusThatSendCopiesHoldWhatArrives) {
  const auto arriving = [](int64_t ranks, bool on_gpu, GradientTransport transport) {
    Config config = shape("base");
    config.cuda.exchange = transport;
    return bytes_of(make_cost_plan({.config = config, .ranks = ranks, .on_gpu = on_gpu}),
                    "gradients that arrive");
  };
  EXPECT_EQ(arriving(2, true, GradientTransport::kAuto), int64_t{128} << 20);
  EXPECT_EQ(arriving(8, true, GradientTransport::kCopies), int64_t{128} << 20);
  EXPECT_EQ(arriving(8, true, GradientTransport::kNccl), -1);
  EXPECT_EQ(arriving(9, true, GradientTransport::kAuto), -1) << "more than copies serve";
  EXPECT_EQ(arriving(1, true, GradientTransport::kAuto), -1);
  EXPECT_EQ(arriving(2, false, GradientTransport::kAuto), -1);
}

TEST(CostPlan, GraphsTakeMemoryOfAGpuByTheLayer) {
  const auto graphs = [](const std::string& model, CudaGraphs graphs_of_run, bool on_gpu) {
    Config config = shape(model);
    config.cuda.graphs = graphs_of_run;
    return bytes_of(make_cost_plan({.config = config, .on_gpu = on_gpu}), "CUDA graphs");
  };
  EXPECT_GT(graphs("base", CudaGraphs::kAuto, true), 0);
  EXPECT_EQ(graphs("large", CudaGraphs::kAuto, true), 2 * graphs("base", CudaGraphs::kAuto, true));
  EXPECT_EQ(graphs("base", CudaGraphs::kOff, true), -1);
  EXPECT_EQ(graphs("base", CudaGraphs::kAuto, false), -1);
}

TEST(CostPlan, HeadsThatAreNoMultipleOf8AreCopiedOnAGpu) {
  const auto copies = [](int64_t heads, DType io, bool on_gpu) {
    Config config = shape("base");
    config.model.heads = heads;
    return bytes_of(make_cost_plan({.config = config, .io = io, .on_gpu = on_gpu}),
                    "copies of attention heads");
  };
  EXPECT_EQ(copies(12, DType::kBF16, true), -1);  // 64
  EXPECT_EQ(copies(64, DType::kF32, true), -1);   // 12
  EXPECT_EQ(copies(64, DType::kBF16, false), -1);
  const int64_t of_12 = copies(64, DType::kBF16, true);  // as 16 columns
  EXPECT_GT(of_12, 0);
  EXPECT_EQ(copies(128, DType::kF16, true), of_12);  // 6 as 8: 1,024 columns, too
}

TEST(CostPlan, EachCommunicatorOfNcclTakesMemory) {
  const auto communicators = [](int64_t ranks, int64_t ranks_per_node, bool on_gpu) {
    return bytes_of(make_cost_plan({.config = shape("base"),
                                    .ranks = ranks,
                                    .ranks_per_node = ranks_per_node,
                                    .on_gpu = on_gpu}),
                    "NCCL communicators");
  };
  const int64_t one = communicators(2, 0, true);
  EXPECT_GT(one, 0);
  EXPECT_EQ(communicators(8, 0, true), one);
  EXPECT_EQ(communicators(16, 8, true), 3 * one);
  EXPECT_EQ(communicators(1, 0, true), -1);
  EXPECT_EQ(communicators(8, 0, false), -1);
}

TEST(CostPlan, AClipBeforeTheReductionTakesRoomForWholeGradients) {
  const auto arriving = [](ClipTime clip, double max_norm) {
    Config config = shape("base");
    config.optimizer.clip = clip;
    config.optimizer.max_gradient_norm = max_norm;
    return make_cost_plan({.config = config, .ranks = 4, .on_gpu = true});
  };
  const CostPlan before = arriving(ClipTime::kBefore, 1);
  EXPECT_EQ(bytes_of(before, "gradients that arrive"),
            (int64_t{128} << 20) + bytes_of(before, "gradients"));
  EXPECT_EQ(bytes_of(arriving(ClipTime::kBefore, 0), "gradients that arrive"), int64_t{128} << 20);
  EXPECT_EQ(bytes_of(arriving(ClipTime::kAfter, 1), "gradients that arrive"), int64_t{128} << 20);
}

TEST(CostPlan, NodesHoldTheirOwnCopiesOfTheOptimizerStateOrAShareOfIt) {
  const auto plan = [](int64_t ranks, int64_t ranks_per_node, ShardGroup group) {
    Config config = shape("base");
    config.optimizer.shard_group = group;
    return make_cost_plan(
        {.config = config, .ranks = ranks, .ranks_per_node = ranks_per_node, .on_gpu = true});
  };
  const auto state = [](const CostPlan& cost) { return bytes_of(cost, "optimizer shard"); };
  const CostPlan one_node = plan(8, 0, ShardGroup::kAuto);
  EXPECT_EQ(state(plan(32, 8, ShardGroup::kAuto)), state(one_node));
  EXPECT_EQ(state(plan(8, 8, ShardGroup::kNode)), state(one_node));
  EXPECT_LT(state(plan(32, 8, ShardGroup::kWorld)), state(one_node) / 3);
  EXPECT_EQ(state(plan(12, 8, ShardGroup::kAuto)), state(plan(12, 0, ShardGroup::kAuto)))
      << "nodes of 8 and 4";
  EXPECT_EQ(bytes_of(plan(32, 8, ShardGroup::kWorld), "gradients that arrive"), int64_t{128} << 20);
  EXPECT_EQ(bytes_of(plan(12, 8, ShardGroup::kAuto), "gradients that arrive"), -1)
      << "between all nodes";
}

TEST(CostPlan, TellsHowManySequencesWouldFit) {
  Config config = shape("large");
  config.train.global_batch_seqs = 256;
  config.eval.batch_seqs = 1;
  PlanRequest request{.config = config, .ranks = 2, .io = DType::kBF16, .on_gpu = true};
  const auto bytes_with = [&](int64_t seqs) {
    PlanRequest other = request;
    other.config.train.global_batch_seqs = 2 * seqs;
    return make_cost_plan(other).memory_bytes;
  };
  const int64_t room = bytes_with(40) + 1;
  const MemoryFit fit = fit_into(request, room);
  EXPECT_EQ(fit.seqs_per_micro_batch, 40);
  EXPECT_GT(bytes_with(41), room);
  EXPECT_EQ(fit.accumulation_steps, 4);  // 128 sequences of a rank: 2 x 64 are too many
  EXPECT_EQ(fit_into(request, bytes_with(128)).accumulation_steps, 1);
  EXPECT_EQ(fit_into(request, bytes_with(128)).seqs_per_micro_batch, 128);
  EXPECT_EQ(fit_into(request, bytes_with(1) - 1).seqs_per_micro_batch, 0);
  EXPECT_EQ(fit_into(request, bytes_with(1) - 1).accumulation_steps, 0);
  request.config.train.global_batch_seqs = 2 * 41;  // 41 is prime
  EXPECT_EQ(fit_into(request, room).accumulation_steps, 41);
}

TEST(CostPlan, ShorterSequencesCostLess) {
  const CostPlan whole = make_cost_plan({.config = shape("large")});
  const CostPlan half = make_cost_plan({.config = shape("large"),
                                        .mean_seq_tokens = 256,
                                        .mean_squared_tokens = 256.0 * 256,
                                        .mean_masked_per_seq = 38});
  EXPECT_LT(half.flops_per_seq, whole.flops_per_seq / 2);
  EXPECT_GT(half.flops_per_seq, whole.flops_per_seq * 2 / 5);
  EXPECT_DOUBLE_EQ(whole.flops_per_run, static_cast<double>(whole.flops_per_seq) * 6700 * 448);
}

TEST(CostPlan, SizesAreReadAndWrittenAsPeopleDo) {
  EXPECT_EQ(parse_bytes("141GB"), 141'000'000'000);
  EXPECT_EQ(parse_bytes("80GiB"), int64_t{80} << 30);
  EXPECT_EQ(parse_bytes("0.5kB"), 500);
  EXPECT_EQ(parse_bytes("7B"), 7);
  for (const std::string bad : {"", "7", "GB", "-1GB", "3 GB", "3XB", "1e30TB"}) {
    EXPECT_THROW(parse_bytes(bad), Error) << bad;
  }
  EXPECT_EQ(grouped_text(0), "0");
  EXPECT_EQ(grouped_text(999), "999");
  EXPECT_EQ(grouped_text(1000), "1,000");
  EXPECT_EQ(grouped_text(-123456), "-123,456");
  EXPECT_EQ(grouped_text(336232258), "336,232,258");
}

}  // namespace
}  // namespace bertha
