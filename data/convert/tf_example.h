#pragma once

#include <data/files/tensorflow.pb.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "data/format/sample.h"

namespace bertha {

/// Decodes the published tf.train.Example of one sample: input_ids, input_mask, segment_ids [S],
/// masked_lm_positions, masked_lm_ids, masked_lm_weights [P], next_sentence_labels [1]; weights are
/// floats, all others integers; S and P are the limits. Other features are ignored.
///
/// Threads   one per object.
class ExampleDecoder {
 public:
  using Wrong = std::function<void(const std::string& what)>;  // throws
  ExampleDecoder(const SampleLimits& limits, Wrong wrong);

  /// The sample, which lives until the next call. Ids that are not int32 are refused here; the rest
  /// is for check_sample().
  SampleView decode(std::span<const std::byte> record);

 private:
  SampleLimits limits_;
  Wrong wrong_;
  tf::Example example_;  // kept, since it then keeps its memory too
  SampleSet sample_;
};

}  // namespace bertha
