#include "kernels/base/cpu/cpu_devices.h"

namespace bertha {

// Features in which servers' processors differ. BERTHA_NATIVE is an option of this folder alone, so
// only here the compiler defines which features it may use.
const char* const kCompiledFeatures[] = {
#ifdef __AVX2__
    "avx2",
#endif
#ifdef __FMA__
    "fma",
#endif
#ifdef __BMI2__
    "bmi2",
#endif
#ifdef __AVX512F__
    "avx512f",
#endif
#ifdef __AVX512CD__
    "avx512cd",
#endif
#ifdef __AVX512BW__
    "avx512bw",
#endif
#ifdef __AVX512DQ__
    "avx512dq",
#endif
#ifdef __AVX512VL__
    "avx512vl",
#endif
#ifdef __AVX512IFMA__
    "avx512ifma",
#endif
#ifdef __AVX512VBMI__
    "avx512vbmi",
#endif
#ifdef __AVX512VBMI2__
    "avx512vbmi2",
#endif
#ifdef __AVX512VNNI__
    "avx512vnni",
#endif
#ifdef __AVX512BITALG__
    "avx512bitalg",
#endif
#ifdef __AVX512VPOPCNTDQ__
    "avx512vpopcntdq",
#endif
#ifdef __AVX512BF16__
    "avx512bf16",
#endif
#ifdef __GFNI__
    "gfni",
#endif
#if defined(__AVX512FP16__) && __GNUC__ >= 12  // older compilers cannot ask the processor for it
    "avx512fp16",
#endif
#ifdef __ARM_FEATURE_ATOMICS
    "atomics",
#endif
#ifdef __ARM_FEATURE_SVE
    "sve",
#endif
#ifdef __ARM_FEATURE_SVE2
    "sve2",
#endif
    nullptr};

}  // namespace bertha
