#include "kernels/rows/tests/cuda/moved_rows.h"

#include "kernels/rows/cuda/norm_softmax/layer_norm_functors.cuh"
#include "kernels/rows/cuda/norm_softmax/softmax_functors.cuh"
#include "kernels/rows/ops/softmax.h"

namespace bertha::testing {
namespace {

/// Row index[r] of a matrix.
template <class T>
struct GatheredLoad {
  using Element = T;
  static constexpr bool kHasValues = false;
  const T* from;
  const int64_t* index;
  int64_t columns;

  int most_elements() const { return vec_elements(from); }
  template <int N>
  __device__ Vec<T, N> load(const RowPlace& place) const {
    return load_vec<N>(from + index[place.row] * columns + place.column);
  }
};

template <class T>
struct ScatteredStore {
  T* to;
  const int64_t* index;
  int64_t columns;

  int most_elements() const { return vec_elements(to); }
  template <int N>
  __device__ void store(const RowPlace& place, const float (&values)[N]) const {
    store_compute(to + index[place.row] * columns + place.column, values);
  }
};

/// x where the mask is not 0, and 0 elsewhere.
template <class T>
struct MaskedLoad {
  using Element = T;
  const T* matrix;
  const uint8_t* mask;

  int most_elements() const { return vec_elements(mask); }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<T, N>& raw, float (&v)[N]) const {
    to_compute(raw, v);
    const Vec<uint8_t, N> open = load_vec<N>(mask + place.column);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = open.elem[i] != 0 ? v[i] : 0.0f;
  }
};

template <class T>
struct DoubledLoad {
  using Element = T;
  const T* matrix;

  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ void values(const RowPlace&, const Vec<T, N>& raw, float (&v)[N]) const {
    to_compute(raw, v);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= 2;
  }
};

struct WidthOnly {
  int width;
  int most_elements() const { return width; }
};

template <class T>
GatheredLoad<T> gathered(const View& from, const View& index) {
  return {elements<T>(from), elements<int64_t>(index), from.extent(1)};
}

template <class T>
ScatteredStore<T> scattered(const View& to, const View& index) {
  return {elements<T>(to), elements<int64_t>(index), to.extent(1)};
}

/// work(Load of the rows z).
template <class T, class Work>
void with_load(const MovedNorm& args, const Work& work) {
  if (args.mask.has_data()) {
    work(MaskedLoad<T>{elements<T>(args.x), elements<uint8_t>(args.mask)});
  } else {
    work(gathered<T>(args.x, args.index));
  }
}

template <class T>
void run_forward(CudaContext& context, const MovedNorm& args) {
  with_load<T>(args, [&](const auto& load) {
    using Load = std::remove_cvref_t<decltype(load)>;
    const NormForward<Load, ScatteredStore<T>, T> norm{.x = load,
                                                       .residual = nullptr,
                                                       .gamma = elements<T>(args.gamma),
                                                       .beta = elements<T>(args.beta),
                                                       .sum = nullptr,
                                                       .y = scattered<T>(args.y, args.index),
                                                       .mean = elements<float>(args.mean),
                                                       .rstd = elements<float>(args.rstd),
                                                       .epsilon = args.epsilon};
    layer_norm_rows(context, norm, args.x.extent(0), args.x.extent(1));
  });
}

template <class T>
void run_gradient(CudaContext& context, const MovedNorm& args,
                  const MovedNormGradients& gradients) {
  with_load<T>(args, [&](const auto& load) {
    using Load = std::remove_cvref_t<decltype(load)>;
    const NormGradient<DoubledLoad<T>, Load, ScatteredStore<T>, T> norm{
        .dy = {elements<T>(gradients.dy)},
        .x = load,
        .gamma = elements<T>(args.gamma),
        .mean = elements<float>(args.mean),
        .rstd = elements<float>(args.rstd),
        .dx = scattered<T>(gradients.dx, args.index),
        .partial = nullptr};
    layer_norm_gradient_rows(
        context, norm,
        NormParameterGradients<T>{elements<T>(gradients.dgamma), elements<T>(gradients.dbeta)},
        args.x.extent(0), args.x.extent(1));
  });
}

}  // namespace

int accepted_width(int width) { return most_elements(WidthOnly{width}); }

void gathered_log_softmax(CudaContext& context, const View& x, const View& index, const View& y) {
  const MatrixStore<float> store{elements<float>(y)};
  if (!index.has_data()) {
    return softmax_rows<SoftmaxKind::kLogSoftmax>(context, MatrixLoad<__half>{elements<__half>(x)},
                                                  store, y.extent(0), y.extent(1));
  }
  softmax_rows<SoftmaxKind::kLogSoftmax>(context, gathered<__half>(x, index), store, y.extent(0),
                                         y.extent(1));
}

void gathered_log_softmax_gradient(CudaContext& context, const View& dy, const View& index,
                                   const View& y, const View& dx) {
  softmax_gradient_rows<SoftmaxKind::kLogSoftmax>(
      context, gathered<__half>(dy, index), MatrixLoad<__nv_bfloat16>{elements<__nv_bfloat16>(y)},
      MatrixStore<float>{elements<float>(dx)}, 2.0f, dx.extent(0), dx.extent(1));
}

void moved_norm(CudaContext& context, const MovedNorm& args) {
  args.x.dtype == DType::kF32 ? run_forward<float>(context, args)
                              : run_forward<__half>(context, args);
}

void moved_norm_gradient(CudaContext& context, const MovedNorm& args,
                         const MovedNormGradients& gradients) {
  args.x.dtype == DType::kF32 ? run_gradient<float>(context, args, gradients)
                              : run_gradient<__half>(context, args, gradients);
}

}  // namespace bertha::testing
