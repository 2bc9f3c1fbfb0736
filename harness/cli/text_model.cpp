#include "harness/cli/text_model.h"

#include <algorithm>
#include <utility>

#include "data/pipeline/collate.h"
#include "harness/cli/options.h"
#include "harness/comm/binding.h"
#include "harness/train/pinned_pool.h"
#include "harness/train/precision.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"
#include "kernels/ops/elementwise.h"

namespace bertha {
namespace {

DType io_of(const TextModelOptions& options) {
  TrainConfig train;
  train.precision = options.precision;
  return planned_io(train, false);
}

// A device that has the precision.
std::unique_ptr<Backend> backend_for(const TextModelOptions& options, const std::string& command,
                                     World& world) {
  if (world.size() != 1) {
    fail(ExitCode::kUsage, command, " runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  const RankGpu gpu = choose_gpu(options.backend, world);
  const CoreShare cores = core_share(world);
  std::unique_ptr<Backend> backend = make_backend(gpu, {}, cores.threads, world);
  if (const DType io = io_of(options); !backend->device().has_io(io)) {
    fail(ExitCode::kUsage, backend->device().description(), " has no ", name(io),
         "; give --precision fp32, or --backend cuda on a machine with a GPU.");
  }
  return backend;
}

WeightFolder folder_for(FolderRequest request) {
  request.weights.missing_heads = MissingHeads::kFresh;
  WeightFolder folder = read_weight_folder(request);
  if (folder.vocab.empty()) {
    fail(ExitCode::kData, request.weights.path,
         ": no vocab.txt lies beside the weights; name one with --vocab.");
  }
  return folder;
}

}  // namespace

TextModel::TextModel(const TextModelOptions& options, const std::string& command, World& world)
    : backend_(backend_for(options, command, world)),
      batch_memory_(make_pinned_pool(backend_->device())),
      folder_(folder_for(options.request)),
      vocabulary_(Vocabulary::load(folder_.vocab)),
      tokenizer_(vocabulary_, folder_.tokenizer),
      bert_(
          folder_.model, folder_.table,
          {.tokens = folder_.model.max_positions, .seqs = 1, .masked = folder_.model.max_positions},
          {.device = &backend_->device(),
           .stream = &backend_->stream(),
           .ops = &backend_->ops(),
           .io = io_of(options)}) {
  bind_weights(io_of(options));
}

void TextModel::bind_weights(DType io) {
  const int64_t elements = folder_.table.elements;
  Device& device = backend_->device();
  Buffer exact = device.allocate(elements * size_bytes(DType::kF32));
  device.copy(backend_->stream(), exact.data(), folder_.flat.data(), exact.bytes());
  const View from(exact.data(), DType::kF32, {elements});
  if (io == DType::kF32) {
    weights_ = std::move(exact);
  } else {
    weights_ = device.allocate(elements * size_bytes(io));
    backend_->ops().run(Cast{.from = from, .to = View(weights_.data(), io, {elements})});
  }
  backend_->stream().wait_on_host();
  const View flat(weights_.data(), io, {elements});
  bert_.bind(flat, flat);  // no gradient is ever written
}

bool TextModel::has(ModelPart part) const {
  return std::find(fresh().begin(), fresh().end(), part) == fresh().end();
}

void TextModel::append_sentence(const std::string& text, std::vector<int16_t>& ids) {
  for (size_t begin = 0;;) {
    const size_t mask = text.find(kMaskWord, begin);
    tokenizer_.append_ids(std::string_view(text).substr(begin, mask - begin), ids);
    if (mask == std::string::npos) break;
    ids.push_back(vocabulary_.special().mask);
    begin = mask + kMaskWord.size();
  }
  ids.push_back(vocabulary_.special().separator);
}

TokenizedLine TextModel::tokenize(const std::string& text, const std::string& place) {
  TokenizedLine line;
  line.ids.push_back(vocabulary_.special().classify);
  const size_t tab = text.find('\t');
  append_sentence(text.substr(0, tab), line.ids);
  line.segments.assign(line.ids.size(), 0);
  if (tab != std::string::npos) append_sentence(text.substr(tab + 1), line.ids);
  line.segments.resize(line.ids.size(), 1);
  if (std::ssize(line.ids) > model().max_positions) {
    fail(ExitCode::kData, place, " has ", line.ids.size(), " tokens, and the model takes ",
         model().max_positions, "; split it.");
  }
  for (size_t i = 0; i < line.ids.size(); ++i) {
    if (line.ids[i] == vocabulary_.special().mask) line.masked.push_back(static_cast<int16_t>(i));
  }
  const int64_t words =
      std::ssize(line.ids) - std::ssize(line.masked) - (tab == std::string::npos ? 2 : 3);
  const int64_t unknown = std::ranges::count(line.ids, vocabulary_.special().unknown);
  if (unknown > words / 2 && !std::exchange(has_warned_, true)) {
    log_line(LogLevel::kWarning,
             concat(place, ": ", unknown, " of ", words, " tokens are [UNK] in ", folder_.vocab,
                    ", with ", to_text(folder_.tokenizer),
                    "; a cased model states do_lower_case false in ",
                    tokenizer_config_path(folder_.vocab)));
  }
  return line;
}

MaskLogits TextModel::run(const TokenizedLine& line) {
  // The labels are not known: the mask itself.
  const std::vector<int16_t> labels(line.masked.size(), vocabulary_.special().mask);
  const HostBatch batch = collate({SampleView{.token_ids = line.ids,
                                              .segment_ids = line.segments,
                                              .masked_positions = line.masked,
                                              .masked_ids = labels}},
                                  128, batch_memory_);
  bert_.upload(batch);
  bert_.reset_stats();
  bert_.forward_eval();
  const View logits = bert_.mlm_logits();
  return {.values = on_host(logits, std::ssize(line.masked)), .vocab_rows = logits.extent(1)};
}

// The first rows of [., columns].
std::vector<float> TextModel::on_host(const View& view, int64_t rows) {
  const int64_t elements = rows * view.extent(1);
  std::vector<float> values(static_cast<size_t>(elements));
  if (values.empty()) return values;
  Device& device = backend_->device();
  View live(view.data, view.dtype, {elements});
  Buffer widened;
  if (live.dtype != DType::kF32) {
    widened = device.allocate(elements * size_bytes(DType::kF32));
    const View to(widened.data(), DType::kF32, {elements});
    backend_->ops().run(Cast{.from = live, .to = to});
    live = to;
  }
  device.copy(backend_->stream(), values.data(), live.data, elements * size_bytes(DType::kF32));
  backend_->stream().wait_on_host();
  return values;
}

void add_text_model_options(CLI::App& command, TextModelOptions& options) {
  add_text(command, "--checkpoint", options.request.weights.path, "PATH",
           "Weights, as for `bertha checkpoint export`")
      .required();
  add_text(command, "--model-config", options.request.stated_model, "FILE",
           "config.json or bert_config.json (default: the one beside the weights)");
  add_text(command, "--vocab", options.request.vocab, "FILE",
           "Vocabulary (default: vocab.txt beside the weights)");
  add_choice<ComputeBackend>(command, "--backend", options.backend,
                             "Where it runs (default cpu); auto = cuda where a GPU answers");
  add_choice<Precision>(command, "--precision", options.precision,
                        {Precision::kFp32, Precision::kBf16, Precision::kFp16},
                        "Of weights and activations (default fp32; the CPU has no other)");
}

}  // namespace bertha
