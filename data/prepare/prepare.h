#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/files/for_each_parallel.h"
#include "data/format/manifest.h"
#include "data/format/shard_layout.h"
#include "data/format/shard_names.h"
#include "data/prepare/pairs_and_masks.h"
#include "data/prepare/source_reader.h"

namespace bertha {

/// PrepareOptions::hold_out: 0.01, but 0 in the published form and with eval_samples.
inline constexpr double kHoldOutByForm = -1;
/// PrepareOptions::part_mib: 8, but a part per file in the published form.
inline constexpr int64_t kPartsByForm = -1;

/// The published settings are the defaults.
struct PrepareOptions {
  std::vector<std::string> inputs;  // texts, or folders of them: see source_files.h
  MissingFiles missing = MissingFiles::kRefuse;
  TextForm text_form = TextForm::kSentencePerLine;
  DocumentForm documents = DocumentForm::kAuto;
  std::string field = "text";        // for JSON lines and tables
  std::optional<TokenIds> ids = {};  // the text is token ids, see id_vocabulary()
  std::string vocab_file;            // tokenizer_config.json next to it selects cased or uncased
  std::string output_dir;
  ShardLayout layout = ShardLayout::kVariableLength;
  int64_t num_shards = 0;           // 0 = one shard per part
  GeneratorOptions generator = {};  // the same for every part
  int64_t eval_samples = 0;         // > 0: one file with that many samples instead of shards
  int64_t part_mib = kPartsByForm;  // text per part; 0 = a part per file
  double hold_out = 0;              // share of the documents that are kept for evaluation
  bool published_form_only = false;
  int workers = 0;     // threads; 0 = one per processor
  bool resume = true;  // false: make finished parts again
};

/// Whether the published generator processes the text unchanged: files of plain text, and no option
/// that changes what a sentence, a document, a part or a sample is.
bool is_published_form(const PrepareOptions& options, const std::vector<SourceFile>& sources);

struct PrepareSummary {
  Manifest manifest;
  std::optional<Manifest> held_out = {};  // manifest of eval/ in the output folder
  std::string sample = {};                // one of the training samples, as text
  int64_t parts_reused = 0;
  bool already_done = false;  // everything was there and intact; nothing was written
  double elapsed_seconds = 0;
};

/// Text -> shards and manifest.json in output_dir. In the published form (is_published_form()) each
/// text file goes through the published generator by itself, with the same seed, and becomes a
/// part.
/// Otherwise write_text_parts() cuts the texts into parts first, each with a seed of its own, and
/// the documents held out become output_dir/eval/part_eval.hdf5 (at most 10,000 samples, evenly
/// picked, no duplication) with a manifest of its own. The parts are shards already (num_shards =
/// 0), or are assigned in order to num_shards files (the first S * ceil(N / S) - N hold one sample
/// less), or `eval_samples` of all N samples are picked, i-th int(i * (N / n)).
///
/// Writes    output_dir/part_00000_of_00008.hdf5 ... or part_eval_10k.hdf5, manifest.json, and
///           checksums.chk, in the published form. Until it has finished output_dir/work/ holds the
///           parts and their records, and the records are kept if the parts are the
///           shards. Files appear by rename. A run that is repeated after a failure or a kill uses
///           finished parts again when text, vocabulary, options and versions are the same; one
///           that had finished does nothing.
/// Random    depends on the options and the text only, not on workers or interruptions.
/// Needs     memory per worker: about 4 bytes per token generated from one part, plus 100 MB;
///           a shard must fit too. Disk: outside of the published form the text once more, in
///           work/, until it has finished.
/// Errors    Error(kUsage): options. Error(kData): text, vocabulary, disk full, or output_dir holds
///           the results of other options or text; earlier results stay as they were.
PrepareSummary prepare_data(const PrepareOptions& options, const WorkProgress& progress);

/// A vocabulary file of the ids in decimals, with the special tokens at their places: `special` is
/// "cls=101,sep=102,pad=0,mask=103,unk=100". `ids` receives what read_source() wants.
/// Error(kUsage) when one is missing, out of range or given twice.
std::string id_vocabulary(const std::string& special, int64_t vocab_size, TokenIds& ids);

/// The published selection: sample i of n is number int(i * (N / n)), in doubles.
/// Error(kData) when N < n.
std::vector<int64_t> eval_selection(int64_t num_samples, int64_t num_selected);

}  // namespace bertha
