#include "kernels/cuda/gemm/gelu_choice.h"

#include <algorithm>

#include "kernels/base/divide.h"

namespace bertha {
namespace {

using Choice = CudaOptions::GeluGemms;

/// Why the own kernel with this tile does not support a call; "" = it does.
std::string unsupported(const GeluTile& tile, const GeluCall& call) {
  if (call.io != DType::kF16 && call.io != DType::kBF16) {
    return concat(name(call.io), ", want f16 or bf16");
  }
  if (call.columns % tile.columns != 0) {
    return concat("a result of ", call.columns, " columns, want a multiple of ", tile.columns);
  }
  if (call.inner % tile.inner_block != 0) {
    return concat("sums over ", call.inner, " indices, want a multiple of ", tile.inner_block);
  }
  return call.is_aligned ? "" : "a view that is not aligned to 16 bytes";
}

int64_t decide(Choice asked, const std::string& why_not, const GeluTile& tile,
               const GeluCall& call) {
  if (asked == Choice::kLibrary) return kNever;
  if (asked == Choice::kOwn && !why_not.empty()) {
    fail(ExitCode::kUsage, "gelu_gemms is own, but these kernels do not support ", why_not,
         "; set it to auto or library.");
  }
  if (asked == Choice::kOwn) return 1;
  if (!why_not.empty()) return kNever;
  const int tiles = tile.min_waves * blocks_per_column_tile(tile, call.columns, call.sm_count);
  return int64_t{tiles - 1} * tile.rows + 1;
}

/// why_not: empty, or why the library's slower kernels run instead of own ones.
std::string word(int64_t own_from, const std::string& why_not) {
  if (own_from == kNever)
    return why_not.empty() ? "library" : concat("library (slower: ", why_not, ")");
  return own_from == 1 ? "own" : concat("own from ", own_from, " tokens");
}

}  // namespace

int row_tiles(const GeluTile& tile, int64_t rows) {
  return static_cast<int>(ceil_div(rows, tile.rows));
}

int blocks_per_column_tile(const GeluTile& tile, int64_t columns, int sm_count) {
  return std::max(static_cast<int>(sm_count / (columns / tile.columns)), 1);
}

int64_t own_gemm_bias_gelu_from(Choice asked, const GeluCall& call) {
  const std::string why_not =
      call.has_bias ? unsupported(kGemmBiasGeluTile, call) : "a GEMM without a bias";
  return decide(asked, why_not, kGemmBiasGeluTile, call);
}

int64_t own_gemm_dgelu_dbias_from(Choice asked, const GeluCall& call) {
  return decide(asked, unsupported(kGemmDgeluDbiasTile, call), kGemmDgeluDbiasTile, call);
}

int64_t own_gemm_gelu_fp8_from(Choice asked, const GeluCall& call) {
  return decide(asked, unsupported(kGemmGeluFp8Tile, call), kGemmGeluFp8Tile, call);
}

int planned_sm_count(const CudaOptions& options, int of_device) {
  return options.gemm_sm_count > 0 ? options.gemm_sm_count : of_device;
}

std::string gelu_gemms_text(const CudaOptions& options, const FeedForward& model, int sm_count) {
  const GeluCall block{.io = model.io,
                       .columns = model.feed_forward,
                       .inner = model.hidden,
                       .sm_count = planned_sm_count(options, sm_count)};
  const auto forward_from = model.fp8 ? own_gemm_gelu_fp8_from : own_gemm_bias_gelu_from;
  const auto gradient_from = model.fp8 ? own_gemm_gelu_fp8_from : own_gemm_dgelu_dbias_from;
  const auto word_of = [&](const auto& own_from, const GeluTile& tile) {
    const bool is_auto = options.gelu_gemms == Choice::kAuto;
    return word(own_from(options.gelu_gemms, block), is_auto ? unsupported(tile, block) : "");
  };
  const std::string forward =
      word_of(forward_from, model.fp8 ? kGemmGeluFp8Tile : kGemmBiasGeluTile);
  const std::string backward =
      word_of(gradient_from, model.fp8 ? kGemmGeluFp8Tile : kGemmDgeluDbiasTile);
  return forward == backward ? forward : concat(forward, " forward, ", backward, " backward");
}

}  // namespace bertha
