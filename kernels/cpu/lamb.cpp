#include <algorithm>
#include <vector>

#include "kernels/base/cpu/operations.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha {
namespace {

constexpr int64_t kBlockElements = 1 << 14;

struct NormSums {
  double w2 = 0.0;
  double u2 = 0.0;
};

/// A piece of one segment: the unit of work, the same for every number of threads.
struct Piece {
  const LambSegment* segment;
  int64_t begin;  // elements, inside the shard
  int64_t end;
  NormSums sums = {};  // find_norms() only
};

/// Calls work(piece) for every piece of the segments, on the threads of the pool; returns them.
template <class Work>
std::vector<Piece> for_pieces(WorkerPool& pool, std::span<const LambSegment> segments,
                              const Work& work) {
  std::vector<Piece> pieces;
  for (const LambSegment& segment : segments) {
    for (int64_t begin = segment.begin; begin < segment.end; begin += kBlockElements) {
      pieces.push_back({&segment, begin, std::min(begin + kBlockElements, segment.end)});
    }
  }
  pool.for_range(std::ssize(pieces), 1,
                 [&](int64_t i, int64_t) { work(pieces[static_cast<size_t>(i)]); });
  return pieces;
}

LambState& state_of(const View& state) { return *static_cast<LambState*>(state.data); }

/// Advances m and v; update: gets the piece's directions. Moments: LambMoments or LambStep.
template <class Moments>
NormSums advance_piece(const Moments& args, const LambState& state, const Piece& piece,
                       float* update) {
  const LambCoefficients c = lamb_coefficients(args.rules, state, piece.segment->decay);
  const float* gradient = args.gradient.template as<float>();
  const float* weight = args.weight.template as<float>();
  float* m = args.m.template as<float>();
  float* v = args.v.template as<float>();
  double w2 = 0.0;
  double u2 = 0.0;
#pragma omp simd reduction(+ : w2, u2)
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    const float w = weight[i];
    const float u = lamb_direction(c, gradient[i], w, m[i], v[i]);
    update[i - piece.begin] = u;
    w2 += static_cast<double>(w) * static_cast<double>(w);
    u2 += static_cast<double>(u) * static_cast<double>(u);
  }
  return {w2, u2};
}

void apply_piece(const LambApply& args, float step_size, const Piece& piece) {
  const float* update = args.update.as<float>();
  float* weight = args.weight.as<float>();
  float* model_weight = args.model_weight.as<float>();
#pragma omp simd
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    const float w = weight[i] - step_size * update[i];
    weight[i] = w;
    model_weight[i] = w;
  }
}

/// Takes the step of a piece whose m and v have been advanced.
void step_again(const LambStep& args, const LambState& state, float step_size, const Piece& piece) {
  const LambCoefficients c = lamb_coefficients(args.rules, state, piece.segment->decay);
  const float* m = args.m.as<float>();
  const float* v = args.v.as<float>();
  float* weight = args.weight.as<float>();
  float* model_weight = args.model_weight.as<float>();
#pragma omp simd
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    const float w = weight[i] - step_size * lamb_direction_of(c, weight[i], m[i], v[i]);
    weight[i] = w;
    model_weight[i] = w;
  }
}

void step_piece(const AdamWStep& args, const LambState& state, const Piece& piece) {
  const LambCoefficients c = lamb_coefficients(args.rules, state, piece.segment->decay);
  const float learning_rate = state.learning_rate;
  const float* gradient = args.gradient.as<float>();
  float* weight = args.weight.as<float>();
  float* model_weight = args.model_weight.as<float>();
  float* m = args.m.as<float>();
  float* v = args.v.as<float>();
#pragma omp simd
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    weight[i] -= learning_rate * lamb_direction(c, gradient[i], weight[i], m[i], v[i]);
    model_weight[i] = weight[i];
  }
}

void copy_piece(const View& from, const View& to, const Piece& piece) {
  std::copy(from.as<float>() + piece.begin, from.as<float>() + piece.end,
            to.as<float>() + piece.begin);
}

/// Advances m and v and sums up the norms of the tensors; update_of(piece): where the directions of
/// a piece go.
template <class Moments, class UpdateOf>
void find_norms(WorkerPool& pool, const Moments& args, const UpdateOf& update_of) {
  double* norms = args.norms.template as<double>();
  std::fill_n(norms, args.norms.elements(), 0.0);
  const LambState& state = state_of(args.state);
  if (state.skip != 0) return;
  const std::vector<Piece> pieces = for_pieces(pool, args.segments, [&](Piece& piece) {
    piece.sums = advance_piece(args, state, piece, update_of(piece));
  });
  for (const Piece& piece : pieces) {
    norms[2 * piece.segment->tensor] += piece.sums.w2;
    norms[2 * piece.segment->tensor + 1] += piece.sums.u2;
  }
}

/// Calls step(step size, piece) for every piece, or copies the weights of a skipped update.
/// Args: LambApply or LambStep.
template <class Args, class Step>
void step_pieces(WorkerPool& pool, const Args& args, const Step& step) {
  const double* norms = args.norms.template as<double>();
  const LambState& state = state_of(args.state);
  for_pieces(pool, args.segments, [&](const Piece& piece) {
    if (state.skip != 0) return copy_piece(args.weight, args.model_weight, piece);
    const double* sums = norms + 2 * piece.segment->tensor;
    const float ratio = trust_ratio(sums[0], sums[1], piece.segment->decay);
    step(state.learning_rate * ratio, piece);
  });
}

}  // namespace

template <>
void run_cpu(WorkerPool&, const LambPrepare& args) {
  prepare_update(state_of(args.state), *args.gradient_sum_of_squares.as<double>(), args.rules);
}

template <>
void run_cpu(WorkerPool&, const ClipFactor& args) {
  *args.factor.as<float>() = local_clip_factor(
      state_of(args.state), *args.gradient_sum_of_squares.as<double>(), args.max_gradient_norm);
}

template <>
void run_cpu(WorkerPool& pool, const ClipLocal& args) {
  require_f32("clip_local", "gradient", args.gradient);
  const float factor = *args.factor.as<float>();
  if (factor == 1.0f) return;
  float* gradient = args.gradient.as<float>();
  pool.for_range(args.gradient.elements(), kBlockElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gradient[i] *= factor;
  });
}

template <>
void run_cpu(WorkerPool& pool, const LambMoments& args) {
  require_f32("lamb_moments", "gradient", args.gradient);
  find_norms(pool, args, [&](const Piece& piece) { return args.update.as<float>() + piece.begin; });
}

template <>
void run_cpu(WorkerPool& pool, const LambApply& args) {
  require_f32("lamb_apply", "model_weight", args.model_weight);
  step_pieces(pool, args,
              [&](float step_size, const Piece& piece) { apply_piece(args, step_size, piece); });
}

template <>
void run_cpu(WorkerPool& pool, const LambStep& args) {
  require_f32("lamb_step", "gradient", args.gradient);
  find_norms(pool, args, [&](const Piece&) {
    static thread_local std::vector<float> directions(kBlockElements);  // computed again below
    return directions.data();
  });
  step_pieces(pool, args, [&](float step_size, const Piece& piece) {
    step_again(args, state_of(args.state), step_size, piece);
  });
}

template <>
void run_cpu(WorkerPool& pool, const AdamWStep& args) {
  require_f32("adamw_step", "gradient", args.gradient);
  const LambState& state = state_of(args.state);
  for_pieces(pool, args.segments, [&](const Piece& piece) {
    if (state.skip != 0) return copy_piece(args.weight, args.model_weight, piece);
    step_piece(args, state, piece);
  });
}

}  // namespace bertha
