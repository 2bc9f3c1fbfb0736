#pragma once

#include <cstdint>

#include "harness/train/session.h"

namespace bertha {

/// Runs that many training steps and as many evaluation batches on made-up data, so that what
/// happens once has happened when the clock starts: libraries load their code, GEMMs choose
/// their algorithms, ranks connect, and a batch of longest sequences has shown that it fits into
/// memory. Reads no data. Weights, moments and counters are whatever it left: set them afterwards.
/// A signal that asks for a stop on any rank ends it early. All ranks call it. Blocks: the host,
/// until all of it has run.
///
/// Errors    Error(kUsage) for a vocabulary without the special ids.
void warm_up(Session& session, int64_t steps);

}  // namespace bertha
