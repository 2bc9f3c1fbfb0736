#pragma once

#include <dlfcn.h>

/// The function that is called where this library is not loaded; of the second argument's type.
template <class Function>
Function* real(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Counts a call of a kind (FAIL_WHAT of failing_calls.cpp). Returns whether it has to fail; does
/// not return where it ends the process or stands still. Of C: failing_cuda.cpp looks it up.
extern "C" bool must_fail(const char* kind, const char* name);
