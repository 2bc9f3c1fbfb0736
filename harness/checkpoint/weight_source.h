#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace bertha {

enum class WeightFormat : uint8_t { kHuggingFace, kTensorFlow };
/// Whose names the tensors have.
enum class WeightNaming : uint8_t { kHuggingFace, kOfficialTensorFlow, kModelGarden };

/// Where a set of weights lies.
struct WeightPlace {
  WeightFormat format = WeightFormat::kHuggingFace;
  std::string path;    // the safetensors file; for TensorFlow the prefix of its files
  std::string folder;  // the folder with that file, and perhaps config.json and vocab.txt
};

/// Finds the weights that a user means by a folder (a checkpoint or run of ours, Hugging Face's, or
/// one with a single TensorFlow checkpoint), a .safetensors file, or a TensorFlow checkpoint's
/// prefix or any of its files.
///
/// Errors    Error(kData) that says what is there instead, and what to do with it.
WeightPlace locate_weights(const std::string& path);

struct SourceTensor {
  std::string dtype;  // as in safetensors
  std::vector<int64_t> shape;
};

/// A set of named tensors, whoever wrote it.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Under the names that their writer gave them, without prefix(): for tf.train.Checkpoint the
  /// variables' own names, and the paths among saved objects where the model garden wrote them.
  const std::map<std::string, SourceTensor>& tensors() const { return tensors_; }
  WeightNaming naming() const { return naming_; }
  /// "module." or "_orig_mod.", which PyTorch's wrappers put before every name; "" = none.
  const std::string& prefix() const { return prefix_; }
  /// All elements of a tensor of F32, F16 or BF16, row-major, as f32. Error(kData) for other types
  /// and for damage.
  virtual std::vector<float> read(const std::string& name) const = 0;

 protected:
  std::map<std::string, SourceTensor> tensors_;
  WeightNaming naming_ = WeightNaming::kHuggingFace;
  std::string prefix_;
};

/// Error(kData) when the list of tensors cannot be read.
std::unique_ptr<WeightSource> open_weights(const WeightPlace& place);
/// The variables of a TensorFlow checkpoint by their names. Where tf.train.Checkpoint wrote it,
/// they are those that the saved object graph states, and for models of the model garden the paths
/// among saved objects, with the shapes of the official code.
std::unique_ptr<WeightSource> open_tf_weights(const std::string& prefix);

/// "[37,16]".
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace bertha
