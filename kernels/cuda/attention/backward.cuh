#pragma once

#include "kernels/cuda/attention/tile.cuh"

namespace bertha {

// Shared by the two kernels of the tensor-core backward.

// Rows of the inner tile whose scores are in registers at once.
inline constexpr int kSlice = 32;
inline constexpr int kSlices = kInnerRows / kSlice;

/// The place of a head in the interleaved tensors.
template <class Shape>
struct HeadPointers {
  using T = typename Shape::T;
  int head_size;
  int qkv_stride;
  int out_stride;
  const T* query;
  const T* key;
  const T* value;
  const T* out;
  const T* dout;
  T* dquery;
  T* dkey;
  T* dvalue;
  const float* lse;
  float* delta;

  __device__ __forceinline__ HeadPointers(const AttentionBwdParams& params,
                                          const HeadOfSequence& at) {
    head_size = params.batch.head_size;
    const int width = params.batch.heads * head_size;
    qkv_stride = 3 * width;
    out_stride = width;
    const int64_t in_qkv = at.begin * qkv_stride + at.head * head_size;
    const int64_t in_out = at.begin * out_stride + at.head * head_size;
    query = static_cast<const T*>(params.qkv) + in_qkv;
    key = query + width;
    value = key + width;
    dquery = static_cast<T*>(params.dqkv) + in_qkv;
    dkey = dquery + width;
    dvalue = dkey + width;
    out = static_cast<const T*>(params.out) + in_out;
    dout = static_cast<const T*>(params.dout) + in_out;
    lse = params.lse + at.head * params.batch.tokens + at.begin;
    delta = params.delta + at.head * params.batch.tokens + at.begin;
  }
};

}  // namespace bertha
