#pragma once

#include "kernels/base/cuda/dropout.cuh"
#include "kernels/base/cuda/row_team.cuh"

namespace bertha {

// LayerNorm of the rows that a team holds in registers, shared by layer_norm, residual_ln and
// embedding.

struct RowStatistics {
  float mean;
  float rstd;  // 1 / standard deviation
};

/// Mean and rstd of the team's rows, in every thread; stored at mean[first ..), rstd[first ..).
/// Threads outside have zeros.
///
/// Exact     two-pass inside each warp; the warps' sums of squares are then combined as by
///           Chan, Golub and LeVeque (1979): as exact as a second pass, with one barrier.
template <class Shape>
__device__ __forceinline__ void row_statistics(
    const RowTeam<Shape>& team, const float (&values)[Shape::kRows][kVecSize], float epsilon,
    TeamExchange<Shape, 2 * Shape::kRows>& exchange, int turn, int first, int rows, float* mean_out,
    float* rstd_out, RowStatistics (&statistics)[Shape::kRows]) {
  constexpr int kRows = Shape::kRows;
  constexpr int kLanes = kWarpThreads / kRows;
  const auto columns_of = [&](int warp) {
    if constexpr (Shape::kFixed) return static_cast<float>(kWarpColumns);
    const int left = static_cast<int>(team.columns) - warp * kWarpColumns;
    return static_cast<float>(left < kWarpColumns ? left : kWarpColumns);
  };
  float partial[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    partial[r] = 0.0f;
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) partial[r] += values[r][i];
  }
  const float sum = warp_sums<kRows>(partial, team.lane);
  const float warp_mean = sum / columns_of(team.warp);
  float squares[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float mean = __shfl_sync(kFullWarp, warp_mean, r * kLanes);
    squares[r] = 0.0f;
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const float difference = values[r][i] - mean;
      squares[r] = fmaf(difference, difference, squares[r]);
    }
    if (!team.inside) squares[r] = 0.0f;
  }
  const float sum_of_squares = warp_sums<kRows>(squares, team.lane);

  // From here on a lane works for one row, and broadcasts the result.
  RowStatistics own;
  int own_lane;  // first lane that works on row 0; row 1 follows at own_step
  int own_step;
  if constexpr (Shape::kFixed && Shape::kWarps == 1) {
    own = {warp_mean, rsqrtf(sum_of_squares * team.per_column() + epsilon)};
    own_lane = team.lane % kLanes == 0 ? team.lane / kLanes : kWarpThreads;
    own_step = kLanes;
  } else {
    float(&parts)[Shape::kMostWarps][2 * kRows] = exchange.values[turn % 2][team.team];
    if (team.lane % kLanes == 0) {
      parts[team.warp][team.lane / kLanes] = sum;
      parts[team.warp][kRows + team.lane / kLanes] = sum_of_squares;
    }
    team.sync();
    const int row = team.lane % kRows;
    const int warps = Shape::kFixed ? Shape::kWarps : team.warps;
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) total += parts[warp][row];
    own.mean = total * team.per_column();
    float variance = 0.0f;
#pragma unroll
    for (int warp = 0; warp < warps; ++warp) {
      const float count = columns_of(warp);
      const float difference = parts[warp][row] / count - own.mean;
      variance += fmaf(count * difference, difference, parts[warp][kRows + row]);
    }
    own.rstd = rsqrtf(variance * team.per_column() + epsilon);
    own_lane = team.lane;
    own_step = 1;
  }
  if (team.warp == 0 && own_lane < kRows && first + own_lane < rows) {
    mean_out[first + own_lane] = own.mean;
    rstd_out[first + own_lane] = own.rstd;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    statistics[r] = {__shfl_sync(kFullWarp, own.mean, r * own_step),
                     __shfl_sync(kFullWarp, own.rstd, r * own_step)};
  }
}

/// Element i of a Vec that is unpacked already.
template <int N>
__device__ __forceinline__ float element(const float (&numbers)[N], int i) {
  return numbers[i];
}

