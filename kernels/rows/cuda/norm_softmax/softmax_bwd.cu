// Softmax and log-softmax, backward. softmax_functors.cuh chooses kernels that read memory once.
//
// Bound by memory: 49,152 x 4,096 f16 take 279 us on an H200, 103 % of a copy of as many bytes
// (kernels/rows/measured/rows.md).

#include "kernels/base/cuda/dropout.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/rows/cuda/norm_softmax/softmax_functors.cuh"
#include "kernels/rows/ops/softmax.h"

namespace bertha {
namespace {

/// dy back through the dropout, by the saved bits.
template <class T>
struct DroppedGradientLoad {
  using Element = T;
  const T* matrix;
  const uint32_t* mask;  // [rows, words]
  int64_t words;
  Compute<T> keep_factor;

  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<T, N>& raw, Compute<T> (&v)[N]) const {
    to_compute(raw, v);
    const uint32_t bits = mask[place.row * words + place.column / 32] >> (place.column % 32);
    for (int i = 0; i < N; ++i) {
      v[i] = ((bits >> i) & 1u) != 0 ? v[i] * keep_factor : Compute<T>(0);
    }
  }
};

}  // namespace

template <>
void run_cuda(CudaContext& context, const SoftmaxBwd& args) {
  const int64_t columns = args.dy.extent(args.dy.rank - 1);
  const int64_t rows = args.dy.elements() / columns;
  if (rows == 0) return;
  const bool drops = args.dropout.probability != 0.0f;
  dispatch_floating(args.dy.dtype, [&]<class T>(TypeTag<T>) {
    const MatrixLoad<T> dy{elements<T>(args.dy)};
    const MatrixLoad<T> y{elements<T>(args.y)};
    const MatrixStore<T> dx{elements<T>(args.dx)};
    if (drops) {  // of softmax alone
      const DroppedGradientLoad<T> dropped_dy{
          .matrix = dy.matrix,
          .mask = kept_words(args.kept_mask),
          .words = softmax_mask_columns(columns) / 32,
          .keep_factor = Compute<T>(device_dropout(args.dropout).keep_factor)};
      return softmax_gradient_rows<SoftmaxKind::kSoftmax>(context, dropped_dy, y, dx, args.scale,
                                                          rows, columns);
    }
    dispatch_kind(args.kind, [&](auto kind) {
      softmax_gradient_rows<kind()>(context, dy, y, dx, args.scale, rows, columns);
    });
  });
}

}  // namespace bertha
