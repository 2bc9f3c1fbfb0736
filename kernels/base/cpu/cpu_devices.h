#pragma once

#include <memory>

#include "kernels/base/device.h"

namespace bertha {

/// The reference backend: plain loops, f32 storage (row operations also f64), f64 for long sums,
/// OpenBLAS GEMMs. Other backends are tested against it; it is the default without a GPU.
///
/// Threads   work of one operation is spread over `threads` threads, 1 to 4096, which end with the
///           device; results do not depend on their number.
std::unique_ptr<Device> make_cpu_device(int threads);

/// Instruction sets beyond plain x86-64 or ARMv8 that these operations were compiled to, by GCC's
/// names (Linux's on ARM) and with null at the end; none without BERTHA_NATIVE. A processor that
/// lacks one ends the program (SIGILL).
extern const char* const kCompiledFeatures[];

}  // namespace bertha
