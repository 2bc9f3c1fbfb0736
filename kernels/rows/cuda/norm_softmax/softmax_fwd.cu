// Softmax and log-softmax, forward.
//
// Rows of 16 bits stay in the registers of a warp (up to 1,024 columns, single elements up to 544)
// or of a block (8,192), or in shared memory (TMA); see softmax_rows.cuh. All others, also wider
// rows with a dropout, are done by generic_rows.cuh. Both read memory once: at 3,686 x 30,522 bf16
// a row takes 61 KiB of shared memory. softmax_functors.cuh dispatches these calls, as it does
// functors.
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
  dispatch_floating(args.x.dtype, [&]<class T>(TypeTag<T>) {
    dispatch_kind(args.kind,
                  [&](auto kind) { softmax_forward<T, kind()>(context, args, rows, columns); });
  });
}

}  // namespace bertha
