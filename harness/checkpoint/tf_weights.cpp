#include <data/files/tensorflow.pb.h>

#include <utility>

#include "harness/checkpoint/model_garden.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/tf_bundle.h"
#include "harness/checkpoint/weight_source.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr const char* kGraphKey = "_CHECKPOINTABLE_OBJECT_GRAPH";

/// Calls `use` with key and name of each variable in a saved object graph.
template <class Use>
void for_each_variable(const std::string& graph, const std::string& origin, const Use& use) {
  tf::ObjectGraph objects;
  if (!objects.ParseFromString(graph)) {
    fail(ExitCode::kData, origin, ": cannot be read; the file is damaged, copy it again.");
  }
  for (const tf::ObjectNode& node : objects.nodes()) {
    for (const tf::SavedTensor& tensor : node.attributes()) {
      if (!tensor.full_name().empty()) use(tensor.checkpoint_key(), tensor.full_name());
    }
  }
}

class TfSource : public WeightSource {
 public:
  explicit TfSource(const std::string& prefix) : bundle_(prefix) {
    naming_ = WeightNaming::kOfficialTensorFlow;
    for (const auto& [key, tensor] : bundle_.tensors()) {
      key_of_[key] = key;
      if (is_model_garden_path(key)) naming_ = WeightNaming::kModelGarden;
    }
    // The paths of the model garden's variables are more specific than their names.
    if (naming_ != WeightNaming::kModelGarden && bundle_.tensors().contains(kGraphKey)) {
      for_each_variable(
          bundle_.read_string(kGraphKey), prefix + ".index: its graph of objects",
          [&](const std::string& key, const std::string& name) { rename(key, name); });
    }
    for (const auto& [name, key] : key_of_) {
      const TfTensor& tensor = bundle_.tensors().at(key);
      std::vector<int64_t> shape = tensor.shape;
      if (naming_ == WeightNaming::kModelGarden) {
        const std::string official_name = official_name_of(name, shape);  // before shape is moved
        shape = without_heads(official_name, std::move(shape));
      }
      tensors_[name] = {.dtype = tensor.dtype, .shape = std::move(shape)};
    }
  }

  std::vector<float> read(const std::string& name) const override {
    const std::string& key = key_of_.at(name);
    const TfTensor& tensor = bundle_.tensors().at(key);
    const std::string bytes = bundle_.read(key);
    if (!is_read_as_float(tensor.dtype)) {
      fail(ExitCode::kData, bundle_.prefix(), ": tensor ", name, " is ", tensor.dtype,
           ", want F32, F16 or BF16; save it as one of these.");
    }
    std::vector<float> values = as_floats(tensor.dtype, bytes);
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= extent;
    if (static_cast<int64_t>(values.size()) != elements) {
      fail(ExitCode::kData, bundle_.prefix(), ": tensor ", name, " has ", bytes.size(),
           " bytes, which do not fill its shape ", shape_text(tensor.shape),
           "; the index is damaged, copy it again.");
    }
    return values;
  }

 private:
  /// Maps the path among the saved objects to the variable's name. State of an optimizer keeps its
  /// path because it may have the same name as its variable.
  void rename(const std::string& key, const std::string& name) {
    if (key.find("/.OPTIMIZER_SLOT/") != std::string::npos) return;
    if (!key_of_.contains(key)) return;
    if (key_of_.contains(name)) {
      fail(ExitCode::kData, bundle_.prefix(), ": two variables are named ", name,
           "; give them different names and save again.");
    }
    key_of_.erase(key);
    key_of_[name] = key;
  }

  TfBundle bundle_;
  std::map<std::string, std::string> key_of_;  // by the name in tensors()
};

}  // namespace

std::unique_ptr<WeightSource> open_tf_weights(const std::string& prefix) {
  return std::make_unique<TfSource>(prefix);
}

}  // namespace bertha
