// Attention scores to probabilities in one kernel: y = softmax(scale * x) over the keys that the
// mask leaves, and its dropout; the gradient goes back through both. kernels/rows/functors.md walks
// through this file.

#include "kernels/base/cuda/dropout.cuh"
#include "kernels/rows/cuda/norm_softmax/softmax_functors.cuh"
#include "kernels/rows/examples/examples.h"
#include "kernels/rows/ops/softmax.h"

namespace examples {
namespace {

using namespace bertha;
using Half = __half;

/// scale * x, and minus infinity where the mask is 0.
struct ScoresLoad {
  using Element = Half;
  const Half* matrix;
  const uint8_t* mask;  // [columns], of all rows
  float scale;

  int most_elements() const { return vec_elements(mask); }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<Half, N>& raw, float (&v)[N]) const {
    to_compute(raw, v);
    const Vec<uint8_t, N> open = load_vec<N>(mask + place.column);
    for (int i = 0; i < N; ++i) v[i] = open.elem[i] != 0 ? scale * v[i] : -INFINITY;
  }
};

/// y, dropout(y), and what was kept as bits. Each thread draws the 32 decisions of the word that
/// its elements are in.
struct DropoutStore {
  Half* y;
  Half* dropped;
  uint32_t* kept_mask;  // [rows, words]
  int64_t words;        // per row
  DeviceDropout dropout;

  int most_elements() const { return vec_elements(y, dropped); }
  template <int N>
  __device__ void store(const RowPlace& place, const float (&values)[N]) const {
    const int64_t word = place.row * words + place.column / 32;
    const uint32_t bits =
        drawn_bits(dropout.random[0], dropout.random[1], dropout.site, word, dropout.threshold);
    if (place.column % 32 == 0) kept_mask[word] = bits;
    float kept[N];
    for (int i = 0; i < N; ++i) {
      const bool is_kept = ((bits >> (place.column % 32 + i)) & 1u) != 0;
      kept[i] = is_kept ? values[i] * dropout.keep_factor : 0.0f;
    }
    store_compute(y + place.dense, values);
    store_compute(dropped + place.dense, kept);
  }
};

/// dy back through the dropout.
struct DroppedGradientLoad {
  using Element = Half;
  const Half* matrix;
  const uint32_t* kept_mask;  // [rows, words]
  int64_t words;
  float keep_factor;

  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<Half, N>& raw, float (&v)[N]) const {
    to_compute(raw, v);
    const uint32_t bits = kept_mask[place.row * words + place.column / 32] >> (place.column % 32);
    for (int i = 0; i < N; ++i) v[i] = ((bits >> i) & 1u) != 0 ? v[i] * keep_factor : 0.0f;
  }
};

int64_t words_of(int64_t columns) { return (columns + 31) / 32; }

}  // namespace

void masked_softmax(CudaContext& context, const MaskedSoftmax& args) {
  const ScoresLoad load{elements<Half>(args.x), elements<uint8_t>(args.mask), args.scale};
  const DropoutStore store{elements<Half>(args.y), elements<Half>(args.dropped),
                           static_cast<uint32_t*>(args.kept_mask.data), words_of(args.x.extent(1)),
                           device_dropout(args.dropout)};
  softmax_rows<SoftmaxKind::kSoftmax>(context, load, store, args.x.extent(0), args.x.extent(1));
}

void masked_softmax_gradient(CudaContext& context, const MaskedSoftmax& args, const View& dy,
                             const View& dx) {
  const DroppedGradientLoad load{
      elements<Half>(dy), static_cast<const uint32_t*>(args.kept_mask.data),
      words_of(args.x.extent(1)), device_dropout(args.dropout).keep_factor};
  softmax_gradient_rows<SoftmaxKind::kSoftmax>(
      context, load, MatrixLoad<Half>{elements<Half>(args.y)},
      MatrixStore<Half>{elements<Half>(dx)}, args.scale, args.x.extent(0), args.x.extent(1));
}

}  // namespace examples
