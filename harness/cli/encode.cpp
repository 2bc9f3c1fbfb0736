#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "data/pipeline/collate.h"
#include "data/pipeline/pipeline.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/wordpiece.h"
#include "harness/backend.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/weight_folder.h"
#include "harness/cli/checkpoint_commands.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/comm/binding.h"
#include "harness/model/bert.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

constexpr const char* kMaskWord = "[MASK]";

struct EncodeOptions {
  FolderRequest request;
  std::string text;
  std::string output;
  std::string backend = "cpu";  // as train.backend
  DType io = DType::kF32;
};

// One line: [CLS] first [SEP], and second [SEP] after a tab.
struct EncodedLine {
  std::vector<int16_t> ids;
  std::vector<int8_t> segments;
  std::vector<int16_t> masked;  // places of [MASK]
  std::vector<int16_t> labels;  // unknown: the mask itself
};

class LineEncoder {
 public:
  LineEncoder(const std::string& vocab, int64_t max_tokens)
      : vocabulary_(Vocabulary::load(vocab)), tokenizer_(vocabulary_), max_tokens_(max_tokens) {}

  EncodedLine encode(const std::string& text, int64_t number) {
    EncodedLine line;
    line.ids.push_back(vocabulary_.special().classify);
    const size_t tab = text.find('\t');
    append(text.substr(0, tab), line.ids);
    line.segments.assign(line.ids.size(), 0);
    if (tab != std::string::npos) append(text.substr(tab + 1), line.ids);
    line.segments.resize(line.ids.size(), 1);
    const auto tokens = static_cast<int64_t>(line.ids.size());
    if (tokens > max_tokens_) {
      fail(ExitCode::kData, "line ", number, " has ", tokens, " tokens, and the model takes ",
           max_tokens_, "; split it.");
    }
    for (size_t i = 0; i < line.ids.size(); ++i) {
      if (line.ids[i] == vocabulary_.special().mask) line.masked.push_back(static_cast<int16_t>(i));
    }
    line.labels.assign(line.masked.size(), vocabulary_.special().mask);
    return line;
  }

 private:
  void append(const std::string& text, std::vector<int16_t>& ids) {
    for (size_t begin = 0;;) {
      const size_t mask = text.find(kMaskWord, begin);
      tokenizer_.append_ids(std::string_view(text).substr(begin, mask - begin), ids);
      if (mask == std::string::npos) break;
      ids.push_back(vocabulary_.special().mask);
      begin = mask + std::string_view(kMaskWord).size();
    }
    ids.push_back(vocabulary_.special().separator);
  }

  Vocabulary vocabulary_;
  WordPieceTokenizer tokenizer_;
  int64_t max_tokens_;
};

// The model without dropout, in some precision; what it gives is f32 on the host.
class Encoder {
 public:
  struct Outputs {
    std::vector<float> hidden, pooled, nsp_logits, mlm_logits;  // live rows only
    int64_t logits_per_row = 0;                                 // the padded vocabulary
  };

  Encoder(const WeightFolder& folder, Backend backend, DType io)
      : backend_(std::move(backend)),
        bert_(
            folder.model, folder.table,
            {.tokens = folder.model.max_positions, .seqs = 1, .masked = folder.model.max_positions},
            {.device = backend_.device.get(),
             .stream = backend_.stream.get(),
             .ops = backend_.ops.get(),
             .io = io}) {
    const int64_t elements = folder.table.elements;
    Device& device = *backend_.device;
    Buffer exact = device.allocate(elements * size_bytes(DType::kF32));
    device.copy(*backend_.stream, exact.data(), folder.flat.data(), exact.bytes());
    const View from(exact.data(), DType::kF32, {elements});
    if (io == DType::kF32) {
      weights_ = std::move(exact);
    } else {
      weights_ = device.allocate(elements * size_bytes(io));
      backend_.ops->run(Cast{.from = from, .to = View(weights_.data(), io, {elements})});
    }
    backend_.stream->wait_on_host();
    const View flat(weights_.data(), io, {elements});
    bert_.bind(flat, flat);  // no gradient is ever written
  }

