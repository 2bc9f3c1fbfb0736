// Sum of squares in f64 by cub::DeviceReduce. The order of its additions depends on the count and
// the GPU alone, so results repeat bit for bit.
//
// Bound by  memory: 2 (f16, bf16) or 4 bytes per element.

#include <thrust/iterator/tabulate_output_iterator.h>

#include <cub/device/device_reduce.cuh>

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/types.cuh"
#include "kernels/ops/reductions.h"

namespace bertha {
namespace {

template <class T>
struct Square {
  __device__ double operator()(T value) const {
    const double wide = static_cast<double>(to_float(value));
    return wide * wide;
  }
};

/// Where the reduction writes its result.
struct StoreSum {
  double* result;
  bool accumulate;
  __device__ void operator()(int64_t, double sum) const {
    *result = (accumulate ? *result : 0.0) + sum;
  }
};

}  // namespace

template <>
void run_cuda(CudaContext& context, const SumOfSquares& args) {
  const auto result = thrust::make_tabulate_output_iterator(
      StoreSum{args.result.as<double>(), args.accumulate == Accumulate::kYes});
  dispatch_io(args.values.dtype, [&]<class T>(TypeTag<T>) {
    const auto reduce = [&](void* scratch, size_t& bytes) {
      BERTHA_CUDA_CHECK(cub::DeviceReduce::TransformReduce(
          scratch, bytes, static_cast<const T*>(args.values.data), result, args.values.elements(),
          cuda::std::plus<>{}, Square<T>{}, 0.0, context.stream));
    };
    size_t bytes = 0;
    reduce(nullptr, bytes);
    reduce(context.scratch.take(static_cast<int64_t>(bytes)), bytes);
  });
}

}  // namespace bertha
