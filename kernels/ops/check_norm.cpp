#include "kernels/ops/check_norm.h"

namespace bertha {
namespace {

RowsShape shape_of(const ArgumentCheck& check, const char* field, const View& view) {
  check.rank(field, view, 2);
  return {.io = view.dtype, .rows = view.extent(0), .columns = view.extent(1)};
}

}  // namespace

RowsShape check_rows(const ArgumentCheck& check, const char* field, const View& view) {
  const RowsShape shape = shape_of(check, field, view);
  check.floating(field, view);
  check.at_least("C", shape.columns, 1);
  check.view(field, view, shape.io, {shape.rows, shape.columns});
  return shape;
}

RowsShape check_hidden_rows(const ArgumentCheck& check, const char* field, const View& view) {
  const RowsShape shape = shape_of(check, field, view);
  check.io(field, view);
  check.at_least("H", shape.columns, 8);
  check.multiple_of("H", shape.columns, 8);
  check.view(field, view, shape.io, {shape.rows, shape.columns});
  return shape;
}

}  // namespace bertha
