#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "data/format/sample.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/vocabulary.h"
#include "kernels/base/error.h"

namespace bertha {

/// The segments of a sample.
enum class Segments : uint8_t {
  kPairs,  // [CLS] A [SEP] B [SEP]: two runs of sentences, the second often of another document
  kOne,    // [CLS] A [SEP]: the next tokens of a document, as many as fit; no next-sentence task
};

/// The published settings are the defaults.
struct GeneratorOptions {
  uint64_t seed = 12345;
  int64_t duplication = 10;  // passes over the text, each with its own pairs and masks
  int64_t max_seq_tokens = 512;
  int64_t max_masked_per_seq = 76;
  double masked_fraction = 0.15;
  double short_seq_probability = 0.1;  // for pairs
  Segments segments = Segments::kPairs;
};

/// Error(kUsage) naming the option, unless the value is in the range.
template <class T>
void check_range(const char* option, T value, T least, T most = std::numeric_limits<T>::max()) {
  if (value >= least && value <= most) return;  // no NaN is
  fail(ExitCode::kUsage, option, " ", value, ", want ", least,
       most == std::numeric_limits<T>::max() ? " or more" : concat(" to ", most));
}

/// Error(kUsage) naming the option, unless the generator can work with the options.
void check_options(const GeneratorOptions& options);

/// The samples as they were drawn, and the order in which they belong into the file.
struct GeneratedSamples {
  SampleSet samples;
  std::vector<int64_t> order;  // [samples]  a permutation
  // Tokens of the documents that were cut off, in the mean over the passes: each sentence comes
  // once in a pass, as part of a first segment or as the text that follows one.
  int64_t dropped_tokens = 0;

  int64_t size() const { return samples.size(); }
  /// The sample at a place of the file; its id is the place.
  SampleView at(int64_t place) const {
    SampleView sample = samples[order[static_cast<size_t>(place)]];
    sample.id = place;
    return sample;
  }
};

/// Sentence pairs with masked tokens: the published generator on the documents of one part file;
/// or, with Segments::kOne, blocks of a document, label 0, masked in the same way.
///
/// Random    A function of the seed and the documents: CPython's random.Random(seed), called in the
///           published order (one short-sequence draw per document and pass, no draw for a
///           next sentence that must be random, banker's rounding of the number of masked tokens,
///           random words over the whole vocabulary in file order).
/// Exact     Pairs: bit for bit the published samples; tests/golden/make_pretraining_golden.py.
/// Needs     at least one document. Memory: about 4 bytes per token written.
/// Source    MLPerf Training BERT reference, create_pretraining_data.py.
GeneratedSamples generate_samples(const Documents& documents, const Vocabulary& vocabulary,
                                  const GeneratorOptions& options);

}  // namespace bertha
