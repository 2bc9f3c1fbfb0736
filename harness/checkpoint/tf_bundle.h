#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bertha {

/// The place of a tensor in a TensorFlow checkpoint: bytes of one data file, little-endian,
/// row-major.
struct TfTensor {
  std::string dtype;  // "F32", "F16", "BF16", "I64", ..., as safetensors names them; "STRING"
  std::vector<int64_t> shape;
  int64_t shard = 0;
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
  uint32_t crc = 0;     // masked CRC-32C of the bytes
  bool sliced = false;  // a partitioned variable, whose bytes are elsewhere, in parts
};

/// A checkpoint in TensorFlow's format V2 ("tensor bundle"): <prefix>.index lists the tensors,
/// <prefix>.data-00000-of-0000n contain their bytes. Written by tf.compat.v1.train.Saver and
/// tf.train.Checkpoint.
///
/// Errors    Error(kData) naming the file, or the tensor: a damaged index, big-endian data, a newer
///           format, a missing or short data file, a checksum that differs.
class TfBundle {
 public:
  explicit TfBundle(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  /// Tensors by key: the variable's name, or for tf.train.Checkpoint its path among the saved
  /// objects.
  const std::map<std::string, TfTensor>& tensors() const { return tensors_; }
  /// The tensor's bytes, after comparing their checksum.
  std::string read(const std::string& key) const;
  /// The only element of a string tensor of no dimensions.
  std::string read_string(const std::string& key) const;

 private:
  std::string shard_path(int64_t shard) const;
  std::string read_range(const std::string& key, const TfTensor& tensor) const;

  std::string prefix_;
  int64_t num_shards_ = 0;
  std::map<std::string, TfTensor> tensors_;
};

}  // namespace bertha
