#pragma once

#include <initializer_list>

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/base/view.h"

namespace bertha {

/// Gives the views memory for heads of padded_head_size(): their last axis becomes so wide.
/// Contents are undefined; valid until the next call.
void place_padded_heads(CudaContext& context, std::initializer_list<View*> views);

/// Copies heads of 16-bit elements between tensors that differ in the last axis: further columns
/// become zeros, columns that `to` lacks are left out.
void copy_heads(CudaContext& context, const View& from, const View& to);

}  // namespace bertha
