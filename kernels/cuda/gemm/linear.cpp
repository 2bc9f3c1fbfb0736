// Linear layers on cuBLASLt, with the bias in its epilogue, and on own kernels for GEMMs with a
// GELU whose derivative is stored (gelu_choice.h). Everything else is a pass of linear_kernels.h.
// The bias gradient is one: cuBLASLt's epilogue for it overwrites and is slower, as its epilogues
// with a GELU are (kernels/measured/gemm.md). With fp8 the own kernels are those that round their
// result too.
//
// Exact     if a half-precision gradient is accumulated (dx, dweight), the library rounds the
//           GEMM and then the sum: round(round(GEMM) + old), element for element.

#include "kernels/ops/linear_quantize.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/operations.h"
#include "kernels/cuda/chosen_options.h"
#include "kernels/cuda/gemm/gelu_choice.h"
#include "kernels/cuda/gemm/gemm_plans.h"
#include "kernels/cuda/gemm/linear_kernels.h"

namespace bertha {
namespace {

/// The power of two that all addresses are multiples of, up to the full alignment.
int alignment_of(std::initializer_list<const void*> addresses) {
  uintptr_t bits = kFullAlignmentBytes;
  for (const void* address : addresses) bits |= reinterpret_cast<uintptr_t>(address);
  return static_cast<int>(bits & (~bits + 1));
}

/// The plan for `key`, or the error that there is none: a plain GEMM of any shape has one.
const GemmPlan& require(GemmPlans& plans, const GemmKey& key) {
  const GemmPlan* plan = plans.find(key);
  if (plan == nullptr) {
    fail(ExitCode::kEnvironment, "cuBLASLt has no algorithm for a GEMM of ", name(key.a_dtype),
         " and ", name(key.b_dtype), " to ", name(key.dtype), " with T = ", key.rows,
         ", K = ", key.inputs, ", N = ", key.outputs, " and addresses at multiples of ",
         key.matrix_alignment, " bytes.");
  }
  return *plan;
}

/// The library's fp8 GEMMs need multiples of 16.
void check_fp8(const CudaContext& context, const char* operation, const GemmKey& key,
               std::initializer_list<std::pair<const char*, const View&>> views) {
  if (!is_fp8(key.a_dtype)) return;
  context.require_fp8(operation);
  const ArgumentCheck check(operation);
  check.multiple_of("T", key.rows, 16);
  check.multiple_of("K", key.inputs, 16);
  check.multiple_of("N", key.outputs, 16);
  for (const auto& [field, view] : views) {
    if (is_aligned({view.data})) continue;
    check.refuse(field, "is ", view.shape_text(), " at an address ",
                 reinterpret_cast<uintptr_t>(view.data) % 16,
                 " bytes off, want a multiple of 16 with fp8");
  }
}

/// The call of an own kernel, x [T, inner] times a weight to [T, columns], reading and writing
/// `views`.
GeluCall gelu_call(const CudaContext& context, const View& x, int64_t columns,
                   std::initializer_list<const void*> views) {
  return {.io = x.dtype,
          .columns = columns,
          .inner = x.extent(1),
          .sm_count = planned_sm_count(chosen_options(context), context.sm_count),
          .is_aligned = is_aligned(views)};
}

bool takes_own_kernel(const CudaContext& context, const LinearFwd& args) {
  if (!args.derivative.has_data() || is_fp8(args.x.dtype)) return false;
  GeluCall call = gelu_call(context, args.x, args.weight.extent(0),
                            {args.x.data, args.weight.data, args.y.data, args.derivative.data});
  call.has_bias = args.bias.has_data();
  return args.x.extent(0) >= own_gemm_bias_gelu_from(chosen_options(context).gelu_gemms, call);
}

bool takes_own_kernel(const CudaContext& context, const LinearBwdData& args) {
  if (!args.derivative.has_data() || is_fp8(args.dy.dtype)) return false;
  const GeluCall call =
      gelu_call(context, args.dy, args.weight.extent(1),
                {args.dy.data, args.weight.data, args.dx.data, args.derivative.data});
  return args.dy.extent(0) >= own_gemm_dgelu_dbias_from(chosen_options(context).gelu_gemms, call);
}

/// Whether `quantize` is what gemm_gelu_fp8.cu does with the result of a GEMM [T, K] x [N, K].
bool takes_own_kernel(const CudaContext& context, const View& x, const View& weight,
                      const Quantize& quantize) {
  const bool is_gradient = quantize.activation == Activation::kNone;
  const DType format = is_gradient ? DType::kE5M2 : DType::kE4M3;
  if (x.dtype != format || weight.dtype != DType::kE4M3 || !quantize.q.has_data() ||
      quantize.q.dtype != format || x.extent(0) % 16 != 0 ||
      (is_gradient && !quantize.derivative.has_data())) {
    return false;
  }
  GeluCall call = gelu_call(
      context, x, weight.extent(0),
      {x.data, weight.data, quantize.q.data, quantize.transposed.data, quantize.derivative.data});
  call.io = quantize.x.dtype;
  return x.extent(0) >= own_gemm_gelu_fp8_from(chosen_options(context).gelu_gemms, call);
}

/// The key of the GEMM with these operands.
GemmKey with_operands(GemmKey key, const GemmOperands& operands) {
  key.matrix_alignment = alignment_of({operands.a, operands.b, operands.d});
  key.bias_alignment = alignment_of({operands.bias});
  return key;
}

/// Runs the GEMM with its epilogue, if the library has that.
bool run_with_epilogue(GemmPlans& plans, const GemmKey& key, const GemmOperands& operands) {
  const GemmPlan* plan = plans.find(with_operands(key, operands));
  if (plan != nullptr) plans.run(*plan, operands);
  return plan != nullptr;
}

void run_plain(GemmPlans& plans, GemmKey key, const GemmOperands& operands) {
  key.epilogue = GemmEpilogue::kNone;
  plans.run(require(plans, with_operands(key, operands)), operands);
}

GemmEpilogue epilogue_of(const LinearFwd& args) {
  // The bias of an f32 GEMM of fp8 would have to be bf16.
  const bool is_wide_fp8 = is_fp8(args.x.dtype) && args.y.dtype == DType::kF32;
  return args.bias.has_data() && !is_wide_fp8 ? GemmEpilogue::kBias : GemmEpilogue::kNone;
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LinearFwd& args) {
  if (args.x.extent(0) == 0) return;
  if (takes_own_kernel(context, args)) return run_gemm_bias_gelu(context, args);
  auto& plans = context.state<GemmPlans>();
  const GemmKey key{.kind = GemmKind::kForward,
                    .dtype = args.y.dtype,
                    .a_dtype = args.weight.dtype,
                    .b_dtype = args.x.dtype,
                    .epilogue = epilogue_of(args),
                    .rows = args.x.extent(0),
                    .inputs = args.x.extent(1),
                    .outputs = args.weight.extent(0),
                    .sm_count = chosen_options(context).gemm_sm_count,
                    .fast_accumulate = is_fp8(args.x.dtype)};
  check_fp8(context, LinearFwd::kName, key,
            {{"x", args.x},
             {"weight", args.weight},
             {"y", args.y},
             {"pre_activation", args.pre_activation},
             {"derivative", args.derivative},
             {"x_inverse_scale", args.x_inverse_scale},
             {"weight_inverse_scale", args.weight_inverse_scale}});
  const View& z = args.pre_activation.has_data() ? args.pre_activation : args.y;
  const GemmOperands operands{.a = args.weight.data,
                              .b = args.x.data,
                              .d = z.data,
                              .bias = args.bias.data,
                              .a_inverse_scale = args.weight_inverse_scale.data,
                              .b_inverse_scale = args.x_inverse_scale.data};
  const bool has_added_bias =
      key.epilogue == GemmEpilogue::kBias && run_with_epilogue(plans, key, operands);
  if (!has_added_bias) run_plain(plans, key, operands);
  const View bias_left = has_added_bias ? View() : args.bias;
  if (bias_left.has_data() || args.activation != Activation::kNone) {
    add_bias_and_activate(context, z, bias_left, args);
  }
}

namespace {

void run_data_gradient(CudaContext& context, const LinearBwdData& args) {
  auto& plans = context.state<GemmPlans>();
  const GemmKey key{.kind = GemmKind::kDataGradient,
                    .dtype = args.dx.dtype,
                    .a_dtype = args.weight.dtype,
                    .b_dtype = args.dy.dtype,
                    .accumulate = args.accumulate,
                    .rows = args.dy.extent(0),
                    .inputs = args.dx.extent(1),
                    .outputs = args.dy.extent(1),
                    .sm_count = chosen_options(context).gemm_sm_count,
                    .fast_accumulate = is_fp8(args.dy.dtype) && !args.f32_sums};
  check_fp8(context, LinearBwdData::kName, key,
            {{"dy", args.dy},
             {"weight", args.weight},
             {"dx", args.dx},
             {"saved", args.saved},
             {"derivative", args.derivative},
             {"dy_inverse_scale", args.dy_inverse_scale},
             {"weight_inverse_scale", args.weight_inverse_scale}});
  run_plain(plans, key,
            {.a = args.weight.data,
             .b = args.dy.data,
             .d = args.dx.data,
             .a_inverse_scale = args.weight_inverse_scale.data,
             .b_inverse_scale = args.dy_inverse_scale.data});
  const bool has_derivative = args.derivative.has_data();
  if (has_derivative || args.activation != Activation::kNone) {
    multiply_by_derivative(context, args.dx, has_derivative ? args.derivative : args.saved, args.dx,
                           args.activation);
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LinearBwdData& args) {
  if (args.dy.extent(0) == 0) {
    return context.add_nothing(args.accumulate_dbias, args.dbias_below);
  }
  if (takes_own_kernel(context, args)) return run_gemm_dgelu_dbias(context, args);
  run_data_gradient(context, args);
  if (args.dbias_below.has_data()) {
    sum_columns(context, args.dx, args.accumulate_dbias, args.dbias_below);
  }
}

template <>
void run_cuda(CudaContext& context, const LinearBwdWeight& args) {
  const int64_t rows = args.dy.extent(is_fp8(args.dy.dtype) ? 1 : 0);
  if (rows == 0) {
    context.add_nothing(args.accumulate, args.dweight);
    context.add_nothing(args.accumulate, args.dbias);
    return;
  }
  auto& plans = context.state<GemmPlans>();
  const CudaOptions& options = chosen_options(context);
  const bool is_fast = options.fp8_fast_wgrad && !args.f32_sums;
  const GemmKey key{.kind = GemmKind::kWeightGradient,
                    .dtype = args.dweight.dtype,
                    .a_dtype = args.x.dtype,
                    .b_dtype = args.dy.dtype,
                    .accumulate = args.accumulate,
                    .rows = rows,
                    .inputs = args.dweight.extent(1),
                    .outputs = args.dweight.extent(0),
                    .sm_count = options.gemm_sm_count,
                    .fast_accumulate = is_fp8(args.dy.dtype) && is_fast};
  check_fp8(context, LinearBwdWeight::kName, key,
            {{"dy", args.dy},
             {"x", args.x},
             {"dweight", args.dweight},
             {"dy_inverse_scale", args.dy_inverse_scale},
             {"x_inverse_scale", args.x_inverse_scale}});
  run_plain(plans, key,
            {.a = args.x.data,
             .b = args.dy.data,
             .d = args.dweight.data,
             .a_inverse_scale = args.x_inverse_scale.data,
             .b_inverse_scale = args.dy_inverse_scale.data});
  if (args.dbias.has_data()) sum_columns(context, args.dy, args.accumulate, args.dbias);
}

namespace {

template <class Args>
void run_then_quantize(CudaContext& context, const Args& args, bool in_one_kernel) {
  if (in_one_kernel) return run_gemm_gelu_fp8(context, args);
  run_cuda(context, args.linear);
  run_cuda(context, args.quantize);
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const LinearFwdQuantize& args) {
  const LinearFwd& gemm = args.linear;
  const bool is_plain = gemm.activation == Activation::kNone && gemm.bias.has_data() &&
                        args.quantize.activation != Activation::kNone;
  run_then_quantize(context, args,
                    is_plain && takes_own_kernel(context, gemm.x, gemm.weight, args.quantize));
}

template <>
void run_cuda(CudaContext& context, const LinearBwdDataQuantize& args) {
  const LinearBwdData& gemm = args.linear;
  const bool is_plain = gemm.activation == Activation::kNone && !gemm.dbias_below.has_data() &&
                        gemm.accumulate == Accumulate::kNo &&
                        args.quantize.activation == Activation::kNone;
  run_then_quantize(context, args,
                    is_plain && takes_own_kernel(context, gemm.dy, gemm.weight, args.quantize));
}

template <>
void run_cuda(CudaContext& context, const ActivationBwd& args) {
  if (args.dy.elements() == 0) return;
  multiply_by_derivative(context, args.dy, args.saved, args.dx, args.activation);
}

}  // namespace bertha
