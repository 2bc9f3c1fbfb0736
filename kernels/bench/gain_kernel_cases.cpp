#include "kernels/bench/case_parts.h"
#include "kernels/bench/gain_cases.h"
#include "kernels/bench/gain_kernels.h"

namespace bertha {
namespace {

BenchTensor matrix(const char* name, int64_t rows, int64_t columns, double scale) {
  return {.name = name, .extents = {rows, columns}, .checked = {1, columns}, .scale = scale};
}

GainCase word_gradient(const BenchModel& m, const BenchBatch& batch, bool f32, Stream& stream) {
  const auto variant = [&](AtomicAdds adds, bool has_f32_table) {
    OpCase op{.operation = "word_gradient",
              .shape = {},
              .tensors = {matrix("rows", batch.rows(), m.hidden, 1), ids("ids", batch.word_ids, 1),
                          matrix("table", m.vocab_rows, m.hidden, 0)},
              .call = [adds, &stream](const OpCall& c) {
                if (c.extent != Extent::kFull) return;
                run_gain_kernel(
                    AtomicRowAdds{.rows = c[0], .ids = c[1], .table = c[2], .adds = adds}, stream);
              }};
    op.tensors[2].io = !has_f32_table;
    return op;
  };
  GainCase made{.row = f32 ? "embedding-f32" : "embedding-half2",
                .off = variant(AtomicAdds::kSingle, f32),
                .on = variant(AtomicAdds::kPairs, false),
                .results = {2},
                .additions = std::vector<int64_t>(static_cast<size_t>(m.vocab_rows), 0),
                .calls_per_micro_batch = 1,
                .is_compared = true};
  for (const int32_t id : batch.word_ids) ++made.additions[static_cast<size_t>(id)];
  return made;
}

/// The first layers of ResNet-50.
GainCase batch_norm(const char* row, KeptSigns off, int64_t images, Stream& stream) {
  constexpr int64_t kChannels = 64;
  constexpr int64_t kPixels = int64_t{56} * 56;
  const auto images_of = [&](const char* name, double scale) -> BenchTensor {
    return {.name = name,
            .extents = {images, kChannels, kPixels},
            .checked = {1, kChannels, kPixels},
            .scale = scale};
  };
  const auto variant = [&](KeptSigns kept) {
    const int64_t elements = images * kChannels * kPixels;
    return OpCase{
        .operation = row,
        .shape = {},
        .tensors = {images_of("x", 2),
                    images_of("y", 0),
                    images_of("dy", 1),
                    images_of("dx", 0),
                    {.name = "constants", .extents = {5, kChannels}, .io = false, .scale = 1},
                    {.name = "mask",
                     .extents = {kept == KeptSigns::kBytes ? elements : elements / 8},
                     .checked = {1},
                     .io = false,
                     .dtype = DType::kU8}},
        .call = [kept, &stream](const OpCall& c) {
          if (c.extent != Extent::kFull) return;
          run_gain_kernel(BatchNormReluPasses{.x = c[0],
                                              .constants = c[4],
                                              .y = c[1],
                                              .dy = c[2],
                                              .dx = c[3],
                                              .mask = c[5],
                                              .kept = kept},
                          stream);
        }};
  };
  return {.row = row,
          .off = variant(off),
          .on = variant(KeptSigns::kBits),
          .results = {1, 3},
          .is_compared = true};
}

}  // namespace

std::vector<GainCase> make_gain_kernel_cases(const BenchModel& model, const BenchBatch& batch,
                                             int64_t images, Stream& stream) {
  return {word_gradient(model, batch, false, stream), word_gradient(model, batch, true, stream),
          batch_norm("batch-norm-mask", KeptSigns::kOutput, images, stream),
          batch_norm("batch-norm-bytes", KeptSigns::kBytes, images, stream),
          batch_norm("batch-norm-ballot", KeptSigns::kBallot, images, stream)};
}

}  // namespace bertha
