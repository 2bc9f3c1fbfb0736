#pragma once

#include <cstdint>
#include <functional>

namespace bertha {

/// Thrown by work that stops because other work failed; for_each_parallel swallows it.
struct Cancelled {};

/// Calls work(index, cancelled) for index in [0, count), in increasing order of start, on
/// `workers` threads (0 = one per processor). After a failure nothing new starts, and work under
/// way may ask `cancelled` and throw Cancelled. The first failure is rethrown.
void for_each_parallel(
    int64_t count, int workers,
    const std::function<void(int64_t index, const std::function<bool()>& cancelled)>& work);

}  // namespace bertha
