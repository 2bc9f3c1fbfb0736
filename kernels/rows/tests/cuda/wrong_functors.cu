// One mistake in each section. functors_compile_test.sh compiles every section alone, with nvcc and
// with the C++ compiler, and expects a single error: the one in the section's second line.

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
  __device__ void values(const RowPlace&, const Vec<__half, N>&, float (&)[N]) const {}
};

struct NoStore {
  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ void store(const RowPlace&, const float (&)[N]) const {}
};

/// All but the device code, which the C++ compiler does not read.
template <class Store, class First, class Second = First>
void use(CudaContext& context, const Store& store, const First& first, const Second& second) {
#ifdef __CUDACC__
  softmax_gradient_rows<SoftmaxKind::kSoftmax>(context, first, second, store, 1.0, 1, 8);
#else
  static_cast<void>(context);
  if constexpr (FunctorCheck<Store, First, Second>::kAreRight) {
    row_vec_elements(8, first, second, store);
  }
#endif
}

#if defined(VALUES_NOT_CONST)
// error: a Load needs either 'template <int N> __device__ void values(const RowPlace&,
struct Load : MaskedLoad {
  template <int N>
  __device__ void values(const RowPlace&, const Vec<__half, N>&, float (&)[N]) {}
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(VALUES_FROM_OTHER_ELEMENTS)
// error: a Load needs either 'template <int N> __device__ void values(const RowPlace&,
struct Load : MaskedLoad {
  template <int N>
  __device__ void values(const RowPlace&, const Vec<float, N>&, float (&)[N]) const {}
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(VALUES_TO_OTHER_NUMBERS)
// error: a Load needs either 'template <int N> __device__ void values(const RowPlace&,
struct Load : MaskedLoad {
  template <int N>
  __device__ void values(const RowPlace&, const Vec<__half, N>&, double (&)[N]) const {}
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(VALUES_OF_ONE_WIDTH)
// error: a Load needs either 'template <int N> __device__ void values(const RowPlace&,
struct Load : MaskedLoad {
  template <int N>
  __device__ void values(const RowPlace&, const Vec<__half, 8>&, float (&)[8]) const {}
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(VALUES_MISSPELT)
// error: if its elements are the numbers, 'static constexpr bool kHasValues = false;'
struct Load {
  using Element = __half;
  const __half* matrix;
  const uint8_t* mask;

  int most_elements() const { return vec_elements(mask); }
  template <int N>
  __device__ void value(const RowPlace&, const Vec<__half, N>&, float (&)[N]) const {}
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(VALUES_MISSPELT_NEXT_TO_LOAD)
// error: if its elements are the numbers, 'static constexpr bool kHasValues = false;'
struct Load {
  using Element = float;

  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ Vec<float, N> load(const RowPlace&) const {
    return {};
  }
  template <int N>
  __device__ void vaules(const RowPlace&, const Vec<float, N>&, float (&)[N]) const {}
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(VALUES_DENIED)
// error: if its elements are the numbers, 'static constexpr bool kHasValues = false;'
struct Load : MaskedLoad {
  static constexpr bool kHasValues = false;
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(ELEMENT_OF_8_BITS)
// error: a Load has no Element that the kernels read; add 'using Element = T;'
struct Load : MaskedLoad {
  using Element = int8_t;
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(ELEMENT_MISSING)
// error: a Load has no Element that the kernels read; add 'using Element = T;'
struct Load {
  static constexpr bool kHasValues = false;
  const __half* matrix;

  int most_elements() const { return kVecSize; }
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(MATRIX_OF_OTHER_ELEMENTS)
// error: a Load cannot be read; add either 'const Element* matrix;' or
struct Load : MatrixLoad<float> {
  using Element = __half;
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(MATRIX_MISSPELT)
// error: a Load cannot be read; add either 'const Element* matrix;' or
struct Load {
  using Element = __half;
  static constexpr bool kHasValues = false;
  const __half* matrx;

  int most_elements() const { return kVecSize; }
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(LOAD_OF_OTHER_ELEMENTS)
// error: a Load cannot be read; add either 'const Element* matrix;' or
struct Load {
  using Element = __half;
  static constexpr bool kHasValues = false;

