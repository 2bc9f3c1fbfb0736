#include "harness/train/loss_jump.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bertha {

std::optional<LossJump> add_losses(UsualLoss& usual, const LossStats& losses, bool ends_record,
                                   int64_t classes) {
  if (std::isfinite(losses.mlm_loss_sum)) {
    usual.open_sum += losses.mlm_loss_sum;
    usual.open_masked += losses.mlm_count;
  }
  if (!ends_record || usual.open_masked == 0) return std::nullopt;
  const double loss =
      std::exchange(usual.open_sum, 0.0) / static_cast<double>(std::exchange(usual.open_masked, 0));
  const double most = kJumpOfGuessing * std::log(static_cast<double>(classes));
  const LossJump jump{.loss = loss, .usual = usual.mean};
  const bool is_known = usual.records >= kLossesRemembered;
  if (!is_known) ++usual.records;
  const double above = loss - usual.mean;
  usual.mean += (is_known ? std::min(above, most) : above) / static_cast<double>(usual.records);
  if (!is_known || above <= most) return std::nullopt;
  return jump;
}

}  // namespace bertha
