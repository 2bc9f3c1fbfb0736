#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/cuda/chosen_options.h"
#include "kernels/cuda/gemm/cublaslt_calls.h"
#include "kernels/cuda/gemm/gemm_key.h"
#include "kernels/cuda/gemm/gemm_plan_file.h"

namespace bertha {

struct DestroyCublasLt {
  void operator()(cublasLtMatmulDescOpaque_t* made) const { cublasLtMatmulDescDestroy(made); }
  void operator()(cublasLtMatrixLayoutOpaque_t* made) const { cublasLtMatrixLayoutDestroy(made); }
  void operator()(cublasLtMatmulPreferenceOpaque_t* made) const {
    cublasLtMatmulPreferenceDestroy(made);
  }
  void operator()(cublasLtContext* made) const { cublasLtDestroy(made); }
};
/// An object of the library, destroyed with its owner.
template <class T>
using CublasLtOwner = std::unique_ptr<T, DestroyCublasLt>;

/// D = epilogue(op(A) op(B) + beta D) in the library's terms. A row-major matrix is a column-major
/// one transposed: D is y, dx or dweight transposed, and
///
///   GEMM             D [m, n]      A       op  B   op  sum over
///   forward          y^T  [N, T]   weight  T   x   N   K
///   data gradient    dx^T [K, T]   weight  N   dy  N   N
///   weight gradient  dw^T [K, N]   x       N   dy  T   T
///
/// With fp8 the sum runs along the columns of A and B: op(A) is always T, op(B) N, and the caller
/// has transposed other matrices.
struct GemmPlan {
  explicit GemmPlan(const GemmKey& key_in);

  GemmKey key;
  int64_t m;
  int64_t n;
  int64_t k;
  bool a_transposed;
  bool b_transposed;
  CublasLtOwner<cublasLtMatmulDescOpaque_t> operation;
  CublasLtOwner<cublasLtMatrixLayoutOpaque_t> a;
  CublasLtOwner<cublasLtMatrixLayoutOpaque_t> b;
  CublasLtOwner<cublasLtMatrixLayoutOpaque_t> d;
  cublasLtMatmulAlgo_t algorithm{};
};

struct GemmOperands {
  const void* a;
  const void* b;
  void* d;                                // also read if the key accumulates
  const void* bias = nullptr;             // kBias
  const void* a_inverse_scale = nullptr;  // fp8: f32, in device memory
  const void* b_inverse_scale = nullptr;  // fp8: f32, in device memory
};

/// The descriptors and algorithm of every GEMM that occurred, and their workspace.
///
/// Choice    of a new key: the algorithm tuned for it, else that tuned for the nearest number of
///           rows within a quarter (rows change a little from step to step, the best algorithm
///           hardly does), else, with options.tune_gemms, a tuned one, else the first of the
///           library's heuristics, or for some large GEMMs one with tiles of 128 rows. Without
///           tune_gemms it does not depend on which keys came before, so that a run that resumes
///           from a checkpoint chooses the same.
/// Cost      to the host: 7 to 10 us for a known key, 60 us for one that a tuned algorithm serves,
///           0.3 ms if the heuristics are called.
/// Waits     only while tuning.
class GemmPlans {
 public:
  explicit GemmPlans(const CudaContext& context);
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  /// Null if the library has no algorithm for the key.
  const GemmPlan* find(const GemmKey& key);

  /// Enqueues the GEMM.
  void run(const GemmPlan& plan, const GemmOperands& operands);

 private:
  std::optional<GemmPlan> make(const GemmKey& key);
  const GemmAlgorithm* nearest(const GemmKey& key) const;
  /// For large fp8 GEMMs, and large forward GEMMs of 16 bits with more outputs than inputs,
  /// replaces the plan's algorithm with one that has tiles of 128 rows, of the width for which the
  /// busiest SM computes the fewest columns.
  void choose_tiles(GemmPlan& plan, std::span<const cublasLtMatmulAlgo_t> choices) const;
  /// Whether the library runs the plan's algorithm in the workspace there is.
  bool serves(const GemmPlan& plan) const;
  /// Blocks: times the algorithms around these, and keeps the fastest correct one.
  void tune(GemmPlan& plan, std::span<const cublasLtMatmulAlgo_t> choices);
  /// The library's choices, best guess first.
  std::vector<cublasLtMatmulAlgo_t> heuristics(const GemmPlan& plan, int most) const;
  /// What differs from the plan's algorithm in its tile, its cluster of thread blocks, its order of
  /// tiles or the library's own option, one at a time, and can be run.
  std::vector<cublasLtMatmulAlgo_t> neighbors(const GemmPlan& plan) const;

  CudaDevice& device_;
  cudaStream_t stream_;
  CublasLtOwner<cublasLtContext> handle_;
  Buffer workspace_;
  bool is_hopper_;
  GemmOrigin origin_;
  TunedGemms tuned_;
  std::string path_;  // file of tuned plans; "" = none
  bool tune_on_first_use_;
  std::map<GemmKey, std::optional<GemmPlan>> plans_;
};

}  // namespace bertha