  Outputs run(const EncodedLine& line) {
    const HostAllocator allocate = [this](int64_t bytes) {
      const auto buffer = std::make_shared<Buffer>(backend_.device->allocate_pinned(bytes));
      return std::shared_ptr<void>(buffer, buffer->data());
    };
    const HostBatch batch = collate({SampleView{.token_ids = line.ids,
                                                .segment_ids = line.segments,
                                                .masked_positions = line.masked,
                                                .masked_ids = line.labels}},
                                    128, allocate);
    bert_.upload(batch);
    bert_.reset_stats();
    bert_.forward_eval();
    const Bert::Outputs out = bert_.outputs();
    return {.hidden = on_host(out.hidden, std::ssize(line.ids)),
            .pooled = on_host(out.pooled, 1),
            .nsp_logits = on_host(out.nsp_logits, 1),
            .mlm_logits = on_host(out.mlm_logits, std::ssize(line.masked)),
            .logits_per_row = out.mlm_logits.extent(1)};
  }

 private:
  // The first rows of [., columns]. Blocks: the host.
  std::vector<float> on_host(const View& view, int64_t rows) {
    const int64_t elements = rows * view.extent(1);
    std::vector<float> values(static_cast<size_t>(elements));
    if (values.empty()) return values;
    Device& device = *backend_.device;
    View live(view.data, view.dtype, {elements});
    Buffer widened;
    if (live.dtype != DType::kF32) {
      widened = device.allocate(elements * size_bytes(DType::kF32));
      const View to(widened.data(), DType::kF32, {elements});
      backend_.ops->run(Cast{.from = live, .to = to});
      live = to;
    }
    device.copy(*backend_.stream, values.data(), live.data, elements * size_bytes(DType::kF32));
    backend_.stream->wait_on_host();
    return values;
  }

  Backend backend_;
  Buffer weights_;  // io [table.elements]
  Bert bert_;
};

// What all lines gave, in their order.
struct Results {
  std::vector<int32_t> token_ids, cu_seqlens{0}, masked_rows;
  std::vector<float> hidden, mean, pooled, nsp_logits, mlm_logits;

  void append(const EncodedLine& line, const Encoder::Outputs& out, const ModelConfig& model) {
    const int32_t begin = cu_seqlens.back();
    const auto tokens = static_cast<int64_t>(line.ids.size());
    token_ids.insert(token_ids.end(), line.ids.begin(), line.ids.end());
    cu_seqlens.push_back(begin + static_cast<int32_t>(tokens));
    for (const int16_t place : line.masked) masked_rows.push_back(begin + place);
    const float* rows = out.hidden.data();
    hidden.insert(hidden.end(), out.hidden.begin(), out.hidden.end());
    for (int64_t h = 0; h < model.hidden; ++h) {
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) sum += static_cast<double>(rows[t * model.hidden + h]);
      mean.push_back(static_cast<float>(sum / static_cast<double>(tokens)));
    }
    pooled.insert(pooled.end(), out.pooled.begin(), out.pooled.end());
    nsp_logits.insert(nsp_logits.end(), out.nsp_logits.begin(), out.nsp_logits.end());
    for (size_t m = 0; m < line.masked.size(); ++m) {
      const float* row = out.mlm_logits.data() + static_cast<int64_t>(m) * out.logits_per_row;
      mlm_logits.insert(mlm_logits.end(), row, row + model.vocab_size);
    }
  }
};

void write(const std::string& path, const Results& r, const ModelConfig& model,
           const std::vector<ModelPart>& fresh) {
  const auto has = [&](ModelPart part) {
    return std::find(fresh.begin(), fresh.end(), part) == fresh.end();
  };
  const int64_t lines = std::ssize(r.cu_seqlens) - 1;
  const int64_t masked = std::ssize(r.masked_rows);
  struct Floats {
    const char* name;
    std::vector<int64_t> shape;
    const std::vector<float>& values;
    bool known;
  };
  const bool pooler = has(ModelPart::kPooler);
  const Floats floats[] = {
      {"hidden", {std::ssize(r.token_ids), model.hidden}, r.hidden, true},
      {"mean", {lines, model.hidden}, r.mean, true},
      {"pooled", {lines, model.hidden}, r.pooled, pooler},
      {"nsp_logits", {lines, 2}, r.nsp_logits, pooler && has(ModelPart::kSentenceHead)},
      {"mlm_logits", {masked, model.vocab_size}, r.mlm_logits, has(ModelPart::kMaskedTokenHead)}};
  std::vector<SafeTensorsWriter::Entry> entries = {
      {.name = "token_ids", .shape = {std::ssize(r.token_ids)}, .dtype = "I32"},
      {.name = "cu_seqlens", .shape = {lines + 1}, .dtype = "I32"},
      {.name = "masked_rows", .shape = {masked}, .dtype = "I32"}};
  for (const Floats& f : floats) {
    if (f.known) entries.push_back({.name = f.name, .shape = f.shape});
  }
  SafeTensorsWriter writer(path, entries, {{"written_by", "bertha"}});
  for (const auto* ints : {&r.token_ids, &r.cu_seqlens, &r.masked_rows}) {
    writer.append(ints->data(), std::ssize(*ints));
  }
  for (const Floats& f : floats) {
    if (f.known) writer.append(f.values.data(), std::ssize(f.values));
  }
  writer.finish();
}

