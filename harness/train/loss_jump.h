#pragma once

#include <cstdint>
#include <optional>

#include "harness/checkpoint/checkpoint.h"
#include "harness/model/bert.h"

namespace bertha {

/// A jump is a record whose masked-token loss exceeds the usual one by this fraction of the loss of
/// guessing, the logarithm of the number of classes. A mean over m masked tokens is uncertain by
/// about 2.5 / sqrt(m), and the threshold is 2.6 for 30,522 classes.
inline constexpr double kJumpOfGuessing = 0.25;
/// The usual loss is a mean over about this many records; earlier ones are never a jump.
inline constexpr int64_t kLossesRemembered = 8;

struct LossJump {
  double loss = 0;   // masked-token loss of the record
  double usual = 0;  // usual loss before it
};

/// Adds losses to the open record and, if it ends here, adds its mean to the usual loss, limited to
/// the largest loss that is not a jump. Returns the jump, if it is one. Losses that are not finite
/// are not a jump and are left out: the gradient shows them.
std::optional<LossJump> add_losses(UsualLoss& usual, const LossStats& losses, bool ends_record,
                                   int64_t classes);

}  // namespace bertha
