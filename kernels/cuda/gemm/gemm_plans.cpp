#include "kernels/cuda/gemm/gemm_plans.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>

#include "kernels/base/cuda/cuda_check.h"
#include "kernels/base/cuda/handles.h"
#include "kernels/base/divide.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

// The library requests 32 MiB on Hopper; the rest is for f32 partial sums of split-k GEMMs.
constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
constexpr int kFirstChoices = 8;  // one that runs is among them
constexpr int kAllChoices = 32;   // more than the library offers
// A tuned algorithm is used for GEMMs with up to a quarter more or fewer rows. With up to twice as
// many, at 2,048 tokens, such algorithms made a step slower than the library's first choice.
constexpr double kNearbyRows = 1.25;
// GEMMs that sum at most kLongestSum products, in fp8 or forward in 16 bits with more outputs than
// inputs (QKV, the decoder), use tiles of 128 rows if an SM computes at least kFewestTiles of 128 x
// 128. The library's first choice has larger tiles and is slower (kernels/measured/gemm.md).
constexpr int64_t kLongestSum = 3072;
constexpr int64_t kFewestTiles = 5;
constexpr int64_t kTileRows = 128;
struct Tile {
  int64_t columns;
  uint32_t id;
};
constexpr Tile kTiles[] = {
    {168, CUBLASLT_MATMUL_TILE_128x168}, {160, CUBLASLT_MATMUL_TILE_128x160},
    {152, CUBLASLT_MATMUL_TILE_128x152}, {144, CUBLASLT_MATMUL_TILE_128x144},
    {136, CUBLASLT_MATMUL_TILE_128x136}, {128, CUBLASLT_MATMUL_TILE_128x128}};

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DType::kE5M2:
      return CUDA_R_8F_E5M2;
    default:
      fail(ExitCode::kInternal, "GEMMs of ", name(dtype), ", want f32, f16, bf16, e4m3 or e5m2");
  }
}

int32_t native_transpose(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

template <class Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, Value value) {
  BERTHA_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         Value value) {
  BERTHA_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

cublasLtMatrixLayout_t make_layout(DType dtype, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  BERTHA_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, data_type(dtype),
                                                 static_cast<uint64_t>(rows),
                                                 static_cast<uint64_t>(columns), rows));
  return layout;
}

/// An address of that alignment and no more: the heuristics read no more than that from it.
const void* address_aligned_to(int bytes) {
  return reinterpret_cast<const void*>(  // NOLINT(performance-no-int-to-ptr)
      static_cast<uintptr_t>(bytes));
}

bool has_square_tiles(const cublasLtMatmulAlgo_t& algorithm) {
  uint32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
  cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                       sizeof(tile), nullptr);
  return tile == CUBLASLT_MATMUL_TILE_128x128;
}

bool is_faster_in_small_tiles(const GemmPlan& plan) {
  const GemmKey& key = plan.key;
  if (key.kind == GemmKind::kWeightGradient || plan.k > kLongestSum) return false;
  if (is_fp8(key.a_dtype)) return true;
  return key.a_dtype != DType::kF32 && key.kind == GemmKind::kForward && plan.m > plan.k;
}

/// The most that any SM computes.
int64_t tiles_per_sm(const GemmPlan& plan, int64_t columns, int64_t sms) {
  return ceil_div(ceil_div(plan.m, kTileRows) * ceil_div(plan.n, columns), sms);
}

bool is_nearby(int64_t rows, int64_t tuned_rows) {
  return static_cast<double>(rows) <= kNearbyRows * static_cast<double>(tuned_rows);
}

GemmOrigin origin_of(CudaDevice& device) {
  cudaDeviceProp properties{};
  BERTHA_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.ordinal()));
  return {.device = concat(properties.name, ", ", device.sm_count(), " SMs"),
          .library = concat("cublasLt ", cublasLtGetVersion())};
}

}  // namespace

GemmPlan::GemmPlan(const GemmKey& key_in)
    : key(key_in),
      m(key.inputs),
      n(key.rows),
      k(key.outputs),
      a_transposed(key.kind == GemmKind::kForward || is_fp8(key.a_dtype)),
      b_transposed(key.kind == GemmKind::kWeightGradient && !is_fp8(key.a_dtype)) {
  cublasLtMatmulDesc_t made = nullptr;
  // True f32 for f32, because tf32 is optional. Halves: f32 sums.
  BERTHA_CUBLAS_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  operation.reset(made);
  if (key.kind == GemmKind::kForward) {
    m = key.outputs;
    k = key.inputs;
  }
  if (key.kind == GemmKind::kWeightGradient) {
    n = key.outputs;
    k = key.rows;
  }
  a.reset(make_layout(key.a_dtype, a_transposed ? k : m, a_transposed ? m : k));
  b.reset(make_layout(key.b_dtype, b_transposed ? n : k, b_transposed ? k : n));
  d.reset(make_layout(key.dtype, m, n));

  set(made, CUBLASLT_MATMUL_DESC_TRANSA, native_transpose(a_transposed));
  set(made, CUBLASLT_MATMUL_DESC_TRANSB, native_transpose(b_transposed));
  set(made, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<int32_t>(key.sm_count));
  if (key.epilogue == GemmEpilogue::kBias) {
    set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
    set(made, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(data_type(key.dtype)));
    set(made, CUBLASLT_MATMUL_DESC_BIAS_POINTER, address_aligned_to(key.bias_alignment));
  }
  if (is_fp8(key.a_dtype)) {
    set(made, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(key.fast_accumulate));
    set(made, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, address_aligned_to(kFullAlignmentBytes));
    set(made, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, address_aligned_to(kFullAlignmentBytes));
  }
}

