#include "harness/model/bert.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "harness/model/activations.h"
#include "harness/model/bert_params.h"
#include "harness/model/device_batch.h"
#include "harness/model/fp8_state.h"
#include "harness/model/recorded_passes.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/quantize.h"

namespace bertha {
namespace {

enum class Mode : uint8_t { kTrain, kEval };

/// Dropout sites have consecutive numbers: 0 after the embedding, then three per layer.
enum class LayerSite : uint32_t { kProbabilities = 1, kProjection = 2, kFeedForward = 3 };

uint32_t site_of(int64_t layer, LayerSite place) {
  return static_cast<uint32_t>(3 * layer) + static_cast<uint32_t>(place);
}

BatchRows padded_on(const Device& device, const BatchRows& rows) {
  return padded(rows, [&device](int64_t count) { return device.padded_rows(count); });
}

/// The model's tensors in device memory after its activations.
struct DeviceState {
  std::optional<BatchUploader> uploader;
  View random;  // u64 [2]  {seed, micro-step}
  View stats;   // u8  [sizeof(LossStats)]
  Fp8State fp8;
};

DeviceState allocate_state(Arena& arena, const Dims& dims, const BatchRows& capacity, DType io,
                           bool fp8) {
  allocate_activations(arena, dims, capacity, capacity, io, fp8);
  DeviceState state;
  state.uploader.emplace(arena, capacity);
  state.random = arena.take(DType::kU64, {2});
  state.stats = arena.take(DType::kU8, {static_cast<int64_t>(sizeof(LossStats))});
  if (fp8) state.fp8 = allocate_fp8_state(arena, dims);
  return state;
}

}  // namespace

struct Bert::State {
  State(const ModelConfig& model, const ParamTable& param_table, const BatchRows& most,
        ModelParts model_parts)
      : config(model),
        dims(make_dims(model, most.seq_tokens)),
        table(param_table),
        capacity(padded_on(*model_parts.device, most)),
        parts(model_parts),
        memory(parts.device->allocate(activation_bytes_for(config, capacity, parts.io, parts.fp8))),
        passes(*parts.device, *parts.stream, parts.graphs) {
    Arena arena(memory);
    on_device = allocate_state(arena, dims, capacity, parts.io, parts.fp8);
  }

  View stat(size_t byte_offset, DType dtype) const {
    return {static_cast<char*>(on_device.stats.data) + byte_offset, dtype, {1}};
  }

  LossSums loss_sums() const {
    return {.mlm_loss_sum = stat(offsetof(LossStats, mlm_loss_sum), DType::kF64),
            .nsp_loss_sum = stat(offsetof(LossStats, nsp_loss_sum), DType::kF64),
            .mlm_correct = stat(offsetof(LossStats, mlm_correct), DType::kI64),
            .mlm_count = stat(offsetof(LossStats, mlm_count), DType::kI64),
            .nsp_correct = stat(offsetof(LossStats, nsp_correct), DType::kI64),
            .nsp_count = stat(offsetof(LossStats, nsp_count), DType::kI64)};
  }

  Dropout dropout(Mode mode, double probability, uint32_t site) const {
    return {.random = on_device.random,
            .probability = mode == Mode::kTrain ? static_cast<float>(probability) : 0.0f,
            .site = site};
  }

  EmbeddingCall embedding_call(Mode mode) const {
    return {.weights = &weights.embedding,
            .gradients = &gradients.embedding,
            .saved = &activations.embedding,
            .batch = &batch,
            .dropout = dropout(mode, config.hidden_dropout, 0),
            .layer_norm_epsilon = static_cast<float>(config.layer_norm_epsilon)};
  }

  /// Whether a layer stores its output in io. With fp8 the next layer's GEMM reads it rounded, and
  /// its residual is computed again.
  bool stores_output(Mode mode, int64_t layer) const {
    const int64_t first_read_in_io = ends_on_needed_rows ? dims.L - 2 : dims.L - 1;
    return !reads_fp8(gemm_mode(mode)) || layer >= first_read_in_io;
  }

