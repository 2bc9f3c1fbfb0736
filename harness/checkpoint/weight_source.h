#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace bertha {

enum class WeightFormat : uint8_t { kHuggingFace, kTensorFlow };
/// Whose naming the tensors follow.
enum class WeightNaming : uint8_t { kHuggingFace, kOfficialTensorFlow, kModelGarden };

/// The location of a set of weights.
struct WeightPlace {
  WeightFormat format = WeightFormat::kHuggingFace;
  std::string path;    // the safetensors file; for TensorFlow the prefix of its files
  std::string folder;  // the folder with that file and possibly config.json and vocab.txt
};

/// Finds the weights of a folder (a checkpoint or run of Bertha, a Hugging Face folder, or one with
/// a single TensorFlow checkpoint), a .safetensors file, or a TensorFlow checkpoint's prefix or any
/// of its files.
///
/// Errors    Error(kData) that says what was found instead, and what to do with it.
WeightPlace locate_weights(const std::string& path);

struct SourceTensor {
  std::string dtype;  // as in safetensors
  std::vector<int64_t> shape;
};

/// A set of named tensors from any writer.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Tensors by their writer's names, without prefix(): for tf.train.Checkpoint the variables' own
  /// names, or the paths among saved objects if the model garden wrote them.
  const std::map<std::string, SourceTensor>& tensors() const { return tensors_; }
  WeightNaming naming() const { return naming_; }
  /// "module." or "_orig_mod.", which PyTorch's wrappers put before every name; "" = none.
  const std::string& prefix() const { return prefix_; }
  /// All elements of an F32, F16 or BF16 tensor, row-major, as f32. Error(kData) for other types
  /// and for damage.
  virtual std::vector<float> read(const std::string& name) const = 0;

 protected:
  std::map<std::string, SourceTensor> tensors_;
  WeightNaming naming_ = WeightNaming::kHuggingFace;
  std::string prefix_;
};

/// Error(kData) if the list of tensors cannot be read.
std::unique_ptr<WeightSource> open_weights(const WeightPlace& place);
/// The variables of a TensorFlow checkpoint by their names. If tf.train.Checkpoint wrote it, the
/// names come from the saved object graph; for models of the model garden they are the paths among
/// saved objects, with the shapes of the official code.
std::unique_ptr<WeightSource> open_tf_weights(const std::string& prefix);

/// "[37,16]".
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace bertha