GemmPlans::GemmPlans(const CudaContext& context)
    : device_(context.device),
      stream_(context.stream),
      workspace_(device_.allocate(kWorkspaceBytes)),
      is_hopper_(context.kernels == KernelSet::kSm90a),
      origin_(origin_of(device_)),
      path_(chosen_options(context).gemm_plans_path),
      tune_on_first_use_(chosen_options(context).tune_gemms) {
  cublasLtHandle_t made = nullptr;
  BERTHA_CUBLAS_CHECK(cublasLtCreate(&made));
  handle_.reset(made);
  const bool to_be_made = tune_on_first_use_ && !std::filesystem::exists(path_);
  if (!path_.empty() && !to_be_made) tuned_ = load_tuned_gemms(path_, origin_);
}

const GemmPlan* GemmPlans::find(const GemmKey& key) {
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, make(key)).first;
  return found->second.has_value() ? &*found->second : nullptr;
}

std::optional<GemmPlan> GemmPlans::make(const GemmKey& key) {
  GemmPlan plan(key);
  if (const GemmAlgorithm* tuned = nearest(key)) {
    plan.algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(*tuned);
    if (serves(plan)) return plan;
  }
  const std::vector<cublasLtMatmulAlgo_t> choices =
      heuristics(plan, tune_on_first_use_ ? kAllChoices : kFirstChoices);
  if (choices.empty()) return std::nullopt;
  plan.algorithm = choices.front();
  if (tune_on_first_use_) {
    tune(plan, choices);
  } else {
    choose_tiles(plan, choices);
  }
  return plan;
}

const GemmAlgorithm* GemmPlans::nearest(const GemmKey& key) const {
  const GemmAlgorithm* best = nullptr;
  int64_t distance = 0;
  for (const auto& [other, tuned] : tuned_) {
    GemmKey same_rows = other;
    same_rows.rows = key.rows;
    const bool nearby = is_nearby(key.rows, other.rows) && is_nearby(other.rows, key.rows);
    if (!(same_rows == key) || !nearby) continue;
    const int64_t away = std::abs(other.rows - key.rows);
    if (best != nullptr && away >= distance) continue;
    best = &tuned;
    distance = away;
  }
  return best;
}

void GemmPlans::choose_tiles(GemmPlan& plan, std::span<const cublasLtMatmulAlgo_t> choices) const {
  const GemmKey& key = plan.key;
  const int64_t sms = key.sm_count > 0 ? key.sm_count : device_.sm_count();
  if (!is_hopper_ || !is_faster_in_small_tiles(plan) ||
      tiles_per_sm(plan, kTileRows, sms) < kFewestTiles) {
    return;
  }
  const auto square = std::ranges::find_if(choices, has_square_tiles);
  if (square == choices.end()) return;
  const Tile& best = *std::ranges::min_element(kTiles, {}, [&](const Tile& tile) {
    return tiles_per_sm(plan, tile.columns, sms) * tile.columns;
  });
  plan.algorithm = *square;
  cublasLtMatmulAlgoConfigSetAttribute(&plan.algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &best.id,
                                       sizeof(best.id));
  if (!serves(plan)) plan.algorithm = *square;
}

bool GemmPlans::serves(const GemmPlan& plan) const {
  cublasLtMatmulHeuristicResult_t checked{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_.get(), plan.operation.get(), plan.a.get(), plan.b.get(),
                              plan.d.get(), plan.d.get(), &plan.algorithm, &checked);
  return status == CUBLAS_STATUS_SUCCESS &&
         checked.workspaceSize <= static_cast<size_t>(workspace_.bytes());
}

std::vector<cublasLtMatmulAlgo_t> GemmPlans::heuristics(const GemmPlan& plan, int most) const {
  cublasLtMatmulPreference_t made = nullptr;
  BERTHA_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  const CublasLtOwner<cublasLtMatmulPreferenceOpaque_t> preference(made);
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_.bytes()));
  // Partial sums of split-k stay f32: the other schemes round them to the type of D.
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = static_cast<uint32_t>(plan.key.matrix_alignment);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), plan.operation.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(),
      made, most, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  if (status != CUBLAS_STATUS_SUCCESS) fail_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

void GemmPlans::run(const GemmPlan& plan, const GemmOperands& operands) {
  cublasLtMatmulDesc_t operation = plan.operation.get();
  if (plan.key.epilogue == GemmEpilogue::kBias) {
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  if (is_fp8(plan.key.a_dtype)) {
    set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.a_inverse_scale);
    set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.b_inverse_scale);
  }
  const float alpha = 1.0f;
  const float beta = plan.key.accumulate == Accumulate::kYes ? 1.0f : 0.0f;
  BERTHA_CUBLAS_CHECK(cublasLtMatmul(handle_.get(), operation, &alpha, operands.a, plan.a.get(),
                                     operands.b, plan.b.get(), &beta, operands.d, plan.d.get(),
                                     operands.d, plan.d.get(), &plan.algorithm, workspace_.data(),
                                     static_cast<size_t>(workspace_.bytes()), stream_));
}

}  // namespace bertha
