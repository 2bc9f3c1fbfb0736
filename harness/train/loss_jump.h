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

/// Adds losses to the open record, and where that ends here, to what is usual: at most as the
/// largest that is no jump. Returns the jump that it is. Losses that are not finite are no jump and
/// are not taken in: the gradient shows them.
std::optional<LossJump> add_losses(UsualLoss& usual, const LossStats& losses, bool ends_record,
                                   int64_t classes);

}  // namespace bertha
