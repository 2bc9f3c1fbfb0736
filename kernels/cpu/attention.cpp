#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/dropout.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/ops/attention.h"

namespace bertha {
namespace {

// Query rows whose scores are stored at once: 128 rows of 512 keys are 256 KiB, about a core's
// cache.
constexpr int64_t kTileQueries = 128;

/// Extents of the batch, and the place of head `a` of token `t` in the interleaved tensors.
struct Layout {
  int64_t tokens;
  int64_t seqs;
  int64_t heads;
  int64_t head_size;

  explicit Layout(const View& qkv, const View& cu_seqlens)
      : tokens(qkv.extent(0)),
        seqs(cu_seqlens.extent(0) - 1),
        heads(qkv.extent(2)),
        head_size(qkv.extent(3)) {}

  int64_t qkv_stride() const { return 3 * heads * head_size; }
  int64_t out_stride() const { return heads * head_size; }
  /// part 0, 1, 2: query, key, value.
  int64_t qkv_at(int64_t token, int64_t part, int64_t head) const {
    return token * qkv_stride() + (part * heads + head) * head_size;
  }
  int64_t out_at(int64_t token, int64_t head) const {
    return token * out_stride() + head * head_size;
  }
};

/// cu_seqlens is device memory, so that only the backend can look inside.
void check_seqlens(const Layout& layout, const View& cu_seqlens, int64_t max_seq_tokens) {
  const int32_t* starts = cu_seqlens.as<int32_t>();
  BERTHA_CHECK(starts[0] == 0, "cu_seqlens[0] = ", starts[0]);
  for (int64_t seq = 0; seq < layout.seqs; ++seq) {
    const int64_t length = int64_t{starts[seq + 1]} - starts[seq];
    BERTHA_CHECK(length >= 0 && length <= max_seq_tokens, "sequence ", seq, " has ", length,
                 " tokens, want 0 to ", max_seq_tokens);
  }
  BERTHA_CHECK(starts[layout.seqs] <= layout.tokens, "cu_seqlens ends at ", starts[layout.seqs],
               ", want at most ", layout.tokens, " tokens");
}

/// One head of one sequence.
struct Head {
  int64_t seq;
  int64_t head;
  int64_t first;   // token
  int64_t length;  // tokens
};

/// Scratch of one task: f32 [kTileQueries, length] each.
struct Tile {
  std::vector<float> scores;
  std::vector<float> gradients;
  std::vector<float> factors;  // one row; all 1 without dropout

  Tile(int64_t length, int64_t matrices)
      : scores(static_cast<size_t>(std::min(length, kTileQueries) * length)),
        gradients(matrices > 1 ? scores.size() : 0),
        factors(static_cast<size_t>(length), 1.0f) {}
};

/// The dropout of one head of one sequence: a row of bits per query.
struct HeadMask {
  const DropoutMask& decisions;
  uint8_t* bits;  // first query's bits
  int64_t row_bytes;
  DropoutRows rows;

  template <class Args>
  HeadMask(const Args& args, const DropoutMask& mask, const Layout& layout, const Head& head)
      : decisions(mask), bits(nullptr), row_bytes(layout.heads * args.max_seq_tokens / 8) {
    if (!mask.active()) return;
    rows = {.first_element = (head.first * layout.heads + head.head) * args.max_seq_tokens,
            .row_stride = layout.heads * args.max_seq_tokens,
            .rows = head.length,
            .elements_per_row = head.length};
    bits = args.mask.template as<uint8_t>() + rows.first_element / 8;
  }