  LayerCall layer_call(Mode mode, int64_t layer) const {
    const auto i = static_cast<size_t>(layer);
    const bool recomputes_x = layer > 0 && !stores_output(mode, layer - 1);
    const auto at = [&](double probability, LayerSite place) {
      return dropout(mode, probability, site_of(layer, place));
    };
    return {
        .weights = &weights.layers[i],
        .gradients = &gradients.layers[i],
        .saved = &activations.layers[i],
        .scratch = &activations.scratch,
        .batch = &batch,
        .x = recomputes_x ? activations.layers[i - 1].ff_sum
             : layer == 0 ? activations.embedding.y
                          : activations.layers[i - 1].y,
        .x_fp8 = rounded_input(mode, layer),
        .y_fp8 = rounded_input(mode, layer + 1),
        .x_norm = recomputes_x ? output_norm(weights.layers[i - 1], activations.layers[i - 1])
                               : ResidualNorm{},
        .is_y_needed = stores_output(mode, layer),
        .needed_rows = ends_on_needed_rows && layer + 1 == dims.L ? batch.needed_rows : View(),
        .gemm_mode = gemm_mode(mode),
        .fp8 = parts.fp8 ? fp8_layer(layer) : Fp8Layer{},
        .settings = {.attention_dropout = at(config.attention_dropout, LayerSite::kProbabilities),
                     .projection_dropout = at(config.hidden_dropout, LayerSite::kProjection),
                     .ff_dropout = at(config.hidden_dropout, LayerSite::kFeedForward),
                     .layer_norm_epsilon = static_cast<float>(config.layer_norm_epsilon),
                     .gelu = gelu_of(config),
                     .max_seq_tokens = dims.S},
        .accumulate = accumulate};
  }

  /// The input of a layer in fp8, if the layer before rounds it.
  Fp8Result rounded_input(Mode mode, int64_t layer) const {
    if (!parts.fp8 || layer == 0 || layer == dims.L) return {};
    const Fp8Layer fp8 = fp8_layer(layer);
    return EncoderGemms(*parts.ops, gemm_mode(mode), &fp8).input_result(EncoderGemm::kQkv);
  }

  GemmMode mode_with(bool scales, Mode mode) const {
    if (!parts.fp8) return GemmMode::kIo;
    if (mode == Mode::kEval) return scales ? GemmMode::kFp8Eval : GemmMode::kIo;
    return scales ? GemmMode::kFp8 : GemmMode::kRecord;
  }

  GemmMode gemm_mode(Mode mode) const { return mode_with(has_scales, mode); }
  GemmMode decoder_mode(Mode mode) const {
    return has_fp8_decoder(dims) ? mode_with(has_decoder_scales, mode) : GemmMode::kIo;
  }

  Fp8Layer fp8_layer(int64_t layer) const {
    const auto i = static_cast<size_t>(layer);
    constexpr auto kGemms = static_cast<int64_t>(kEncoderGemms);
    Fp8Layer fp8 = fp8_with_scales(layer * kGemms, kGemms);
    fp8.weights = on_device.fp8.weight_copies[i];
    fp8.inputs_transposed = activations.layers[i].fp8_inputs;
    return fp8;
  }

  Fp8Layer fp8_decoder() const {
    Fp8Layer fp8 = fp8_with_scales(dims.L * static_cast<int64_t>(kEncoderGemms), 1);
    fp8.weights[0] = on_device.fp8.decoder_copies;
    fp8.inputs_transposed[0] = activations.heads.fp8_input;
    fp8.live_tokens = View();  // padding rows have one input, and gradients of zero
    return fp8;
  }

  /// What all GEMMs share, and the scales of `count` of them.
  Fp8Layer fp8_with_scales(int64_t first, int64_t count) const {
    const Fp8State& state = on_device.fp8;
    return {.weights = {},
            .inputs_transposed = {},
            .input_scales = state.inputs().rows(first, count),
            .gradient_scales = state.gradients().rows(first, count),
            .weight_scales = state.weights().rows(first, count),
            .rows = activations.scratch.fp8_rows,
            .inner_rows = activations.scratch.fp8_inner_rows,
            .gradient_transposed = activations.scratch.fp8_gradient_transposed,
            .unused_amax = state.unused_amax,
            .unused_count = state.unused_count,
            .saturated = stat(offsetof(LossStats, fp8_saturated), DType::kI64),
            .live_tokens = batch.live_tokens};
  }

  HeadCall head_call(Mode mode) const {
    return {.weights = &weights.heads,
            .gradients = &gradients.heads,
            .saved = &activations.heads,
            .scratch = &activations.scratch,
            .batch = &batch,
            .hidden = ends_on_needed_rows ? activations.layers.back().y : activations.heads.hidden,
            .layer_norm_epsilon = static_cast<float>(config.layer_norm_epsilon),
            .gelu = gelu_of(config),
            .classes = config.padded_vocab_in_softmax ? dims.V : dims.C,
            .accumulate = accumulate,
            .gemm_mode = decoder_mode(mode),
            .fp8 = parts.fp8 ? fp8_decoder() : Fp8Layer{}};
  }

