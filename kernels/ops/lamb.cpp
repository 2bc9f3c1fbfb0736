#include "kernels/ops/lamb.h"

#include "kernels/base/check.h"

namespace bertha {
namespace {

void check_state(const ArgumentCheck& check, const View& state) {
  check.view("state", state, DType::kU8, {sizeof(LambState)});
}

void check_beta(const ArgumentCheck& check, const char* field, double beta) {
  if (!(beta >= 0.0 && beta < 1.0)) check.refuse(field, "= ", beta, ", want a value in [0, 1)");
}

/// Zero is a meaningful value; NaN is refused too.
void check_not_negative(const ArgumentCheck& check, const char* field, double value) {
  if (!(value >= 0.0)) check.refuse(field, "= ", value, ", want 0 or more");
}

void check_norms(const ArgumentCheck& check, const View& norms) {
  check.rank("norms", norms, 2);
  check.view("norms", norms, DType::kF64, {norms.extent(0), 2});
}

void check_segments(const ArgumentCheck& check, std::span<const LambSegment> segments,
                    int64_t tensors, int64_t elements) {
  int64_t free_from = 0;
  for (const LambSegment& segment : segments) {
    if (segment.tensor < 0 || segment.tensor >= tensors) {
      check.refuse("segments", "name tensor ", segment.tensor, ", want one below ", tensors);
    }
    if (segment.begin < free_from || segment.begin > segment.end || segment.end > elements) {
      check.refuse("segments", "contain [", segment.begin, ", ", segment.end, ") after element ",
                   free_from, " of a shard with ", elements,
                   ", want them ascending, without overlap and inside the shard");
    }
    free_from = segment.end;
  }
}

void check_rules(const ArgumentCheck& check, const LambMomentsRules& rules) {
  check_beta(check, "beta_1", rules.beta_1);
  check_beta(check, "beta_2", rules.beta_2);
  check.positive("epsilon", rules.epsilon);
  check_not_negative(check, "weight_decay", rules.weight_decay);
}

/// Step: LambStep or AdamWStep.
template <class Step>
void check_step(const ArgumentCheck& check, const Step& args, int64_t tensors) {
  const int64_t elements = args.gradient.elements();
  check.io("gradient", args.gradient);
  check.views({{"gradient", args.gradient}, {"model_weight", args.model_weight}},
              args.gradient.dtype, {elements});
  check.views({{"weight", args.weight}, {"m", args.m}, {"v", args.v}}, DType::kF32, {elements});
  check_state(check, args.state);
  check_segments(check, args.segments, tensors, elements);
  check_rules(check, args.rules);
}

}  // namespace

void validate(const LambPrepare& args) {
  const ArgumentCheck check(LambPrepare::kName);
  check_state(check, args.state);
  check.view("gradient_sum_of_squares", args.gradient_sum_of_squares, DType::kF64, {1});
  const LambPrepareRules& rules = args.rules;
  check_beta(check, "beta_1", rules.beta_1);
  check_beta(check, "beta_2", rules.beta_2);
  check_not_negative(check, "max_gradient_norm", rules.max_gradient_norm);
  check.finite("schedule.base", rules.schedule.base);
  check.at_least("schedule.total_steps", rules.schedule.total_steps, 1);
  check.at_least("schedule.warmup_steps", rules.schedule.warmup_steps, 0);
  check.at_least("schedule.tail_steps", rules.schedule.tail_steps, 0);
  check_not_negative(check, "schedule.floor", rules.schedule.floor);
  check.positive("loss_scale.growth", static_cast<double>(rules.loss_scale.growth));
  check.positive("loss_scale.backoff", static_cast<double>(rules.loss_scale.backoff));
  check.positive("loss_scale.minimum", static_cast<double>(rules.loss_scale.minimum));
  check.at_least("loss_scale.growth_interval_steps", rules.loss_scale.growth_interval_steps, 1);
}

void validate(const ClipFactor& args) {
  const ArgumentCheck check(ClipFactor::kName);
  check.view("gradient_sum_of_squares", args.gradient_sum_of_squares, DType::kF64, {1});
  check_state(check, args.state);
  check.view("factor", args.factor, DType::kF32, {1});
  check_not_negative(check, "max_gradient_norm", args.max_gradient_norm);
}

void validate(const ClipLocal& args) {
  const ArgumentCheck check(ClipLocal::kName);
  check.io("gradient", args.gradient);
  check.view("gradient", args.gradient, args.gradient.dtype, {args.gradient.elements()});
  check.view("factor", args.factor, DType::kF32, {1});
}

void validate(const LambMoments& args) {
  const ArgumentCheck check(LambMoments::kName);
  const int64_t elements = args.gradient.elements();
  check.io("gradient", args.gradient);
  check.view("gradient", args.gradient, args.gradient.dtype, {elements});
  check.views({{"weight", args.weight}, {"m", args.m}, {"v", args.v}, {"update", args.update}},
              DType::kF32, {elements});
  check_norms(check, args.norms);
  check_state(check, args.state);
  check_segments(check, args.segments, args.norms.extent(0), elements);
  check_rules(check, args.rules);
}

void validate(const LambApply& args) {
  const ArgumentCheck check(LambApply::kName);
  const int64_t elements = args.weight.elements();
  check.views({{"weight", args.weight}, {"update", args.update}}, DType::kF32, {elements});
  check.io("model_weight", args.model_weight);
  check.view("model_weight", args.model_weight, args.model_weight.dtype, {elements});
  check_norms(check, args.norms);
  check_state(check, args.state);
  check_segments(check, args.segments, args.norms.extent(0), elements);
}

void validate(const LambStep& args) {
  const ArgumentCheck check(LambStep::kName);
  check_norms(check, args.norms);
  check_step(check, args, args.norms.extent(0));
}

void validate(const AdamWStep& args) {
  check_step(ArgumentCheck(AdamWStep::kName), args, INT32_MAX);
}

}  // namespace bertha