/// A vector's part of a row's sums of g = dy * gamma and of g * (x - mean), and of the column sums.
/// x and gamma are Vecs or numbers.
template <class X, class Gamma>
__device__ __forceinline__ void add_gradient_sums(const float (&dy)[kVecSize], const X& x,
                                                  const Gamma& gamma, RowStatistics row,
                                                  float (&sums)[2], float (&dgamma)[kVecSize],
                                                  float (&dbeta)[kVecSize]) {
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
    // Times rstd. mean * rstd, rounded, would cost a row far from 0 its digits.
    const float of_gamma = dy[i] * (element(x, i) - row.mean);
    sums[0] = fmaf(dy[i], element(gamma, i), sums[0]);
    sums[1] = fmaf(of_gamma, element(gamma, i), sums[1]);
    dgamma[i] = fmaf(of_gamma, row.rstd, dgamma[i]);
    dbeta[i] += dy[i];
  }
}

/// The sums of a row's gradient: mean(g) and mean(g * n), with g = dy * gamma and
/// n = (x - mean) * rstd; then dx = rstd * (g - mean(g) - n * mean(g * n)).
template <class Shape>
struct NormGradientSums {
  static constexpr int kRows = Shape::kRows;

  /// The thread's part of row r; adds its part of the column sums dgamma and dbeta.
  /// x is a Vec or numbers.
  template <class X, class Parameter>
  __device__ __forceinline__ void add_row(int r, const float (&dy)[kVecSize], const X& x,
                                          const Vec<Parameter, kVecSize>& gamma, RowStatistics row,
                                          float (&dgamma)[kVecSize], float (&dbeta)[kVecSize]) {
    float sums[2] = {};
    add_gradient_sums(dy, x, gamma, row, sums, dgamma, dbeta);
    values[2 * r] = sums[0];
    values[2 * r + 1] = sums[1] * row.rstd;
  }

  __device__ __forceinline__ void reduce(const RowTeam<Shape>& team,
                                         TeamExchange<Shape, 2 * kRows>& exchange, int turn) {
    team_sums(team, values, exchange, turn, team.per_column());
  }

  /// After `reduce`.
  template <class X, class Parameter>
  __device__ __forceinline__ void gradient(int r, const float (&dy)[kVecSize], const X& x,
                                           const Vec<Parameter, kVecSize>& gamma, RowStatistics row,
                                           float (&dx)[kVecSize]) const {
    const float slope = -row.rstd * row.rstd * values[2 * r + 1];
    const float constant = -fmaf(row.mean, slope, row.rstd * values[2 * r]);
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const float g = dy[i] * element(gamma, i);
      dx[i] = fmaf(g, row.rstd, fmaf(element(x, i), slope, constant));
    }
  }

  float values[2 * kRows] = {};
};