  PassKey pass_key(PassKey::Pass pass, size_t piece, bool makes_copies) const {
    const Mode mode = pass == PassKey::Pass::kForwardEval ? Mode::kEval : Mode::kTrain;
    return {.pass = pass,
            .piece = piece,
            .tokens = batch.word_ids.extent(0),
            .seqs = batch.next_sentence_labels.extent(0),
            .masked = batch.masked_labels.extent(0),
            .has_rows_by_word = batch.rows_by_word.has_data(),
            .gemm_mode = gemm_mode(mode),
            .decoder_mode = decoder_mode(mode),
            .makes_weight_copies = makes_copies,
            .accumulate = pass == PassKey::Pass::kBackward ? accumulate : Accumulate::kNo};
  }

  int64_t begin_of(size_t part) const {
    return part < table.part_begins.size() ? table.part_begins[part] : table.elements;
  }

  void forward(Mode mode) {
    const bool makes_copies = reads_fp8(gemm_mode(mode)) && !has_weight_copies;
    has_weight_copies = has_weight_copies || makes_copies;
    const PassKey::Pass pass =
        mode == Mode::kTrain ? PassKey::Pass::kForwardTrain : PassKey::Pass::kForwardEval;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (weights_needed) weights_needed(begin_of(pieces[i].last + 1));
      passes.run(pass_key(pass, i, makes_copies), [&] {
        if (makes_copies) copy_weights(pieces[i], mode);
        for (size_t part = pieces[i].first; part <= pieces[i].last; ++part) {
          forward_of_part(part, mode);
        }
      });
    }
  }

  /// Copies the weights of a piece's layers and of the decoder to fp8.
  void copy_weights(const Piece& piece, Mode mode) {
    std::vector<Quantize> all;
    for (size_t part = std::max<size_t>(piece.first, 1); part <= piece.last; ++part) {
      if (part > weights.layers.size()) {  // the heads
        if (!reads_fp8(decoder_mode(mode))) break;
        add_weight_copies(fp8_decoder(), std::array{weights.heads.word_table}, all);
        break;
      }
      const LayerParams& w = weights.layers[part - 1];
      add_weight_copies(
          fp8_layer(static_cast<int64_t>(part) - 1),
          std::array{w.qkv_weight, w.projection_weight, w.ff_in_weight, w.ff_out_weight}, all);
    }
    if (!all.empty()) parts.ops->run(QuantizeWeights{.weights = all});
  }

  /// Part 0 is the embeddings, part 1 + i is layer i, the last part is the heads.
  void forward_of_part(size_t part, Mode mode) {
    Ops& ops = *parts.ops;
    const int64_t layer = static_cast<int64_t>(part) - 1;
    if (part == 0) return embeddings_forward(ops, embedding_call(mode));
    if (layer == dims.L) {
      if (!ends_on_needed_rows) {
        ops.run(GatherRows{.source = activations.layers.back().y,
                           .indices = batch.needed_rows,
                           .picked = activations.heads.hidden});
      }
      const HeadCall call = head_call(mode);
      heads_forward(ops, call);
      return heads_loss(ops, call, loss_sums(), mode == Mode::kTrain);
    }
    const ProfilerRange range(*parts.device, concat("layer ", layer, " forward"));
    layer_forward(ops, layer_call(mode, layer));
  }

  void backward_of_part(size_t part) {
    Ops& ops = *parts.ops;
    const int64_t layer = static_cast<int64_t>(part) - 1;
    if (layer == dims.L) {
      heads_backward(ops, head_call(Mode::kTrain));
      if (ends_on_needed_rows) return;
      const Scratch& s = activations.scratch;
      ops.run(Fill{.values = s.d_hidden});
      return ops.run(
          ScatterAddRows{.rows = s.d_needed, .indices = batch.needed_rows, .target = s.d_hidden});
    }
    if (part > 0) {
      const ProfilerRange range(*parts.device, concat("layer ", layer, " backward"));
      return layer_backward(ops, layer_call(Mode::kTrain, layer));
    }
    if (accumulate == Accumulate::kNo) {
      // The word table already has the decoder's gradient; the tables of the embeddings alone are
      // small.
      const EmbeddingParams& g = gradients.embedding;
      for (const View& gradient : {g.position_table, g.segment_table, g.ln_gamma, g.ln_beta}) {
        ops.run(Fill{.values = gradient});
      }
    }
    embeddings_backward(ops, embedding_call(Mode::kTrain), activations.scratch.d_hidden);
  }

