#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/format/sample.h"
#include "data/format/shard_file.h"

namespace bertha {

/// Decodes the published tf.train.Example of one sample: input_ids, input_mask, segment_ids [S],
/// masked_lm_positions, masked_lm_ids, masked_lm_weights [P], next_sentence_labels [1]; integers,
/// weights floats; S and P those of the limits. Other features are passed over.
///
/// Threads   one per object.
/// Source    protobuf's wire format; tensorflow/core/example/{example,feature}.proto.
class ExampleDecoder {
 public:
  using Wrong = std::function<void(const std::string& what)>;  // throws
  ExampleDecoder(const SampleLimits& limits, Wrong wrong);

  /// The sample, which lives until the next call. Ids that are no int16 are refused here; the rest
  /// is for check_sample().
  SampleView decode(std::span<const std::byte> record);

 private:
  struct Values {
    bool found = false;
    std::vector<int64_t> integers;
    std::vector<float> floats;
  };
  void read_entry(std::span<const std::byte> entry);
  void read_feature(size_t index, std::span<const std::byte> feature);
  size_t live_count(size_t index) const;

  SampleLimits limits_;
  Wrong wrong_;
  std::array<Values, 7> values_;
  SampleSet sample_;
};

}  // namespace bertha