/// Draws the dropout of the team's rows, saves it in `mask` (u8 [rows, columns / 8]) and stores
/// the thread's eight bits in kept[r]. `drawn` is the thread's state between turns: a warp draws
/// for enough batches at once to give each lane a word. drawn_rows: see
/// ResidualLnFwd::dropout_rows; may be null.
template <class Shape>
__device__ __forceinline__ void draw_kept(const RowTeam<Shape>& team, int turn, int first_row,
                                          int rows, const DeviceDropout& dropout, uint64_t seed,
                                          uint64_t step, uint8_t* mask, uint32_t& drawn,
                                          uint32_t (&kept)[Shape::kRows],
                                          const int32_t* drawn_rows = nullptr) {
  constexpr int kRows = Shape::kRows;
  constexpr int kGroups = kWarpColumns / kDropoutGroup;  // per warp and row
  constexpr int kVecs = kDropoutGroup / kVecSize;        // per group
  if constexpr (Shape::kFixed) {
    constexpr int kBatches = kWarpThreads / (kRows * kGroups);
    const int batch = turn % kBatches;
    if (batch == 0) {
      const int own = team.lane / kGroups;
      const int row = first_row + own / kRows * team.row_stride + own % kRows;
      if (row < rows) {
        const auto group_of = [&](int of_row) {
          return static_cast<int64_t>(of_row) * (Shape::kWarps * kGroups) + team.warp * kGroups +
                 team.lane % kGroups;
        };
        const int drawn_row = drawn_rows == nullptr ? row : drawn_rows[row];
        drawn = drawn_bits(seed, step, dropout.site, group_of(drawn_row), dropout.threshold);
        reinterpret_cast<uint32_t*>(mask)[group_of(row)] = drawn;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int from = (batch * kRows + r) * kGroups + team.lane / kVecs;
      kept[r] = __shfl_sync(kFullWarp, drawn, from) >> (team.lane % kVecs * kVecSize);
    }
  } else {
    // Groups may begin in one row and end in the next: each thread draws for itself.
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!team.inside || first_row + r >= rows) continue;
      const int row = first_row + r;
      const int drawn_row =
          drawn_rows == nullptr ? row : max(drawn_rows[row], 0);  // a part of a group from 0 on
      const int64_t vec = team.at(drawn_row) / kVecSize;
      const uint32_t word = drawn_bits(seed, step, dropout.site, vec / kVecs, dropout.threshold);
      kept[r] = word >> (vec % kVecs * kVecSize);
      mask[team.at(row) / kVecSize] = static_cast<uint8_t>(kept[r]);
    }
  }
}

/// What forward saved of a batch's rows besides the rows, in two registers per thread: loaded a
/// batch ahead, and broadcast within the warp when it is needed.
template <class Shape>
struct SavedRows {
  static constexpr int kRows = Shape::kRows;
  static constexpr int kGroups = kWarpColumns / kDropoutGroup;

  __device__ __forceinline__ void load(const RowTeam<Shape>& team, int first, int rows,
                                       const float* mean, const float* rstd, const uint8_t* mask) {
    statistic = 0.0f;
    const int row = team.lane % kRows;
    if (team.lane < 2 * kRows && first + row < rows) {
      statistic = (team.lane < kRows ? mean : rstd)[first + row];
    }
    bits = ~0u;
    // One condition without an early return: a predicated load, which the compiler can move.
    if constexpr (Shape::kFixed) {
      const int bit_row = first + team.lane / kGroups;
      const int64_t group = static_cast<int64_t>(bit_row) * (Shape::kWarps * kGroups) +
                            team.warp * kGroups + team.lane % kGroups;
      if (mask != nullptr && team.lane < kRows * kGroups && bit_row < rows) {
        bits = __ldcs(reinterpret_cast<const uint32_t*>(mask) + group);
      }
    } else if (mask != nullptr && team.has(first, 0, rows)) {
      bits = __ldcs(mask + team.at(first) / kVecSize);
    }
  }
  __device__ __forceinline__ RowStatistics statistics(int r) const {
    return {__shfl_sync(kFullWarp, statistic, r), __shfl_sync(kFullWarp, statistic, kRows + r)};
  }
  __device__ __forceinline__ void statistics_of_all(RowStatistics (&to)[kRows]) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) to[r] = statistics(r);
  }
  /// The thread's eight bits of row r.
  __device__ __forceinline__ uint32_t kept(const RowTeam<Shape>& team, int r) const {
    if constexpr (!Shape::kFixed) return bits;
    const uint32_t word =
        __shfl_sync(kFullWarp, bits, r * kGroups + team.lane / (kDropoutGroup / kVecSize));
    return word >> (team.lane % (kDropoutGroup / kVecSize) * kVecSize);
  }

  float statistic;  // lane r: mean of row r; lane kRows + r: its rstd
  uint32_t bits;    // bits of the mask
};

__device__ __forceinline__ bool is_set(uint32_t bits, int bit) { return ((bits >> bit) & 1u) != 0; }

}  // namespace bertha
