// Copies for head sizes that are not multiples of 8: the kernels with tensor cores read 16 bytes of
// a head at once. Columns of zeros change neither scores nor what the other columns get.
//
// Bound by  bytes: each element is read and written once, by 2 or 4 bytes a thread.

#include "kernels/cuda/attention/padded_heads.h"

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/divide.h"
#include "kernels/cuda/attention/choice.h"

namespace bertha {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksOfSm = 8;

struct PaddedHeads {
  explicit PaddedHeads(const CudaContext& context) : memory(context.stream) {}
  ScratchMemory memory;
};

/// A thread has one column of every n-th head. Unit: one element, or two.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    copy_heads_kernel(const Unit* __restrict__ from, int from_width, Unit* __restrict__ to,
                      int to_width, int64_t heads) {
  const int heads_of_block = kThreads / to_width;
  const int column = static_cast<int>(threadIdx.x) % to_width;
  const int head_of_block = static_cast<int>(threadIdx.x) / to_width;
  wait_for_kernel_before();
  if (head_of_block >= heads_of_block) return;
  const int64_t stride = int64_t{gridDim.x} * heads_of_block;
#pragma unroll 4
  for (int64_t head = int64_t{blockIdx.x} * heads_of_block + head_of_block; head < heads;
       head += stride) {
    to[head * to_width + column] = column < from_width ? from[head * from_width + column] : Unit{0};
  }
}

template <class Unit>
void launch_copy(const CudaContext& context, const View& from, const View& to) {
  constexpr int64_t kElements = sizeof(Unit) / 2;
  const int64_t from_width = from.extent(from.rank - 1);
  const int64_t to_width = to.extent(to.rank - 1);
  const int64_t heads = to.elements() / to_width;
  const int64_t units = to_width / kElements;
  launch_dependent(context, copy_heads_kernel<Unit>,
                   {blocks_on(context, heads, kThreads / units, kBlocksOfSm), kThreads},
                   static_cast<const Unit*>(from.data), static_cast<int>(from_width / kElements),
                   static_cast<Unit*>(to.data), static_cast<int>(units), heads);
}

}  // namespace

void place_padded_heads(CudaContext& context, std::initializer_list<View*> views) {
  constexpr int64_t kAlignment = 256;
  int64_t bytes = 0;
  for (View* view : views) {
    int64_t& head_size = view->extents[static_cast<size_t>(view->rank - 1)];
    head_size = padded_head_size(head_size);
    bytes += round_up(view->bytes(), kAlignment);
  }
  auto* place = static_cast<char*>(context.state<PaddedHeads>().memory.take(bytes));
  for (View* view : views) {
    view->data = place;
    place += round_up(view->bytes(), kAlignment);
  }
}

void copy_heads(CudaContext& context, const View& from, const View& to) {
  const int64_t widths = from.extent(from.rank - 1) | to.extent(to.rank - 1);
  if (widths % 2 == 0) return launch_copy<uint32_t>(context, from, to);
  launch_copy<uint16_t>(context, from, to);
}

}  // namespace bertha
