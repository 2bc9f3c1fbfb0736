#pragma once

#include "kernels/cuda/common/vec.cuh"
#include "kernels/cuda/norm_softmax/leaving_rows.cuh"
#include "kernels/cuda/norm_softmax/pivoted_moments.cuh"
#include "kernels/cuda/norm_softmax/plain_norm.cuh"
#include "kernels/cuda/norm_softmax/row_packs.cuh"

namespace bertha {

// LayerNorm forward of rows of whole octets of 16 bits that have a block each, on leaving_rows.cuh.
// Memory bounds it, at 96 to 98 % of a copy from 2,048 columns on: what counts are rows on their way,
// and so registers. gamma and beta come from the L1 cache for every row, behind its sums; loaded
// before them they left registers for fewer rows (8,192 columns 436 us for 389), a pack ahead of
// their use they made no difference.
//
// Measured at 16,384 columns (f16, 49,152 rows, H200): four packs of 512 threads 783 us, eight of 256
// as many, for two blocks instead of three 853, sixteen of 128 823. Rows by bulk copies
// (bulk_rows.cuh) 789 in four blocks, which leave a cache for gamma and beta, 891 in six; as bulk
// copies that then go to registers 771, and 610 for 591 at 12,288.

inline constexpr int64_t kMostLeavingNormColumns = 16'384;

template <class T>
struct LeavingNorm {
  using Element = T;
  static constexpr int kInputs = 1;
  const T* inputs[kInputs];  // x
  T* output;                 // y, may be x
  const T* gamma;            // null: 1
  const T* beta;             // null: 0
  float* mean;
  float* rstd;
  float epsilon;

  __device__ static uint32_t absent() { return 0; }

  template <class Rows>
  __device__ __forceinline__ void run(Rows& rows) const {
    constexpr int N = Rows::kPackElements;
    // Around the mean of 32 elements, which is at most sqrt(n / 32) deviations from that of all n: a
    // large mean costs nothing, and the variance loses at most a factor n / 32, of usual rows none.
    const float pivot =
        warp_sum(rows.element(static_cast<int>(threadIdx.x) % kWarpThreads)) / kWarpThreads;
    float sums[2] = {};  // of differences to it, and of their squares
    rows.for_packs([&](int p, auto& v) {
      if (!rows.has(p)) return;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float difference = v[0][i] - pivot;
        sums[0] += difference;
        sums[1] = fmaf(difference, difference, sums[1]);
      }
    });
    reduce_lanes(sums, kWarpThreads, Add());
    float part[2] = {};
    rows.meet(sums, part);
    reduce_lanes(part, Rows::kMeetingLanes, Add());
    const float per_column = 1.0f / static_cast<float>(rows.columns());
    const PivotedMoments row = pivoted_moments(part, per_column, epsilon);
    if (threadIdx.x == 0) {
      mean[blockIdx.x] = pivot + row.rest;
      rstd[blockIdx.x] = row.rstd;
    }
    const float shift = row.shift();
    rows.keep_packed();
    rows.for_packs([&](int p, auto& v) {
      if (!rows.has(p)) return;
      const Vec<T, kVecSize> factor = parameters(gamma, 1.0f, rows.column_of(p));
      const Vec<T, kVecSize> term = parameters(beta, 0.0f, rows.column_of(p));
      float y[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normalized = fmaf(v[0][i] - pivot, row.rstd, shift);
        y[i] = fmaf(normalized, element(factor, i), element(term, i));
      }
      rows.store(p, y);
    });
  }

 private:
  __device__ __forceinline__ static Vec<T, kVecSize> parameters(const T* from, float otherwise,
                                                                int column) {
    if (from != nullptr) return load_vec(from + column);
    const float values[kVecSize] = {otherwise, otherwise, otherwise, otherwise,
                                    otherwise, otherwise, otherwise, otherwise};
    return to_vec<T>(values);
  }
};

/// Rows of at most kMostLeavingNormColumns, of which there is at least one; all addresses of 16
/// bytes.
template <class T>
void launch_norm_leaving_forward(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                                 int64_t columns) {
  const auto norm = operation_of<LeavingNorm<T>>(p);
  if (columns <= 6 * kVecSize * kWarpThreads) {  // of a warp
    launch_leaving_rows<6, 32, 32>(context, norm, rows, columns);
  } else if (columns <= 8'192) {
    launch_leaving_rows<4, 256, 4>(context, norm, rows, columns);
  } else {
    launch_leaving_rows<4, 512, 3>(context, norm, rows, columns);
  }
}

}  // namespace bertha
