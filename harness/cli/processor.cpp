#include "harness/cli/processor.h"

#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include <cstring>

namespace bertha {
namespace {

struct Feature {
  const char* name;
  bool is_here;
};

}  // namespace

const char* missing_feature(const char* const* features) {
#ifdef __x86_64__
  __builtin_cpu_init();
  // The names that kernels/base/cpu/compiled_features.cpp may contain.
  const Feature known[] = {
    {"avx2", __builtin_cpu_supports("avx2") != 0},
    {"fma", __builtin_cpu_supports("fma") != 0},
    {"bmi2", __builtin_cpu_supports("bmi2") != 0},
    {"avx512f", __builtin_cpu_supports("avx512f") != 0},
    {"avx512cd", __builtin_cpu_supports("avx512cd") != 0},
    {"avx512bw", __builtin_cpu_supports("avx512bw") != 0},
    {"avx512dq", __builtin_cpu_supports("avx512dq") != 0},
    {"avx512vl", __builtin_cpu_supports("avx512vl") != 0},
    {"avx512ifma", __builtin_cpu_supports("avx512ifma") != 0},
    {"avx512vbmi", __builtin_cpu_supports("avx512vbmi") != 0},
    {"avx512vbmi2", __builtin_cpu_supports("avx512vbmi2") != 0},
    {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
    {"avx512bitalg", __builtin_cpu_supports("avx512bitalg") != 0},
    {"avx512vpopcntdq", __builtin_cpu_supports("avx512vpopcntdq") != 0},
    {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0},
    {"gfni", __builtin_cpu_supports("gfni") != 0},
#if __GNUC__ >= 12
    {"avx512fp16", __builtin_cpu_supports("avx512fp16") != 0},
#endif
  };
#elif defined(__aarch64__)
  const Feature known[] = {
      {"atomics", (getauxval(AT_HWCAP) & HWCAP_ATOMICS) != 0},
      {"sve", (getauxval(AT_HWCAP) & HWCAP_SVE) != 0},
      {"sve2", (getauxval(AT_HWCAP2) & HWCAP2_SVE2) != 0},
  };
#else
  const Feature known[] = {{"", false}};  // no names for other processors
#endif
  for (; *features != nullptr; ++features) {
    bool is_here = false;
    for (const Feature& feature : known) {
      if (std::strcmp(feature.name, *features) == 0) is_here = feature.is_here;
    }
    if (!is_here) return *features;
  }
  return nullptr;
}

}  // namespace bertha