  void draw() const {
    if (decisions.active()) decisions.draw_rows(rows, bits);
  }
  void write_factors(int64_t query, Tile& tile) const {
    if (!decisions.active()) return;
    decisions.write_factors(bits + query * row_bytes, rows.elements_per_row, tile.factors.data());
  }
};

/// scores = factor * a b^T over one tile of query rows.
void multiply_rows(const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                   const GemmArgs& shape, std::vector<float>& scores) {
  GemmArgs gemm = shape;
  gemm.transpose_b = Transpose::kYes;
  gemm.a = a;
  gemm.a_stride = a_stride;
  gemm.b = b;
  gemm.b_stride = b_stride;
  gemm.c = scores.data();
  gemm.c_stride = shape.n;
  run_gemm(gemm);
}

/// scores become softmax(scores) * factors; returns the log-sum-exp.
float softmax_row(const float* factors, int64_t length, float* scores) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < length; ++i) top = scores[i] > top ? scores[i] : top;
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < length; ++i) {
    scores[i] = exp_f32(scores[i] - top);
    sum += static_cast<double>(scores[i]);
  }
  const float inverse = static_cast<float>(1.0 / sum);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) scores[i] *= inverse * factors[i];
  return static_cast<float>(static_cast<double>(top) + std::log(sum));
}

void forward_head(const AttentionFwd& args, const Layout& layout, const DropoutMask& dropout,
                  const Head& head) {
  const HeadMask mask(args, dropout, layout, head);
  mask.draw();
  const float* qkv = args.qkv.as<float>();
  float* out = args.out.as<float>();
  float* lse = args.lse.as<float>() + head.head * layout.tokens + head.first;
  Tile tile(head.length, 1);
  for (int64_t begin = 0; begin < head.length; begin += kTileQueries) {
    const int64_t queries = std::min(kTileQueries, head.length - begin);
    multiply_rows(qkv + layout.qkv_at(head.first + begin, 0, head.head), layout.qkv_stride(),
                  qkv + layout.qkv_at(head.first, 1, head.head), layout.qkv_stride(),
                  {.m = queries, .n = head.length, .k = layout.head_size, .scale = args.scale},
                  tile.scores);
    for (int64_t row = 0; row < queries; ++row) {
      mask.write_factors(begin + row, tile);
      lse[begin + row] =
          softmax_row(tile.factors.data(), head.length, tile.scores.data() + row * head.length);
    }
    run_gemm({.m = queries,
              .n = layout.head_size,
              .k = head.length,
              .a = tile.scores.data(),
              .a_stride = head.length,
              .b = qkv + layout.qkv_at(head.first, 2, head.head),
              .b_stride = layout.qkv_stride(),
              .c = out + layout.out_at(head.first + begin, head.head),
              .c_stride = layout.out_stride()});
  }
}

/// scores, gradient (of the dropped probabilities) -> dropped probabilities, gradient of the
/// unscaled scores.
void softmax_row_backward(const float* factors, float lse, float scale, int64_t length,
                          float* scores, float* gradient) {
  double delta = 0.0;
#pragma omp simd reduction(+ : delta)
  for (int64_t i = 0; i < length; ++i) {
    scores[i] = exp_f32(scores[i] - lse);
    gradient[i] *= factors[i];
    delta += static_cast<double>(scores[i]) * static_cast<double>(gradient[i]);
  }
  const float mean = static_cast<float>(delta);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) {
    gradient[i] = scores[i] * (gradient[i] - mean) * scale;
    scores[i] *= factors[i];
  }
}

