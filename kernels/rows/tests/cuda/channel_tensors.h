#pragma once

#include <vector>

#include "kernels/rows/tests/cuda/row_gpu.h"
#include "kernels/rows/tests/naive_channels.h"

namespace bertha::testing {

/// For kernels that cut aligned tensors into tiles of channels: one block per tile and more, tiles
/// of a plane, of vectors across two channels, and of columns; enough tiles to occupy the device,
/// whole and partial vectors, and columns that several blocks share.
inline const std::vector<ChannelsExtents> kTiledExtents = {
    {14, 2, 1024},  {70, 8, 49},  {37, 4, 12},   {50, 4, 10},   {3, 8, 9},     {2, 268, 12},
    {2, 140, 8},    {9, 800, 1},  {1100, 16, 1}, {530, 64, 1},  {70, 128, 48}, {37, 132, 50},
    {450, 104, 9},  {9, 264, 15}, {3, 512, 9},   {1100, 49, 1}, {40, 128, 98}, {250, 192, 1},
    {1100, 128, 1}, {1, 128, 1},  {6700, 64, 1}};
/// Too long for tiles: many columns, one plane in more pieces than there are splits, the same of an
/// odd number of elements, pieces of several planes.
inline const std::vector<ChannelsExtents> kLongExtents = {
    {17, 8456, 1}, {1, 1, 8500000}, {1, 1, 4300001}, {1030, 2, 2056}};

inline HostTensor<float> garbage_like(const ChannelsExtents& e) {
  return garbage_tensor({e.outer, e.channels, e.inner});
}

}  // namespace bertha::testing
