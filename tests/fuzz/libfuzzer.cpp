// The entry points that clang's libFuzzer calls. It passes over options that begin with --, so that
// --target=NAME may stand among its own.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/base/log.h"
#include "tests/fuzz/fuzz_target.h"

namespace {
const bertha::fuzz::FuzzTarget* target = nullptr;
}  // namespace

extern "C" {

// The HDF5 library asks for any size that a file states, and bears with none.
const char* __asan_default_options() { return "allocator_may_return_null=1"; }

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--target=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view word = (*argv)[i];
    if (word.starts_with(kOption)) target = bertha::fuzz::find_target(word.substr(kOption.size()));
  }
  if (target == nullptr) {
    std::fprintf(stderr, "want --target=NAME, one of those that bertha_fuzz --list names\n");
    std::exit(2);
  }
  bertha::set_log_sink([](bertha::LogLevel, const std::string&) {});
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bertha::fuzz::execute(*target, std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  const size_t mutated = LLVMFuzzerMutate(data, size, max_size);
  if (target->repair == nullptr || seed % 8 == 0) return mutated;
  const std::string repaired =
      target->repair(std::string(reinterpret_cast<const char*>(data), mutated));
  if (repaired.size() > max_size) return mutated;
  std::memcpy(data, repaired.data(), repaired.size());
  return repaired.size();
}

}  // extern "C"
