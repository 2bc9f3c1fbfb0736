#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/cpu/row_norm.h"
#include "kernels/cpu/dropout_rows.h"
#include "kernels/ops/embedding.h"

namespace bertha {
namespace {

/// A row of a table, with the id checked: cheap here, and a wrong id would read anywhere.
int64_t row_of(const char* field, const View& ids, int64_t token, const View& table) {
  const int64_t id = ids.as<int32_t>()[token];
  BERTHA_CHECK(id >= 0 && id < table.extent(0), field, "[", token, "] = ", id,
               ", want an id in [0, ", table.extent(0), ")");
  return id * table.extent(1);
}

/// table[ids[t]] += rows[t]. The tokens of one id are summed in f64 in token order, so neither
/// frequent ids nor the number of threads change the rounding.
void add_rows_by_id(WorkerPool& pool, const char* field, const View& ids, const float* rows,
                    const View& table) {
  const int64_t tokens = ids.extent(0);
  const int64_t hidden = table.extent(1);
  const int32_t* id = ids.as<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [id](int32_t left, int32_t right) { return id[left] < id[right]; });
  std::vector<int64_t> run_starts;
  for (int64_t k = 0; k < tokens; ++k) {
    const auto here = order.begin() + k;
    if (k == 0 || id[here[0]] != id[here[-1]]) run_starts.push_back(k);
  }
  run_starts.push_back(tokens);

  float* target = table.as<float>();
  pool.for_range(static_cast<int64_t>(run_starts.size()) - 1, 16, [&](int64_t begin, int64_t end) {
    std::vector<double> total(static_cast<size_t>(hidden));
    for (int64_t run = begin; run < end; ++run) {
      std::ranges::fill(total, 0.0);
      const int64_t first = run_starts[static_cast<size_t>(run)];
      const int64_t last = run_starts[static_cast<size_t>(run) + 1];
      for (int64_t k = first; k < last; ++k) {
        add_row(rows + order[static_cast<size_t>(k)] * hidden, hidden, total.data());
      }
      const int64_t row = row_of(field, ids, order[static_cast<size_t>(first)], table);
      for (int64_t i = 0; i < hidden; ++i) {
        const double before = static_cast<double>(target[row + i]);
        target[row + i] = static_cast<float>(before + total[static_cast<size_t>(i)]);
      }
    }
  });
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const EmbeddingFwd& args) {
  require_f32("embedding_fwd", "y", args.y);
  const int64_t hidden = args.y.extent(1);
  const float* words = args.word_table.as<float>();
  const float* positions = args.position_table.as<float>();
  const float* segments = args.segment_table.as<float>();
  float* sums = args.sum.as<float>();
  float* ys = args.y.as<float>();
  const RowNorm norm(args);
  for_dropout_rows(
      pool, args.dropout, args.mask, MaskUse::kDraw, args.y,
      [&](int64_t token, const float* factor) {
        const float* word = words + row_of("word_ids", args.word_ids, token, args.word_table);
        const float* position =
            positions + row_of("position_ids", args.position_ids, token, args.position_table);
        const float* segment =
            segments + row_of("segment_ids", args.segment_ids, token, args.segment_table);
        float* sum = sums + token * hidden;
        float* y = ys + token * hidden;
#pragma omp simd
        for (int64_t i = 0; i < hidden; ++i) sum[i] = word[i] + position[i] + segment[i];
        norm.run(token, sum, y);
#pragma omp simd
        for (int64_t i = 0; i < hidden; ++i) y[i] *= factor[i];
      });
}

template <>
void run_cpu(WorkerPool& pool, const EmbeddingBwd& args) {
  require_f32("embedding_bwd", "dy", args.dy);
  const int64_t tokens = args.dy.extent(0);
  const int64_t hidden = args.dy.extent(1);
  const float* dy = args.dy.as<float>();
  std::vector<float> dsum(static_cast<size_t>(tokens * hidden));
  ColumnSums sums(tokens, hidden, 2);
  const RowNormBackward norm(args, args.sum, sums);
  for_dropout_rows(pool, args.dropout, args.mask, MaskUse::kRead, args.dy,
                   [&](int64_t token, const float* factor) {
                     const int64_t at = token * hidden;
                     float* row = dsum.data() + at;
#pragma omp simd
                     for (int64_t i = 0; i < hidden; ++i) row[i] = dy[at + i] * factor[i];
                     norm.run(token, row, row);
                   });
  norm.write_sums(args);
  add_rows_by_id(pool, "word_ids", args.word_ids, dsum.data(), args.dword_table);
  add_rows_by_id(pool, "position_ids", args.position_ids, dsum.data(), args.dposition_table);
  add_rows_by_id(pool, "segment_ids", args.segment_ids, dsum.data(), args.dsegment_table);
}

}  // namespace bertha