// A device that has the precision.
Backend backend_for(const EncodeOptions& options, World& world) {
  if (world.size() != 1) {
    fail(ExitCode::kUsage, "encode runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  TrainConfig train;
  train.backend = options.backend;
  const BackendChoice choice = choose_backend(train, world);
  const CoreShare cores = take_core_share(world, choice.gpu_bus_id);
  Backend backend = make_backend(choice, {}, cores.threads, world);
  if (!backend.device->has_io(options.io)) {
    fail(ExitCode::kUsage, backend.device->description(), " has no ", name(options.io),
         "; give --precision fp32, or --backend cuda on a machine with a GPU.");
  }
  return backend;
}

int run_encode(EncodeOptions options, CommandContext& context) {
  Backend backend = backend_for(options, *context.world);
  options.request.weights.missing_heads = MissingHeads::kFresh;  // what is fresh is not written
  options.request.weights.path = weights_at(options.request.weights.path);
  WeightFolder folder = read_weight_folder(options.request);
  const std::vector<ModelPart>& fresh = folder.loaded.fresh;
  if (folder.vocab.empty()) {
    fail(ExitCode::kData, options.request.weights.path,
         ": no vocab.txt lies beside the weights; name one with --vocab.");
  }
  LineReader text(options.text);
  LineEncoder lines(folder.vocab, folder.model.max_positions);
  Encoder encoder(folder, std::move(backend), options.io);
  Results results;
  while (const std::optional<std::string_view> line = text.next()) {
    const EncodedLine encoded = lines.encode(std::string(*line), text.line_number());
    results.append(encoded, encoder.run(encoded), folder.model);
  }
  write(options.output, results, folder.model, fresh);
  for (const ModelPart part : fresh) {
    log_line(LogLevel::kInfo,
             concat("the weights have no ", name_of(part), ": nothing of it is written"));
  }
  const int64_t tokens = std::ssize(results.token_ids);
  std::cout << options.output << ": " << counted_text(text.line_number(), "line") << ", "
            << counted_text(tokens, "token") << '\n';
  return 0;
}

}  // namespace

void add_encode_command(CLI::App& program, Chosen& chosen) {
  CLI::App& encode = add_command(
      program, chosen,
      {.name = "encode",
       .description =
           "Runs lines of text through a model, ours or another's, and writes one safetensors "
           "file: hidden states of every token, their mean and the pooled state of every line, "
           "logits of the sentence head, and of each [MASK]. A tab divides a line into two "
           "sentences.",
       .examples = {"bertha encode --checkpoint runs/latest --text lines.txt "
                    "--output out.safetensors",
                    "bertha encode --checkpoint bert-base-uncased --text lines.txt --output "
                    "out.safetensors",
                    "bertha encode --checkpoint MiniLM --vocab vocab.txt --text lines.txt --output "
                    "out.safetensors --backend cuda --precision bf16"}});
  const auto options = std::make_shared<EncodeOptions>();
  add_text(encode, "--checkpoint", options->request.weights.path, "PATH",
           "Weights, as for `bertha checkpoint export`")
      ->required();
  add_text(encode, "--text", options->text, "FILE", "Text, UTF-8, a line at a time")->required();
  add_text(encode, "-o,--output", options->output, "FILE", "File to write")->required();
  add_text(encode, "--model-config", options->request.stated_model, "FILE",
           "config.json or bert_config.json (default: the one beside the weights)");
  add_text(encode, "--vocab", options->request.vocab, "FILE",
           "Vocabulary (default: vocab.txt beside the weights)");
  add_word(encode, "--backend", options->backend, {"cpu", "cuda", "auto"},
           "Where it runs (default cpu); auto = cuda where a GPU answers");
  add_choice<DType>(encode, "--precision", options->io,
                    {{"fp32", DType::kF32}, {"bf16", DType::kBF16}, {"fp16", DType::kF16}},
                    "Of weights and activations (default fp32; the CPU has no other)");
  set_action(encode, chosen,
             [options](CommandContext& context) { return run_encode(*options, context); });
}

}  // namespace bertha
