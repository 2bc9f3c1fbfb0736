#include "tests/cuda/wgmma_tiles.h"

#include "kernels/base/cuda/barrier.cuh"
#include "kernels/base/cuda/cuda_check.h"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/tensor_core/tensor_map.h"
#include "kernels/cuda/tensor_core/wgmma.cuh"

namespace bertha::testing {
namespace {

constexpr int kSide = 64;
constexpr int kTileElements = kSide * kSide;
constexpr uint32_t kTileBytes = kTileElements * 2;

/// Copies one box per tile and waits for them.
template <int kTiles>
__device__ void copy_tiles(unsigned char (&tiles)[kTiles][kTileBytes], uint64_t& barrier_memory,
                           const CUtensorMap* const (&maps)[kTiles], int row, int column) {
  const uint32_t barrier = shared_address(&barrier_memory);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(barrier, kTiles * kTileBytes);
    for (int i = 0; i < kTiles; ++i) {
      tma_load_2d(shared_address(tiles[i]), *maps[i], column, row, barrier);
    }
  }
  __syncthreads();
  mbarrier_wait(barrier, 0);
}

template <class T, Left kLeft, Inner kRight>
__global__ void __launch_bounds__(kWarpgroupThreads)
    product_kernel(const __grid_constant__ CUtensorMap left,
                   const __grid_constant__ CUtensorMap right, float* result) {
  __shared__ __align__(1024) unsigned char tiles[2][kTileBytes];
  __shared__ uint64_t barrier;
  copy_tiles(tiles, barrier, {&left, &right}, 0, 0);
  const uint32_t left_tile = shared_address(tiles[0]);
  const uint32_t right_tile = shared_address(tiles[1]);
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;

  float sum[32];
  uint32_t rows[4][4];
  for (int i = 0; i < 32; ++i) sum[i] = 1e9f;  // what the first product must not add to
  if constexpr (kLeft == Left::kRegisters) {
    for (int step = 0; step < 4; ++step) {
      ldmatrix_x4(rows[step], rows_first<kSide>(lane).at(left_tile, warp * 16, step));
    }
  }
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint64_t b = wgmma_tile<kRight>(right_tile, step);
    if constexpr (kLeft == Left::kRegisters) {
      wgmma_64x64x16<T, kRight>(sum, rows[step], b, step > 0);
    } else {
      constexpr Inner kInner = kLeft == Left::kShared ? Inner::kColumns : Inner::kRows;
      wgmma_64x64x16<T, kInner, kRight>(sum, wgmma_tile<kInner>(left_tile, step), b, step > 0);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  hold_registers(sum);
  for (int i = 0; i < 32; ++i) {
    const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    result[row * kSide + column] = sum[i];
  }
}

template <class T>
__global__ void box_kernel(const __grid_constant__ CUtensorMap map, int row, int column,
                           float* result) {
  __shared__ __align__(1024) unsigned char tiles[1][kTileBytes];
  __shared__ uint64_t barrier;
  copy_tiles(tiles, barrier, {&map}, row, column);
  for (int i = static_cast<int>(threadIdx.x); i < kTileElements; i += blockDim.x) {
    const uint32_t chunk = chunk_offset<kSide>(i / kSide, i % kSide / 8);
    result[i] = to_float(*reinterpret_cast<const T*>(tiles[0] + chunk + i % 8 * 2));
  }
}

/// Values of `T` on the device while this lives.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : bytes_(count * sizeof(T)) {
    BERTHA_CUDA_CHECK(cudaMalloc(&data_, bytes_));
  }
  explicit DeviceArray(const std::vector<float>& values) : DeviceArray(values.size()) {
    std::vector<T> narrow(values.size());
    for (size_t i = 0; i < values.size(); ++i) narrow[i] = static_cast<T>(values[i]);
    BERTHA_CUDA_CHECK(cudaMemcpy(data_, narrow.data(), bytes_, cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> download() const {
    std::vector<T> values(bytes_ / sizeof(T));
    BERTHA_CUDA_CHECK(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  size_t bytes_;
  T* data_ = nullptr;
};

template <class Work>
void dispatch_half(DType dtype, const Work& work) {
  if (dtype == DType::kF16) return work(TypeTag<__half>{});
  work(TypeTag<__nv_bfloat16>{});
}

}  // namespace

std::vector<float> wgmma_gemm(DType dtype, Left left_from, bool right_transposed,
                              const std::vector<float>& left, const std::vector<float>& right) {
  const DeviceArray<float> result(kTileElements);
  dispatch_half(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const DeviceArray<T> a(left);
    const DeviceArray<T> b(right);
    const CUtensorMap map_a = matrix_tensor_map(dtype, a.data(), kSide, kSide, kSide);
    const CUtensorMap map_b = matrix_tensor_map(dtype, b.data(), kSide, kSide, kSide);
    const auto launch = [&](auto kernel) {
      kernel<<<1, kWarpgroupThreads>>>(map_a, map_b, result.data());
      BERTHA_CUDA_CHECK(cudaGetLastError());
    };
    const auto with_left = [&](auto from) {
      constexpr Left kLeft = decltype(from)::value;
      if (right_transposed) return launch(product_kernel<T, kLeft, Inner::kRows>);
      launch(product_kernel<T, kLeft, Inner::kColumns>);
    };
    using std::integral_constant;
    switch (left_from) {
      case Left::kRegisters:
        return with_left(integral_constant<Left, Left::kRegisters>{});
      case Left::kShared:
        return with_left(integral_constant<Left, Left::kShared>{});
      case Left::kSharedTransposed:
        return with_left(integral_constant<Left, Left::kSharedTransposed>{});
    }
  });
  return result.download();
}

std::vector<float> copied_box(DType dtype, const std::vector<float>& matrix, int rows, int columns,
                              int row, int column) {
  const DeviceArray<float> result(kTileElements);
  dispatch_half(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const DeviceArray<T> values(matrix);
    const CUtensorMap map = matrix_tensor_map(dtype, values.data(), rows, columns, kSide);
    box_kernel<T><<<1, kWarpgroupThreads>>>(map, row, column, result.data());
    BERTHA_CUDA_CHECK(cudaGetLastError());
    BERTHA_CUDA_CHECK(cudaDeviceSynchronize());
  });
  return result.download();
}

}  // namespace bertha::testing