  ModelConfig config;
  Dims dims;
  ParamTable table;
  BatchRows capacity;
  ModelParts parts;
  Buffer memory;
  DeviceState on_device;
  BertParams weights;
  BertParams gradients;
  // The first micro-batch of a step overwrites the gradients, which saves zeroing and reading them.
  // Only the first step zeroes the buffer, for the gaps between tensors.
  Accumulate accumulate = Accumulate::kNo;
  View fresh_gradients;  // no data after the start of the first step
  WeightsNeeded weights_needed;
  RecordedPasses passes;
  std::vector<Piece> pieces;  // consecutive parts of table.part_begins: embeddings, layers, heads
  uint64_t seed = 0;
  bool has_scales = false;          // with fp8
  bool has_decoder_scales = false;  // false if a checkpoint has none
  bool has_weight_copies = false;   // of the present weights

  LastLayer last_layer = LastLayer::kNeededRows;

  // The current micro-batch and its rows of the buffers.
  BatchRows live;                    // without padding
  bool ends_on_needed_rows = false;  // the last layer computes only the needed rows
  DeviceBatch batch;
  Activations activations;
};

Bert::Bert(const ModelConfig& config, const ParamTable& table, const BatchRows& capacity,
           ModelParts parts)
    : state_(std::make_unique<State>(config, table, capacity, parts)) {
  set_scale_exponents({});
  reset_stats();
}

Bert::~Bert() = default;

void Bert::bind(const View& weights, const View& gradients, WeightsNeeded weights_needed,
                const std::vector<int64_t>& bucket_begins) {
  state_->weights = view_params(state_->table, state_->dims, weights);
  state_->gradients = view_params(state_->table, state_->dims, gradients);
  state_->fresh_gradients = gradients;
  state_->weights_needed = std::move(weights_needed);
  const std::vector<int64_t>& begins = state_->table.part_begins;
  state_->pieces = cut_pieces(begins, state_->passes.records() ? bucket_begins : begins);
  state_->passes.clear();
}

void Bert::set_random(uint64_t seed, uint64_t micro_step) {
  State& s = *state_;
  // The counter fits a double exactly; the seed does not, and changes once per run.
  if (seed != s.seed) {
    s.seed = seed;
    s.parts.device->copy(*s.parts.stream, s.on_device.random.data, &s.seed, sizeof(seed));
  }
  uint64_t* words = static_cast<uint64_t*>(s.on_device.random.data);
  s.parts.ops->run(
      Fill{.values = View(words + 1, DType::kI64, {1}), .value = static_cast<double>(micro_step)});
}

void Bert::set_last_layer(LastLayer last_layer) {
  if (last_layer == state_->last_layer) return;  // keep the graphs of a warm-up
  state_->last_layer = last_layer;
  state_->passes.clear();
}

void Bert::begin_step() {
  State& s = *state_;
  if (s.fresh_gradients.has_data()) s.parts.ops->run(Fill{.values = s.fresh_gradients});
  s.fresh_gradients = View();
  s.accumulate = Accumulate::kNo;
}

void Bert::reset_stats() {
  const View words(state_->on_device.stats.data, DType::kI64,
                   {static_cast<int64_t>(sizeof(LossStats) / sizeof(int64_t))});
  state_->parts.ops->run(Fill{.values = words});  // the bits of 0 and 0.0 are the same
}

void Bert::upload(const HostBatch& batch) {
  State& s = *state_;
  s.live = {.tokens = batch.num_tokens, .seqs = batch.num_seqs, .masked = batch.num_masked};
  BatchRows rows = padded_on(*s.parts.device, s.live);
  s.batch = s.on_device.uploader->upload(batch, rows, s.parts);
  s.ends_on_needed_rows = s.last_layer == LastLayer::kNeededRows && rows.needed < rows.tokens;
  if (s.ends_on_needed_rows) rows.last = rows.needed;
  Arena arena(s.memory);
  s.activations = allocate_activations(arena, s.dims, s.capacity, rows, s.parts.io, s.parts.fp8);
}

