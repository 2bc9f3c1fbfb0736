#include "kernels/cuda/products/gelu_choice.h"

#include <algorithm>

namespace bertha {
namespace {

using Choice = CudaOptions::GeluProducts;

/// Why the own kernel with this tile cannot serve a call; "" = it can.
std::string obstacle(const GeluTile& tile, const GeluCall& call) {
  if (call.io != DType::kF16 && call.io != DType::kBF16) {
    return concat(name(call.io), ", want f16 or bf16");
  }
  if (call.gelu != Activation::kGelu) return "the GELU of erf, want that of tanh";
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
  if (asked == Choice::kLibrary) return kAtNoRows;
  if (asked == Choice::kOwn && !why_not.empty()) {
    fail(ExitCode::kUsage,
         "products with a GELU are to be those of our own kernels, but these do not take ", why_not,
         "; set cuda.gelu_products to auto or library.");
  }
  if (asked == Choice::kOwn) return 1;
  if (!why_not.empty()) return kAtNoRows;
  const int tiles = tile.least_rounds * tiles_abreast(tile, call.columns, call.multiprocessors);
  return int64_t{tiles - 1} * tile.rows + 1;
}

std::string word(int64_t own_from) {
  if (own_from == kAtNoRows) return "library";
  return own_from == 1 ? "own" : concat("own from ", own_from, " tokens");
}

}  // namespace

int row_tiles(const GeluTile& tile, int64_t rows) {
  return static_cast<int>((rows + tile.rows - 1) / tile.rows);
}

int tiles_abreast(const GeluTile& tile, int64_t columns, int multiprocessors) {
  return std::max(static_cast<int>(multiprocessors / (columns / tile.columns)), 1);
}

int64_t own_gelu_product_from(Choice asked, const GeluCall& call) {
  const std::string why_not =
      call.has_bias ? obstacle(kGeluProductTile, call) : "a product without a bias";
  return decide(asked, why_not, kGeluProductTile, call);
}

int64_t own_gelu_gradient_from(Choice asked, const GeluCall& call) {
  if (asked == Choice::kAuto && !call.has_bias) return kAtNoRows;
  return decide(asked, obstacle(kGeluGradientTile, call), kGeluGradientTile, call);
}

int planned_multiprocessors(const CudaOptions& options, int of_device) {
  return options.gemm_multiprocessors > 0 ? options.gemm_multiprocessors : of_device;
}

std::string gelu_products_text(const CudaOptions& options, const FeedForward& model,
                               int multiprocessors) {
  const GeluCall block{.io = model.io,
                       .gelu = model.gelu,
                       .columns = model.feed_forward,
                       .inner = model.hidden,
                       .multiprocessors = planned_multiprocessors(options, multiprocessors)};
  GeluCall transform = block;
  transform.columns = model.hidden;
  own_gelu_product_from(options.gelu_products, transform);  // refused, or small
  const std::string forward = word(own_gelu_product_from(options.gelu_products, block));
  const std::string backward = word(own_gelu_gradient_from(options.gelu_products, block));
  return forward == backward ? forward : concat(forward, " forward, ", backward, " backward");
}

}  // namespace bertha