  int most_elements() const { return kVecSize; }
  template <int N>
  __device__ Vec<float, N> load(const RowPlace&) const {
    return {};
  }
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(LOAD_AND_MATRIX)
// error: a Load cannot be read; add either 'const Element* matrix;' or
struct Load : MatrixLoad<float> {
  template <int N>
  __device__ Vec<float, N> load(const RowPlace&) const {
    return {};
  }
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(ELEMENTS_OF_TWO_SIZES)
// error: two Loads have Elements of different sizes; convert one of them
template void use(CudaContext&, const NoStore&, const MaskedLoad&, const MatrixLoad<float>&);

#elif defined(MOST_ELEMENTS_NOT_CONST)
// error: a functor does not say how many neighbouring elements it can take
struct Load : MaskedLoad {
  int most_elements() { return kVecSize; }
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(MOST_ELEMENTS_OF_64_BITS)
// error: a functor does not say how many neighbouring elements it can take
struct Load : MaskedLoad {
  int64_t most_elements() const { return kVecSize; }
};
template void use(CudaContext&, const NoStore&, const Load&, const Load&);

#elif defined(MOST_ELEMENTS_MISSING)
// error: a functor does not say how many neighbouring elements it can take
struct Store {
  template <int N>
  __device__ void store(const RowPlace&, const float (&)[N]) const {}
};
template void use(CudaContext&, const Store&, const MaskedLoad&, const MaskedLoad&);

#elif defined(STORE_OF_OTHER_NUMBERS)
// error: a Store cannot take the numbers of its Loads; use MatrixStore, or add
struct Store : NoStore {
  template <int N>
  __device__ void store(const RowPlace&, const double (&)[N]) const {}
};
template void use(CudaContext&, const Store&, const MaskedLoad&, const MaskedLoad&);

#elif defined(STORE_NOT_CONST)
// error: a Store cannot take the numbers of its Loads; use MatrixStore, or add
struct Store : NoStore {
  template <int N>
  __device__ void store(const RowPlace&, const float (&)[N]) {}
};
template void use(CudaContext&, const Store&, const MaskedLoad&, const MaskedLoad&);

#elif defined(STORE_MISSPELT)
// error: a Store cannot take the numbers of its Loads; use MatrixStore, or add
struct Store : MatrixStore<__half> {
  template <int N>
  __device__ void stores(const RowPlace&, const float (&)[N]) const {}
};
template void use(CudaContext&, const Store&, const MaskedLoad&, const MaskedLoad&);

#elif defined(STORE_AND_MATRIX)
// error: a Store cannot take the numbers of its Loads; use MatrixStore, or add
struct Store : NoStore {
  __half* matrix;
};
template void use(CudaContext&, const Store&, const MaskedLoad&, const MaskedLoad&);

#elif defined(MATRIX_STORE_OF_DOUBLES)
// error: a MatrixStore<T> cannot take the numbers of its Loads; use double as T
template void use(CudaContext&, const MatrixStore<double>&, const MaskedLoad&, const MaskedLoad&);

#elif defined(MATRIX_STORE_OF_INTEGERS)
// error: a MatrixStore<T> cannot take the numbers of its Loads; use double as T
template void use(CudaContext&, const MatrixStore<int>&, const MaskedLoad&, const MaskedLoad&);

#elif defined(NORM_WITHOUT_ELEMENT)
// nvcc error: a Load has no Element that the kernels read; add 'using Element = T;'
struct Load {
  const float* matrix;
};
void use(CudaContext& context, const NormForward<Load, NoStore, float>& norm) {
  layer_norm_rows(context, norm, 1, 8);
}

#elif defined(NORM_GRADIENT_OF_MISSPELT_VALUES)
// nvcc error: a Load needs either 'template <int N> __device__ void values(const RowPlace&,
struct Load {
  using Element = float;
  const float* matrix;

  int most_elements() const { return kVecSize; }
};
void use(CudaContext& context, const NormGradient<MatrixLoad<float>, Load, NoStore, float>& norm) {
  layer_norm_gradient_rows(context, norm, NormParameterGradients<float>{}, 1, 8);
}

#elif defined(NORM_OF_INTEGER_PARAMETERS)
// nvcc error: gamma and beta are of a wrong type; use double as Parameter for Elements
void use(CudaContext& context, const NormForward<MaskedLoad, NoStore, int>& norm) {
  layer_norm_rows(context, norm, 1, 8);
}

#elif defined(NORM_GRADIENT_OF_DOUBLE_PARAMETERS)
// nvcc error: gamma and beta are of a wrong type; use double as Parameter for Elements
void use(CudaContext& context, const NormGradient<MaskedLoad, MaskedLoad, NoStore, double>& norm) {
  layer_norm_gradient_rows(context, norm, NormParameterGradients<double>{}, 1, 8);
}

#endif

}  // namespace
}  // namespace bertha
