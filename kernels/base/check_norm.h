#pragma once

#include "kernels/base/check.h"

namespace bertha {

// Shared checks of the operations with a LayerNorm: layer_norm, residual_ln and embedding.

/// Rows of C >= 1 columns, of any floating dtype.
inline RowsShape check_rows(const ArgumentCheck& check, const char* field, const View& view) {
  check.rank(field, view, 2);
  check.floating(field, view);
  check.at_least("C", view.extent(1), 1);
  check.same(field, view, view.dtype, view);
  return {.io = view.dtype, .rows = view.extent(0), .columns = view.extent(1)};
}

/// Rows of H columns, H a multiple of 8.
inline RowsShape check_hidden_rows(const ArgumentCheck& check, const char* field,
                                   const View& view) {
  const RowsShape shape = check.matrix(field, view);
  check.at_least("H", shape.columns, 8);
  check.multiple_of("H", shape.columns, 8);
  return shape;
}

/// gamma, beta, mean, rstd, epsilon and dropout of a forward pass.
template <class Forward>
void check_norm(const ArgumentCheck& check, const Forward& args, const RowsShape& shape) {
  check.views({{"gamma", args.gamma}, {"beta", args.beta}}, shape.io, {shape.columns});
  check.views({{"mean", args.mean}, {"rstd", args.rstd}}, DType::kF32, {shape.rows});
  check.positive("epsilon", args.epsilon);
  check.dropout(args.dropout);
  check.mask(args.mask, args.dropout, {shape.rows, shape.columns / 8});
}

/// mean, rstd, gamma, dgamma, dbeta and dropout of a backward pass.
template <class Backward>
void check_norm_backward(const ArgumentCheck& check, const Backward& args, const RowsShape& shape) {
  check.views({{"mean", args.mean}, {"rstd", args.rstd}}, DType::kF32, {shape.rows});
  check.views({{"gamma", args.gamma}, {"dgamma", args.dgamma}, {"dbeta", args.dbeta}}, shape.io,
              {shape.columns});
  check.dropout(args.dropout);
  check.mask(args.mask, args.dropout, {shape.rows, shape.columns / 8});
}

}  // namespace bertha
