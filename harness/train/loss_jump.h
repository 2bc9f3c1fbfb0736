#pragma once

#include <cstdint>
#include <optional>

#include "harness/checkpoint/checkpoint.h"
#include "harness/model/bert.h"

namespace bertha {

/// A record whose loss of masked tokens is more than this part of what guessing costs, the
/// logarithm of the number of classes, above the usual one. A mean over m masked tokens is
/// uncertain by about 2.5 / sqrt(m), and the part is 2.6 for 30,522 classes.
inline constexpr double kJumpOfGuessing = 0.25;
/// The usual loss is a mean over about as many records; before that many nothing is a jump.
inline constexpr int64_t kLossesRemembered = 8;

struct LossJump {
  double loss = 0;   // of masked tokens, over a record
  double usual = 0;  // before it
};

/// Adds losses to the open record, and if it ends here, adds its mean to the usual loss, counting
/// at most as the largest loss that is not a jump. Returns the jump, if it is one. Losses that are
/// not finite are not a jump and are left out: the gradient shows them.
std::optional<LossJump> add_losses(UsualLoss& usual, const LossStats& losses, bool ends_record,
                                   int64_t classes);

}  // namespace bertha
