// Softmax and log-softmax, forward. softmax_functors.cuh chooses kernels that read memory once.
//
// Bound by memory: 49,152 x 4,096 f16 take 200 us on an H200, 97 % of a copy of as many bytes
// (kernels/rows/measured/rows.md).

#include "kernels/base/cuda/operations.h"
#include "kernels/rows/cuda/norm_softmax/softmax_fwd.cuh"

namespace bertha {

template <>
void run_cuda(CudaContext& context, const SoftmaxFwd& args) {
  const int64_t columns = args.x.extent(args.x.rank - 1);
  const int64_t rows = args.x.elements() / columns;
  if (rows == 0) return;
  dispatch_floating(args.x.dtype,
                    [&]<class T>(TypeTag<T>) { softmax_forward<T>(context, args, rows, columns); });
}

}  // namespace bertha
