#include "kernels/bench/case_parts.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/linear.h"

namespace bertha {

void add_heads(const BenchModel& m, const BenchBatch& batch, std::vector<OpCase>& cases) {
  const Part part = checked_part(batch);
  const Rows hidden{batch.rows(), part.tokens, m.hidden};
  const Rows picked{batch.masked_rows(), part.masked, m.hidden};
  const Rows logits{batch.masked_rows(), part.masked, m.vocab_rows};
  const std::string rows = concat(picked.rows, " of ", hidden.text());

  cases.push_back(
      {.operation = "gather_rows",
       .shape = rows,
       .tensors = {hidden.matrix("source", 1, 0),
                   ids("indices", batch.masked_positions, part.masked), picked.result("picked", 2)},
       .call = [](const OpCall& c) {
         c.ops.run(
             GatherRows{.source = c["source"], .indices = c["indices"], .picked = c["picked"]});
       }});
  BenchTensor target = hidden.result("target", 0);
  target.scale = 1;
  cases.push_back({.operation = "scatter_add_rows",
                   .shape = rows,
                   .tensors = {picked.matrix("rows", 1, 3),
                               ids("indices", batch.masked_positions, part.masked), target},
                   .call = [](const OpCall& c) {
                     c.ops.run(ScatterAddRows{
                         .rows = c["rows"], .indices = c["indices"], .target = c["target"]});
                   }});
  cases.push_back(
      {.operation = "activation_bwd",
       .shape = concat(picked.text(), ", gelu"),
       .tensors = {picked.matrix("dy", 1, 1), picked.matrix("saved", 4, 1), picked.result("dx", 1)},
       .call = [](const OpCall& c) {
         c.ops.run(ActivationBwd{.dy = c["dy"],
                                 .saved = c["saved"],
                                 .dx = c["dx"],
                                 .activation = Activation::kGeluTanh});
       }});
  const BenchTensor in_place = as_result(logits.matrix("logits", 4, 2), logits.columns);
  BenchTensor labels = ids("labels", batch.masked_labels, part.masked);
  labels.is_empty_beyond = true;
  cases.push_back(
      {.operation = "cross_entropy",
       .shape = concat(logits.text(), ", with gradient"),
       .tensors = {in_place, labels, given<float>("gradient_scale", {0.125f}),
                   scalar_sum("loss_sum", DType::kF64), scalar_sum("correct", DType::kI64),
                   scalar_sum("rows_counted", DType::kI64)},
       .call = [classes = m.classes](const OpCall& c) {
         c.ops.run(CrossEntropy{.logits = c["logits"],
                                .labels = c["labels"],
                                .gradient_scale = c["gradient_scale"],
                                .loss_sum = c["loss_sum"],
                                .correct = c["correct"],
                                .rows_counted = c["rows_counted"],
                                .classes = classes});
       }});
}

}  // namespace bertha
