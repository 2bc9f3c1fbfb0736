// Functors in every form that a Load or a Store may have. functors_compile_test.sh compiles them to
// PTX and expects in each kernel the marks of the functors that its name contains; the C++ compiler
// takes them, too.

#ifdef __CUDACC__
#include "kernels/rows/cuda/norm_softmax/layer_norm_functors.cuh"
#include "kernels/rows/cuda/norm_softmax/softmax_functors.cuh"
#else
#include "kernels/rows/tests/cuda/functors_without_nvcc.cuh"
#endif

namespace bertha {
struct CudaContext;

namespace {

struct MaskedLoad {
  using Element = __half;
  const __half* matrix;
  const uint8_t* mask;

  int most_elements() const { return vec_elements(mask); }
  template <int N>
  __device__ void values(const RowPlace& place, const Vec<__half, N>& raw, float (&v)[N]) const {
    asm volatile("// MaskedLoad is called");
    to_compute(raw, v);
    for (int i = 0; i < N; ++i) v[i] = mask[place.column + i] != 0 ? v[i] : 0.0f;
  }
};

/// `values` has parameters of any type, and takes the place by value.
struct GenericLoad {
  using Element = float;
  const float* matrix;

  static int most_elements() { return kVecSize; }
  template <int N>
  __device__ void values(RowPlace, const auto& raw, auto& v) const {
    asm volatile("// GenericLoad is called");
    for (int i = 0; i < N; ++i) v[i] = 2.0f * raw.elem[i];
  }
};

/// `values` is overloaded.
struct OverloadedLoad {
  using Element = double;
  const double* matrix;

  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ void values(const RowPlace&, const Vec<float, N>&, float (&)[N]) const {}
  template <int N>
  __device__ void values(const RowPlace&, const Vec<double, N>& raw, double (&v)[N]) const {
    asm volatile("// OverloadedLoad is called");
    for (int i = 0; i < N; ++i) v[i] = 2.0 * raw.elem[i];
  }
};

struct GatheredLoad {
  using Element = float;
  static constexpr bool kHasValues = false;
  const float* from;
  const int64_t* index;

  int most_elements() const { return vec_elements(from); }
  template <int N>
  __device__ Vec<float, N> load(const RowPlace& place) const {
    asm volatile("// GatheredLoad is called");
    return load_vec<N>(from + index[place.row]);
  }
};

/// `load` reads, `values` computes.
struct ScaledGatheredLoad : GatheredLoad {
  static constexpr bool kHasValues = true;
  template <int N>
  __device__ void values(const RowPlace&, const Vec<float, N>& raw, float (&v)[N]) const {
    asm volatile("// ScaledGatheredLoad is called");
    for (int i = 0; i < N; ++i) v[i] = 2.0f * raw.elem[i];
  }
};

template <class Number>
struct MarkedStore {
  Number* to;

  int most_elements() const { return vec_elements(to); }
  template <int N>
  __device__ void store(const RowPlace& place, const Number (&numbers)[N]) const {
    asm volatile("// MarkedStore is called");
    store_compute(to + place.dense, numbers);
  }
};

template <class First, class Second, class Store>
void use(CudaContext& context, const First& first, const Second& second, const Store& store) {
  static_assert(FunctorCheck<Store, First, Second>::kAreRight);
  row_vec_elements(8, first, second, store);
#ifdef __CUDACC__
  softmax_gradient_rows<SoftmaxKind::kSoftmax>(context, first, second, store, 1.0, 1, 8);
#else
  static_cast<void>(context);
#endif
}

}  // namespace

void use_all(CudaContext& context) {
  use(context, MaskedLoad{}, MatrixLoad<__nv_bfloat16>{}, MatrixStore<float>{});
  use(context, GenericLoad{}, GatheredLoad{}, MarkedStore<float>{});
  use(context, ScaledGatheredLoad{}, MatrixLoad<float>{}, MarkedStore<float>{});
  use(context, OverloadedLoad{}, MatrixLoad<double>{}, MarkedStore<double>{});
#ifdef __CUDACC__
  layer_norm_rows(context, NormForward<GenericLoad, MarkedStore<float>, __half>{}, 1, 8);
  layer_norm_gradient_rows(
      context, NormGradient<MatrixLoad<__half>, MaskedLoad, MatrixStore<__half>, float>{},
      NormParameterGradients<float>{}, 1, 8);
#endif
}

}  // namespace bertha
