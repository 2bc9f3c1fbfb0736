#include "kernels/ops/embedding.h"

#include "kernels/base/check_norm.h"

namespace bertha {
namespace {

void check_table(const ArgumentCheck& check, const char* field, const View& table,
                 const RowsShape& shape) {
  check.rank(field, table, 2);
  check.at_least(field, table.extent(0), 1);
  check.view(field, table, shape.io, {table.extent(0), shape.columns});
}

template <class Args>
void check_ids(const ArgumentCheck& check, const Args& args, const RowsShape& shape) {
  check.views({{"word_ids", args.word_ids},
               {"position_ids", args.position_ids},
               {"segment_ids", args.segment_ids}},
              DType::kI32, {shape.rows});
}

}  // namespace

void validate(const EmbeddingFwd& args) {
  const ArgumentCheck check(EmbeddingFwd::kName);
  const RowsShape shape = check_hidden_rows(check, "y", args.y);
  check_ids(check, args, shape);
  check_table(check, "word_table", args.word_table, shape);
  check_table(check, "position_table", args.position_table, shape);
  check_table(check, "segment_table", args.segment_table, shape);
  check.view("sum", args.sum, shape.io, {shape.rows, shape.columns});
  check_norm(check, args, shape);
}

void validate(const EmbeddingBwd& args) {
  const ArgumentCheck check(EmbeddingBwd::kName);
  const RowsShape shape = check_hidden_rows(check, "dy", args.dy);
  check_ids(check, args, shape);
  check.optional_view("rows_by_word", args.rows_by_word, DType::kI32, {shape.rows});
  check.view("sum", args.sum, shape.io, {shape.rows, shape.columns});
  check_table(check, "dword_table", args.dword_table, shape);
  check_table(check, "dposition_table", args.dposition_table, shape);
  check_table(check, "dsegment_table", args.dsegment_table, shape);
  check_norm_backward(check, args, shape);
}

}  // namespace bertha
