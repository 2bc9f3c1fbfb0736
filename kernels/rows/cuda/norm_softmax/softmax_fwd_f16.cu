// The kernels of SoftmaxFwd for f16.

#include "kernels/rows/cuda/norm_softmax/softmax_fwd.cuh"

namespace bertha {

template void softmax_forward<__half>(CudaContext&, const SoftmaxFwd&, int64_t, int64_t);

}  // namespace bertha
