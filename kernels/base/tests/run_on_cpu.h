#pragma once

#include "kernels/base/cpu/operations.h"

namespace bertha {

/// Validates the arguments and runs their operation in so many threads.
template <class Args>
void run_on_cpu(const Args& args, int threads = 1) {
  validate(args);
  WorkerPool pool(threads);
  run_cpu(pool, args);
}

}  // namespace bertha