void backward_head(const AttentionBwd& args, const Layout& layout, const DropoutMask& dropout,
                   const Head& head) {
  const HeadMask mask(args, dropout, layout, head);
  const float* qkv = args.qkv.as<float>();
  const float* dout = args.dout.as<float>();
  const float* lse = args.lse.as<float>() + head.head * layout.tokens + head.first;
  float* dqkv = args.dqkv.as<float>();
  const int64_t stride = layout.qkv_stride();
  const int64_t key = layout.qkv_at(head.first, 1, head.head);
  const int64_t value = layout.qkv_at(head.first, 2, head.head);
  Tile tile(head.length, 2);
  for (int64_t begin = 0; begin < head.length; begin += kTileQueries) {
    const int64_t queries = std::min(kTileQueries, head.length - begin);
    const int64_t query = layout.qkv_at(head.first + begin, 0, head.head);
    const float* dout_rows = dout + layout.out_at(head.first + begin, head.head);
    const GemmArgs shape{.m = queries, .n = head.length, .k = layout.head_size};
    GemmArgs scaled = shape;
    scaled.scale = args.scale;
    multiply_rows(qkv + query, stride, qkv + key, stride, scaled, tile.scores);
    multiply_rows(dout_rows, layout.out_stride(), qkv + value, stride, shape, tile.gradients);
    for (int64_t row = 0; row < queries; ++row) {
      mask.write_factors(begin + row, tile);
      softmax_row_backward(tile.factors.data(), lse[begin + row], args.scale, head.length,
                           tile.scores.data() + row * head.length,
                           tile.gradients.data() + row * head.length);
    }
    run_gemm({.m = queries,
              .n = layout.head_size,
              .k = head.length,
              .a = tile.gradients.data(),
              .a_stride = head.length,
              .b = qkv + key,
              .b_stride = stride,
              .c = dqkv + query,
              .c_stride = stride});
    GemmArgs transposed{.transpose_a = Transpose::kYes,
                        .m = head.length,
                        .n = layout.head_size,
                        .k = queries,
                        .a = tile.gradients.data(),
                        .a_stride = head.length,
                        .b = qkv + query,
                        .b_stride = stride,
                        .keep = begin == 0 ? 0.0f : 1.0f,
                        .c = dqkv + key,
                        .c_stride = stride};
    run_gemm(transposed);
    transposed.a = tile.scores.data();
    transposed.b = dout_rows;
    transposed.b_stride = layout.out_stride();
    transposed.c = dqkv + value;
    run_gemm(transposed);
  }
}

/// Calls work(args, layout, dropout, head) for every head of every sequence that has tokens, and
/// zeroes the rows of `result` of tokens that no sequence owns.
template <class Args, class Work>
void for_each_head(WorkerPool& pool, const Args& args, const View& result, const Work& work) {
  require_f32(Args::kName, "qkv", args.qkv);
  const Layout layout(args.qkv, args.cu_seqlens);
  check_seqlens(layout, args.cu_seqlens, args.max_seq_tokens);
  const DropoutMask dropout(args.dropout);
  const int32_t* starts = args.cu_seqlens.template as<int32_t>();
  pool.for_range(layout.seqs * layout.heads, 1, [&](int64_t index, int64_t) {
    const int64_t seq = index / layout.heads;
    const int64_t length = starts[seq + 1] - starts[seq];
    if (length > 0) {
      work(args, layout, dropout, Head{seq, index % layout.heads, starts[seq], length});
    }
  });
  const int64_t live = starts[layout.seqs];
  const View padding = result.rows(live, layout.tokens - live);
  std::fill_n(padding.as<float>(), padding.elements(), 0.0f);
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const AttentionFwd& args) {
  for_each_head(pool, args, args.out, forward_head);
  const Layout layout(args.qkv, args.cu_seqlens);
  const int64_t live = args.cu_seqlens.as<int32_t>()[layout.seqs];
  for (int64_t head = 0; head < layout.heads; ++head) {
    std::fill_n(args.lse.as<float>() + head * layout.tokens + live, layout.tokens - live, 0.0f);
  }
}

template <>
void run_cpu(WorkerPool& pool, const AttentionBwd& args) {
  for_each_head(pool, args, args.dqkv, backward_head);
  if (args.dbias.has_data()) {
    const Layout layout(args.qkv, args.cu_seqlens);
    sum_columns(pool, args.dqkv.reshaped({layout.tokens, layout.qkv_stride()}), args.accumulate,
                args.dbias);
  }
  if (args.dqkv_fp8.q.has_data()) run_cpu(pool, quantize_to(args.dqkv_fp8, args.dqkv));
}

}  // namespace bertha
