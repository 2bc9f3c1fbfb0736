#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "kernels/base/cuda/compute.cuh"
#include "kernels/base/error.h"

namespace bertha {

// How rows come to the kernels of softmax and LayerNorm and how their results leave: by Load and
// Store functors, also in the plain operations. kernels/rows/functors.md lists their members; a
// functor that differs does not compile.

/// N neighbouring elements of a row.
struct RowPlace {
  int64_t row;
  int64_t column;  // of the first one
  int64_t dense;   // row * columns + column
};

/// The elements of a matrix as they are.
template <class T>
struct MatrixLoad {
  using Element = T;
  static constexpr bool kHasValues = false;
  const T* matrix;  // [rows, columns]
  int most_elements() const { return kVecSize; }
};

/// Whether a Store of softmax draws dropout, 32 decisions of a row at once, by
/// draw(row, word, words) where drops(), and takes them as the low bits of the last argument of
/// store<N>(place, numbers, bits).
template <class Store>
inline constexpr bool kDraws = requires(const Store& store) {
  store.drops();
};
template <class Operation>
inline constexpr bool kDrawsOnStore = requires {
  requires Operation::kDrops;
};

/// Results rounded to T.
template <class T>
struct MatrixStore {
  using Element = T;
  T* matrix;  // [rows, columns]
  int most_elements() const { return kVecSize; }
};

template <class Functor>
inline constexpr bool kHasMatrix = requires(const Functor& functor) {
  functor.matrix;
};

template <class Load>
constexpr bool has_values() {
  if constexpr (requires { Load::kHasValues; }) return Load::kHasValues;
  return true;
}
/// Whether `values` gives the numbers. A Load declares it if not, so that a misspelt `values` is an
/// error.
template <class Load>
inline constexpr bool kHasValues = has_values<Load>();

template <class Load>
inline constexpr bool kIsPlainLoad = kHasMatrix<Load> && !kHasValues<Load>;

template <class T>
inline constexpr bool kIsRowElement =
    std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, float> ||
    std::is_same_v<T, double>;

/// Refuses a wrong Load in one sentence: where kIsRight is false, no kernel is instantiated.
template <class Load>
struct LoadCheck {
  using Element = float;
  static constexpr bool kIsRight = false;
  static_assert(sizeof(Load) == 0,
                "a Load has no Element that the kernels read; add 'using Element = T;' with "
                "__half, __nv_bfloat16, float or double as T");
};
template <class Load>
requires kIsRowElement<typename Load::Element>
struct LoadCheck<Load> {
  using Element = typename Load::Element;
  static constexpr bool kLoads = requires(const Load& load, RowPlace place) {
    { load.template load<1>(place) } -> std::same_as<Vec<Element, 1>>;
  };
  static constexpr bool kHasElements = requires(const Load& load) {
    { load.matrix } -> std::convertible_to<const Element*>;
  };
  static constexpr bool kGivesValues = requires(
      const Load& load, RowPlace place, const Vec<Element, 1>& raw, Compute<Element> (&v)[1]) {
    load.template values<1>(place, raw, v);
  };
  static constexpr bool kIsRead = kHasMatrix<Load> ? kHasElements && !kLoads : kLoads;
  static constexpr bool kIsRight = kIsRead && kGivesValues == kHasValues<Load>;
  static_assert(kIsRead,
                "a Load cannot be read; add either 'const Element* matrix;' or "
                "'template <int N> __device__ Vec<Element, N> load(const RowPlace&) const'");
  static_assert(!kIsRead || kIsRight,
                "a Load needs either 'template <int N> __device__ void values(const RowPlace&, "
                "const Vec<Element, N>&, Compute<Element> (&)[N]) const' or, if its elements are "
                "the numbers, 'static constexpr bool kHasValues = false;'");
};
template <class Load>
using ElementOf = typename LoadCheck<Load>::Element;

template <class Store, class Number>
struct StoreCheck {
  static constexpr bool kIsRight =
      !kHasMatrix<Store> &&
      requires(const Store& store, RowPlace place, const Number (&numbers)[1]) {
    store.template store<1>(place, numbers);
  };
  static_assert(kIsRight,
                "a Store cannot take the numbers of its Loads; use MatrixStore, or add 'template "
                "<int N> __device__ void store(const RowPlace&, const Number (&)[N]) const', with "
                "double as Number for Elements of double and float otherwise, and no 'matrix'");
};
template <class T, class Number>
struct StoreCheck<MatrixStore<T>, Number> {
  static constexpr bool kIsRight = kIsRowElement<T> && std::is_same_v<Compute<T>, Number>;
  static_assert(kIsRight,
                "a MatrixStore<T> cannot take the numbers of its Loads; use double as T for "
                "Elements of double, and __half, __nv_bfloat16 or float otherwise");
};

/// Refuses wrong functors of an operation with one Load or two.
template <class Store, class First, class Second = First>
struct FunctorCheck {
  static constexpr bool kHaveOneSize = sizeof(ElementOf<First>) == sizeof(ElementOf<Second>);
  static constexpr bool kAreRight = kHaveOneSize && LoadCheck<First>::kIsRight &&
                                    LoadCheck<Second>::kIsRight &&
                                    StoreCheck<Store, Compute<ElementOf<First>>>::kIsRight;
  static_assert(kHaveOneSize,
                "two Loads have Elements of different sizes; convert one of them in load<N>()");
};

/// What registers keep of a row between its passes: elements as they were read, or numbers.
template <class Load>
using Held =
    std::conditional_t<kHasValues<Load>, Compute<typename Load::Element>, typename Load::Element>;

template <int N, class Load>
__device__ __forceinline__ auto fetch(const Load& load, const RowPlace& place) {
  if constexpr (kHasMatrix<Load>) {
    return load_vec<N>(load.matrix + place.dense);
  } else {
    return load.template load<N>(place);
  }
}

/// The same bits as elements of another type of their size.
template <class To, class From, int N>
__device__ __forceinline__ Vec<To, N> bits_as(const Vec<From, N>& vec) {
  if constexpr (std::is_same_v<To, From>) {
    return vec;
  } else {
    Vec<To, N> same;
    for (int i = 0; i < Vec<To, N>::kWords; ++i) same.word[i] = vec.word[i];
    return same;
  }
}

/// `raw`: the bits that the Load read.
template <int N, class Load, class T>
__device__ __forceinline__ void numbers_of(const Load& load, const RowPlace& place,
                                           const Vec<T, N>& raw,
                                           Compute<typename Load::Element> (&v)[N]) {
  if constexpr (kHasValues<Load>) {
    load.template values<N>(place, bits_as<typename Load::Element>(raw), v);
  } else {
    to_compute(bits_as<typename Load::Element>(raw), v);
  }
}

/// Raw elements as registers keep them.
template <int N, class Load>
__device__ __forceinline__ auto held_of(const Load& load, const RowPlace& place,
                                        const Vec<typename Load::Element, N>& raw) {
  if constexpr (kHasValues<Load>) {
    Vec<Held<Load>, N> held;
    load.template values<N>(place, raw, held.elem);
    return held;
  } else {
    return raw;
  }
}

template <int N, class Load>
__device__ __forceinline__ auto hold(const Load& load, const RowPlace& place) {
  return held_of(load, place, fetch<N>(load, place));
}

/// The same, where a matrix is read without allocation in L1.
template <int N, class Load>
__device__ __forceinline__ auto hold_no_allocate(const Load& load, const RowPlace& place) {
  if constexpr (kHasMatrix<Load> && N == kVecSize) {
    return held_of(load, place, load_vec_no_allocate(load.matrix + place.dense));
  } else {
    return hold<N>(load, place);
  }
}

template <int N, class Store, class Number>
__device__ __forceinline__ void put(const Store& store, const RowPlace& place,
                                    const Number (&numbers)[N]) {
  if constexpr (kHasMatrix<Store>) {
    store_compute(store.matrix + place.dense, numbers);
  } else {
    store.template store<N>(place, numbers);
  }
}

/// The same, where a matrix is written by write(address, vector), such as store_vec_global.
template <class Store, class Write>
__device__ __forceinline__ void put_by(const Write& write, const Store& store,
                                       const RowPlace& place, const float (&numbers)[kVecSize]) {
  if constexpr (kHasMatrix<Store>) {
    write(store.matrix + place.dense, to_vec<typename Store::Element>(numbers));
  } else {
    store.template store<kVecSize>(place, numbers);
  }
}

__device__ __forceinline__ RowPlace operator+(const RowPlace& place, const RowPlace& distance) {
  return {place.row + distance.row, place.column + distance.column, place.dense + distance.dense};
}

/// The rows of an operation with one input.
template <class Load>
struct OneInput {
  using Element = typename Load::Element;
  using HeldElement = Held<Load>;
  static constexpr int kInputs = 1;
  static constexpr bool kIsPlain = kIsPlainLoad<Load>;
  static constexpr bool kHasMatrices = kHasMatrix<Load>;
  Load input;

