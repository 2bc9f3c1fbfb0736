#pragma once

#include <cstdint>

#include "harness/train/session.h"

namespace bertha {

/// Runs the given number of training steps and as many evaluation batches on synthetic data, so
/// that one-time work is done before the clock starts: libraries load their code, GEMMs choose
/// their algorithms, ranks connect, and a batch of longest sequences has shown that it fits into
/// memory. Reads no data. Leaves weights, moments and counters undefined: set them afterwards. A
/// stop signal on any rank ends it early. All ranks call it. Blocks: the host, until all work has
/// run.
///
/// Errors    Error(kUsage) for a vocabulary without the special ids.
void warm_up(Session& session, int64_t steps);

}  // namespace bertha
