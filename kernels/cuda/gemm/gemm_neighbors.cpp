#include <array>

#include "kernels/cuda/gemm/gemm_plans.h"

namespace bertha {
namespace {

// Thread blocks of a cluster, first along m, then along n; larger ones leave SMs idle.
constexpr std::array kClusterShapes = {CUBLASLT_CLUSTER_SHAPE_AUTO,  CUBLASLT_CLUSTER_SHAPE_1x1x1,
                                       CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1,
                                       CUBLASLT_CLUSTER_SHAPE_2x2x1, CUBLASLT_CLUSTER_SHAPE_4x1x1,
                                       CUBLASLT_CLUSTER_SHAPE_1x4x1};
constexpr size_t kMostTiles = CUBLASLT_MATMUL_TILE_END;

/// One more value for `attribute` of `algorithm`, in `found`.
template <class Value>
void vary(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
          Value value, std::vector<cublasLtMatmulAlgo_t>& found) {
  Value now{};
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &now, sizeof(now), &written) !=
          CUBLAS_STATUS_SUCCESS ||
      now == value) {
    return;
  }
  cublasLtMatmulAlgo_t changed = algorithm;
  if (cublasLtMatmulAlgoConfigSetAttribute(&changed, attribute, &value, sizeof(value)) ==
      CUBLAS_STATUS_SUCCESS) {
    found.push_back(changed);
  }
}

/// What the algorithm says of itself; 0 where it does not answer.
uint32_t capability(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoCapAttributes_t name) {
  uint32_t value = 0;
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCapGetAttribute(&algorithm, name, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : 0;
}

std::vector<uint32_t> tiles_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::vector<uint32_t> tiles(kMostTiles);
  size_t bytes = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCapGetAttribute(&algorithm, CUBLASLT_ALGO_CAP_TILE_IDS, tiles.data(),
                                        tiles.size() * sizeof(uint32_t), &bytes);
  tiles.resize(status == CUBLAS_STATUS_SUCCESS ? bytes / sizeof(uint32_t) : 0);
  return tiles;
}

}  // namespace

std::vector<cublasLtMatmulAlgo_t> GemmPlans::neighbors(const GemmPlan& plan) const {
  const cublasLtMatmulAlgo_t& here = plan.algorithm;
  std::vector<cublasLtMatmulAlgo_t> found;
  for (const uint32_t tile : tiles_of(here)) {
    vary(here, CUBLASLT_ALGO_CONFIG_TILE_ID, tile, found);
  }
  for (const cublasLtClusterShape_t shape : kClusterShapes) {
    vary(here, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(shape), found);
  }
  const uint32_t options = capability(here, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
  for (uint32_t option = 0; option <= options; ++option) {
    vary(here, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, option, found);
  }
  const uint32_t orders = capability(here, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT);
  for (uint32_t order = 0; order <= orders; ++order) {
    vary(here, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, order, found);
  }

  GemmPlan candidate(plan.key);
  std::erase_if(found, [&](const cublasLtMatmulAlgo_t& algorithm) {
    candidate.algorithm = algorithm;
    return !serves(candidate);
  });
  return found;
}

}  // namespace bertha
