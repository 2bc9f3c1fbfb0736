#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "kernels/device.h"

namespace bertha {

// Kernels for `bertha bench gains` alone: ways of the sources that no operation of the product
// takes, each beside the product's way in the same kernel. Enqueued on a stream of a CUDA device.
// A build without CUDA has them too, and they fail: Error(kInternal).

enum class AtomicAdds : uint8_t { kSingle, kPairs };  // kPairs: of 16 bits

/// table[ids[t]] += rows[t] by atomic adds, each rounded to the dtype of the table.
struct AtomicRowAdds {
  View rows;   // f16 or bf16 [T, H], H % 8 == 0
  View ids;    // i32 [T] in [0, V)
  View table;  // the dtype of rows or, with kSingle, f32 [V, H]
  AtomicAdds adds = AtomicAdds::kPairs;
};
void run_gain_kernel(const AtomicRowAdds& args, Stream& stream);

/// What backward knows the positive elements of a ReLU by.
enum class KeptSigns : uint8_t {
  kOutput,  // y itself
  kBytes,   // a byte per element
  kBallot,  // bits that warps collect: bit l of word i is element i of the vector of lane l
  kBits,    // bits, a byte per vector of eight elements: the product's
};

/// BatchNorm + ReLU and its gradient as two passes over vectors, where the sums over channels are
/// known: y = max(0, c0 x + c1), then dx = c2 g + c3 x + c4 with g = dy where y > 0, else 0.
struct BatchNormReluPasses {
  View x;          // f16 or bf16 [N, C, S], S % 8 == 0, N * C * S % 256 == 0
  View constants;  // f32 [5, C]
  View y;          // the dtype of x [N, C, S] out
  View dy;         // the dtype of x [N, C, S]
  View dx;         // the dtype of x [N, C, S] out
  View mask;       // u8 [N * C * S] for kBytes, else [N * C * S / 8]; out, unused with kOutput
  KeptSigns kept = KeptSigns::kBits;
};
void run_gain_kernel(const BatchNormReluPasses& args, Stream& stream);

}  // namespace bertha