void Bert::forward_train(const LossMean& mean, const View& optimizer_state) {
  State& s = *state_;
  Ops& ops = *s.parts.ops;
  const View masked_count = s.activations.heads.denominators.rows(0, 1);
  const View seqs_count = s.activations.heads.denominators.rows(1, 1);
  ops.run(Fill{.values = masked_count, .value = static_cast<double>(mean.masked)});
  ops.run(Fill{.values = seqs_count, .value = static_cast<double>(mean.seqs)});
  // The scale of the gradient that the decoder rounds follows from its largest possible element.
  const Fp8Scales decoder = s.parts.fp8 ? s.fp8_decoder().gradient_scales : Fp8Scales{};
  ops.run(GradientScale{.denominator = masked_count,
                        .state = optimizer_state,
                        .target = s.activations.heads.mlm_scale,
                        .numerator = mean.numerator,
                        .fp8_scale = decoder.scale,
                        .fp8_inverse_scale = {decoder.inverse_scale.data, DType::kF32, {1}}});
  ops.run(GradientScale{.denominator = seqs_count,
                        .state = optimizer_state,
                        .target = s.activations.heads.nsp_scale,
                        .numerator = mean.numerator * mean.nsp_weight});
  s.forward(Mode::kTrain);
}

void Bert::backward(const GradientsFinal& gradients_final) {
  State& s = *state_;
  for (size_t i = s.pieces.size(); i-- > 0;) {
    s.passes.run(s.pass_key(PassKey::Pass::kBackward, i, false), [&] {
      for (size_t part = s.pieces[i].last + 1; part-- > s.pieces[i].first;) {
        s.backward_of_part(part);
      }
    });
    if (gradients_final) gradients_final(s.begin_of(s.pieces[i].first));
  }
  s.accumulate = Accumulate::kYes;
}

void Bert::forward_eval() { state_->forward(Mode::kEval); }

View Bert::mlm_logits() const { return state_->activations.heads.mlm_logits; }

std::vector<NamedView> Bert::activations() const {
  return named_activations(state_->activations, state_->live);
}

View Bert::stats() const { return state_->on_device.stats; }

size_t Bert::recorded_graphs() const { return state_->passes.graphs(); }

bool Bert::needs_scales() const { return state_->parts.fp8 && !state_->has_scales; }

View Bert::fp8_maxima() const {
  return state_->parts.fp8 ? state_->on_device.fp8.maxima() : View(nullptr, DType::kI32, {0});
}

void Bert::update_scales(const View& sum_of_squares) {
  State& s = *state_;
  if (!s.parts.fp8) return;
  bertha::update_scales(*s.parts.ops, s.on_device.fp8, sum_of_squares);
  s.has_scales = s.has_decoder_scales = true;
}

std::vector<int> Bert::scale_exponents() const {
  const State& s = *state_;
  if (!s.parts.fp8 || !s.has_scales) return {};
  const View scales = s.on_device.fp8.scales.scale;
  const Buffer pinned = s.parts.device->allocate_pinned(scales.bytes());
  s.parts.device->copy(*s.parts.stream, pinned.data(), scales.data, scales.bytes());
  s.parts.stream->wait_on_host();
  std::vector<int> exponents;
  const auto* values = static_cast<const float*>(pinned.data());
  const int64_t third = scales.elements() / 3;
  for (int64_t i = 0; i < scales.elements(); ++i) {
    const bool of_decoder = i % third == third - 1;
    if (!of_decoder || s.has_decoder_scales) exponents.push_back(std::ilogb(values[i]));
  }
  return exponents;
}

void Bert::set_scale_exponents(std::vector<int> exponents) {
  State& s = *state_;
  if (!s.parts.fp8) return;
  const auto count = static_cast<size_t>(s.on_device.fp8.scales.scale.elements());
  s.has_decoder_scales = exponents.size() == count;
  if (std::ssize(exponents) == fp8_encoder_scale_count(s.dims.L)) add_decoder(exponents);
  if (!exponents.empty() && exponents.size() != count) {
    fail(ExitCode::kData, "the checkpoint contains ", exponents.size(), " fp8 scales, want ", count,
         " for this model.");
  }
  store_scales(*s.parts.device, *s.parts.stream, s.on_device.fp8.scales, exponents);
  s.parts.ops->run(Fill{.values = s.on_device.fp8.maxima()});
  s.has_scales = !exponents.empty();
  weights_changed();
}

void Bert::weights_changed() { state_->has_weight_copies = false; }

Activation gelu_of(const ModelConfig& config) {
  return config.gelu == GeluForm::kErf ? Activation::kGelu : Activation::kGeluTanh;
}

int64_t activation_bytes_for(const ModelConfig& config, const BatchRows& capacity, DType io,
                             bool fp8) {
  Arena measure;
  allocate_state(measure, make_dims(config, capacity.seq_tokens), capacity, io, fp8);
  return measure.used_bytes();
}

}  // namespace bertha
