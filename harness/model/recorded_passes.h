#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "harness/model/encoder_gemms.h"
#include "kernels/base/arguments.h"
#include "kernels/base/device.h"

namespace bertha {

/// All that determines what a piece of a pass enqueues, except the contents of device memory.
struct PassKey {
  enum class Pass : uint8_t { kForwardTrain, kBackward, kForwardEval };
  Pass pass = Pass::kForwardTrain;
  size_t piece = 0;  // index of the model's piece
  int64_t tokens = 0;
  int64_t seqs = 0;
  int64_t masked = 0;
  bool has_rows_by_word = false;
  GemmMode gemm_mode = GemmMode::kIo;
  GemmMode decoder_mode = GemmMode::kIo;
  bool makes_weight_copies = false;         // in fp8
  Accumulate accumulate = Accumulate::kNo;  // in backward

  auto operator<=>(const PassKey&) const = default;
};

/// Passes of the model as device graphs. A piece of a pass is enqueued operation by operation when
/// its key first occurs, recorded when it occurs again, and launched as a graph from then on: one
/// host call instead of hundreds, and shorter gaps between kernels.
class RecordedPasses {
 public:
  /// Without `records` everything is enqueued operation by operation.
  RecordedPasses(Device& device, Stream& stream, bool records)
      : device_(device), stream_(stream), records_(records) {}

  bool records() const { return records_; }
  void run(const PassKey& key, const std::function<void()>& enqueue);
  size_t graphs() const { return graphs_; }  // recorded so far
  /// Drops all graphs, after a change of addresses.
  void clear() {
    kept_.clear();
    graphs_ = 0;
  }

 private:
  Device& device_;
  Stream& stream_;
  bool records_;
  std::map<PassKey, std::unique_ptr<Graph>> kept_;  // null: has run, without a graph
  size_t graphs_ = 0;
};

/// Consecutive parts of the model, the embeddings being part 0, without a collective call in
/// between.
struct Piece {
  size_t first = 0;
  size_t last = 0;  // included

  bool operator==(const Piece&) const = default;
};

/// Divides the model before each part in which a bucket begins: forward waits there for weights,
/// and backward has finished gradients. part_begins, bucket_begins: elements of the flat buffer,
/// ascending; the first part begins at 0.
std::vector<Piece> cut_pieces(const std::vector<int64_t>& part_begins,
                              const std::vector<int64_t>& bucket_begins);

}  // namespace bertha