  __host__ __device__ const Element* matrix(int) const { return input.matrix; }
  template <int N>
  __device__ __forceinline__ auto fetch_input(int, const RowPlace& place) const {
    return fetch<N>(input, place);
  }
  template <int N>
  __device__ __forceinline__ auto hold_input(int, const RowPlace& place) const {
    return hold<N>(input, place);
  }
  template <int N>
  __device__ __forceinline__ void values(const RowPlace& place, const Vec<Element, N> (&raw)[1],
                                         Compute<Element> (&v)[1][N]) const {
    numbers_of(input, place, raw[0], v[0]);
  }
};

/// The rows of an operation with two inputs, of Elements of one size; elements of the second are
/// kept as bits of the first.
template <class First, class Second>
struct TwoInputs {
  using Element = ElementOf<First>;
  static constexpr int kInputs = 2;
  static constexpr bool kIsOneType = std::is_same_v<Element, ElementOf<Second>>;
  static constexpr bool kIsPlain = kIsPlainLoad<First> && kIsPlainLoad<Second>;
  static constexpr bool kHasMatrices = kHasMatrix<First> && kHasMatrix<Second>;
  using HeldElement = std::conditional_t<kHasValues<First> || kHasValues<Second> || !kIsOneType,
                                         Compute<Element>, Element>;
  First first;
  Second second;

