#include "harness/model/bert_params.h"

#include <string>

namespace bertha {

BertParams view_params(const ParamTable& table, const Dims& dims, const View& flat) {
  BERTHA_CHECK(flat.elements() >= table.elements, "flat buffer of ", flat.elements(),
               " elements, want ", table.elements);
  const auto view = [&](const std::string& name) {
    return table.view(table.find(name), flat.data, flat.dtype);
  };

  BertParams all;
  all.embedding = {.word_table = view("embeddings.word.weight"),
                   .position_table = view("embeddings.position.weight"),
                   .segment_table = view("embeddings.segment.weight"),
                   .ln_gamma = view("embeddings.layer_norm.gamma"),
                   .ln_beta = view("embeddings.layer_norm.beta")};
  for (int64_t layer = 0; layer < dims.L; ++layer) {
    const std::string stem = concat("layer.", layer, ".");
    const std::string attention = stem + "attention.";
    const std::string feed_forward = stem + "feed_forward.";
    all.layers.push_back({.qkv_weight = view(attention + "qkv.weight"),
                          .qkv_bias = view(attention + "qkv.bias"),
                          .projection_weight = view(attention + "output.weight"),
                          .projection_bias = view(attention + "output.bias"),
                          .attention_ln_gamma = view(attention + "layer_norm.gamma"),
                          .attention_ln_beta = view(attention + "layer_norm.beta"),
                          .ff_in_weight = view(feed_forward + "in.weight"),
                          .ff_in_bias = view(feed_forward + "in.bias"),
                          .ff_out_weight = view(feed_forward + "out.weight"),
                          .ff_out_bias = view(feed_forward + "out.bias"),
                          .ff_ln_gamma = view(feed_forward + "layer_norm.gamma"),
                          .ff_ln_beta = view(feed_forward + "layer_norm.beta")});
  }
  all.heads = {.pooler_weight = view("pooler.weight"),
               .pooler_bias = view("pooler.bias"),
               .transform_weight = view("mlm.transform.weight"),
               .transform_bias = view("mlm.transform.bias"),
               .ln_gamma = view("mlm.layer_norm.gamma"),
               .ln_beta = view("mlm.layer_norm.beta"),
               .word_table = view("embeddings.word.weight"),
               .output_bias = view("mlm.output.bias"),
               .nsp_weight = view("nsp.weight"),
               .nsp_bias = view("nsp.bias")};
  return all;
}

}  // namespace bertha
