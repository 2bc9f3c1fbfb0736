#pragma once

#include "kernels/cuda/common/row_team.cuh"

namespace bertha {

/// As RowRing, for rows at any addresses; a row that is not live reads as zeros. Dynamic shared
/// memory of `pipeline_bytes`.
template <class Shape, int kTensors, int kStages>
class RowPipeline {
 public:
  using T = typename Shape::Element;
  static constexpr int kRows = Shape::kRows;
  static constexpr int kWords = Vec<T, kVecSize>::kWords / 4;  // of 16 bytes

  __device__ explicit RowPipeline(uint4* shared) : slots_(shared + threadIdx.x) {}

  /// Starts the copies of batch `turn`: from(tensor, r) points to the thread's vector of row r, and
  /// where live(r) is false zeros are stored.
  template <class From, class Live>
  __device__ __forceinline__ void request(int turn, const From& from, const Live& live) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool present = live(r);
#pragma unroll
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        const uint4* source = reinterpret_cast<const uint4*>(from(tensor, r));
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          uint4* target = slot(turn, tensor, r, word);
          if (present) {
            __pipeline_memcpy_async(target, source + word, 16);
          } else {
            *target = make_uint4(0, 0, 0, 0);
          }
        }
      }
    }
  }
  /// The same for rows [first, first + kRows) of matrices of `rows` rows, zeros for those beyond,
  /// and closes the batch.
  __device__ __forceinline__ void request_rows(const RowTeam<Shape>& team, int turn, int64_t first,
                                               int64_t rows, const T* const (&from)[kTensors]) {
    if (team.block_has(first, rows)) {
      request(
          turn,
          [&](int tensor, int r) {
            return from[tensor] + (team.has(first, r, rows) ? team.at(first + r) : 0);
          },
          [&](int r) { return team.has(first, r, rows); });
    }
    commit();
  }
  /// Requests a team's first batches, as many as are in flight while one is processed.
  __device__ __forceinline__ void start(const RowTeam<Shape>& team, int64_t rows,
                                        const T* const (&from)[kTensors]) {
    for (int turn = 0; turn < kStages - 1; ++turn) {
      request_rows(team, turn, team.first_row + turn * team.row_stride, rows, from);
    }
  }
  /// Closes the copies of a batch, also of one beyond the last row.
  __device__ __forceinline__ void commit() { __pipeline_commit(); }
  /// Waits for the oldest batch.
  __device__ __forceinline__ void wait() { __pipeline_wait_prior(kStages - 1); }

  __device__ __forceinline__ Vec<T, kVecSize> read(int turn, int tensor, int r) const {
    Vec<T, kVecSize> vec;
#pragma unroll
    for (int word = 0; word < kWords; ++word) set_words(vec, word, *slot(turn, tensor, r, word));
    return vec;
  }

 private:
  __device__ __forceinline__ uint4* slot(int turn, int tensor, int r, int word) const {
    const int index = ((turn % kStages * kTensors + tensor) * kRows + r) * kWords + word;
    return slots_ + index * (Shape::kFixed ? Shape::kMostThreads : static_cast<int>(blockDim.x));
  }
  uint4* slots_;
};

/// Stages of a pipeline that has `wanted` of them on sm_90a. Elsewhere wide rows of f32 have one,
/// for 99 KiB of shared memory.
template <class Shape>
__host__ __device__ constexpr int pipeline_stages(int wanted, bool is_sm90a_code) {
  return is_sm90a_code || Shape::kFixed || sizeof(typename Shape::Element) == 2 ? wanted : 1;
}

/// `wanted`: stages on sm_90a.
template <class Shape, int kTensors>
int pipeline_bytes(const CudaContext& context, int wanted, int64_t columns) {
  const int stages = pipeline_stages<Shape>(wanted, context.device.has_sm90a_code());
  return stages * kTensors * Shape::kRows * RowPipeline<Shape, kTensors, 1>::kWords * 16 *
         static_cast<int>(team_threads<Shape>(columns));
}

}  // namespace bertha