  __host__ __device__ const Element* matrix(int input) const {
    return input == 0 ? first.matrix : reinterpret_cast<const Element*>(second.matrix);
  }
  template <int N>
  __device__ __forceinline__ Vec<Element, N> fetch_input(int input, const RowPlace& place) const {
    return input == 0 ? fetch<N>(first, place) : bits_as<Element>(fetch<N>(second, place));
  }
  template <int N>
  __device__ __forceinline__ Vec<HeldElement, N> hold_input(int input,
                                                            const RowPlace& place) const {
    if constexpr (std::is_same_v<HeldElement, Element>) {
      return fetch_input<N>(input, place);
    } else {
      Vec<HeldElement, N> held;
      if (input == 0) {
        numbers_of(first, place, fetch<N>(first, place), held.elem);
      } else {
        numbers_of(second, place, fetch<N>(second, place), held.elem);
      }
      return held;
    }
  }
  template <int N>
  __device__ __forceinline__ void values(const RowPlace& place, const Vec<Element, N> (&raw)[2],
                                         Compute<Element> (&v)[2][N]) const {
    numbers_of(first, place, raw[0], v[0]);
    numbers_of(second, place, raw[1], v[1]);
  }
};

/// The most neighbouring elements, at most 8, that can be accessed at once from all of these
/// addresses on; null counts as aligned.
template <class... T>
int vec_elements(const T*... operands) {
  int most = kVecSize;
  const auto limit = [&most](uintptr_t address, uintptr_t size) {
    while (most > 1 && address % std::min(most * size, uintptr_t{16}) != 0) most /= 2;
  };
  (limit(reinterpret_cast<uintptr_t>(operands), sizeof(T)), ...);
  return most;
}

/// The most that a functor can take at once.
template <class Functor>
int most_elements(const Functor& functor) {
  int most = kVecSize;
  if constexpr (requires { int{functor.most_elements()}; }) {
    most = functor.most_elements();
    if (most < 1 || most > kVecSize || !std::has_single_bit(static_cast<unsigned>(most))) {
      fail(ExitCode::kInternal, "most_elements() of a functor is ", most, ", want 1, 2, 4 or 8");
    }
  } else {
    static_assert(sizeof(Functor) == 0,
                  "a functor does not say how many neighbouring elements it can take at once; add "
                  "'int most_elements() const', which returns 1, 2, 4 or 8");
  }
  if constexpr (kHasMatrix<Functor>) most = std::min(most, vec_elements(functor.matrix));
  return most;
}

/// The most elements that all functors can take at once in dense rows of `columns` columns.
template <class... Functors>
int row_vec_elements(int64_t columns, const Functors&... functors) {
  const int64_t of_columns = columns & -columns;
  return static_cast<int>(
      std::min({of_columns, int64_t{kVecSize}, int64_t{most_elements(functors)}...}));
}

}  // namespace bertha
