#include "harness/checkpoint/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kIndexEnd = ".index";

class SafeTensorsSource : public WeightSource {
 public:
  explicit SafeTensorsSource(const std::string& path)
      : path_(path), header_(read_safetensors_header(path)) {
    prefix_ = wrapper_prefix();
    for (const auto& [name, tensor] : header_.tensors) {
      tensors_[name.substr(prefix_.size())] = {.dtype = tensor.dtype, .shape = tensor.shape};
    }
  }

  std::vector<float> read(const std::string& name) const override {
    const std::string stored = prefix_ + name;
    return read_safetensor(path_, header_, stored, 0, header_.tensors.at(stored).elements());
  }

 private:
  /// What all names begin with.
  std::string wrapper_prefix() const {
    std::string found;
    for (bool grows = !header_.tensors.empty(); grows;) {
      grows = false;
      for (const char* wrapper : {"module.", "_orig_mod."}) {
        const std::string longer = found + wrapper;
        const bool all = std::ranges::all_of(
            header_.tensors, [&](const auto& entry) { return entry.first.starts_with(longer); });
        if (!all) continue;
        found = longer;
        grows = true;
      }
    }
    return found;
  }

  std::string path_;
  SafeTensorsHeader header_;
};

std::string folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

WeightPlace tensorflow_place(const std::string& prefix) {
  return {.format = WeightFormat::kTensorFlow, .path = prefix, .folder = folder_of(prefix)};
}

WeightPlace locate_in_folder(const std::string& folder) {
  const fs::path root(folder);
  if (fs::exists(root / kModelFile)) {
    return {.path = (root / kModelFile).string(), .folder = folder};
  }
  if (fs::is_directory(root / "ckpt")) {
    if (const auto newest = newest_checkpoint((root / "ckpt").string())) {
      return locate_in_folder(*newest);
    }
    fail(ExitCode::kData, folder, ": this run has saved no checkpoint yet; name another folder.");
  }
  if (fs::exists(root / "model.safetensors.index.json")) {
    fail(ExitCode::kData, folder,
         ": its weights are split over several files; save them as one with "
         "save_pretrained(folder, max_shard_size=\"100GB\").");
  }
  if (fs::exists(root / "pytorch_model.bin")) {
    fail(ExitCode::kData, folder,
         "/pytorch_model.bin: is a pickle, which may run code when it is read; load it with "
         "transformers and save it with save_pretrained(folder), which writes ",
         kModelFile, ".");
  }
  std::vector<std::string> prefixes;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() != kIndexEnd) continue;
    prefixes.push_back((root / entry.path().stem()).string());
  }
  if (prefixes.size() == 1) return tensorflow_place(prefixes.front());
  if (prefixes.empty()) {
    fail(ExitCode::kData, folder, ": holds neither ", kModelFile,
         " nor a TensorFlow checkpoint (*.index); name a folder or a file that does.");
  }
  fail(ExitCode::kData, folder, ": holds ", prefixes.size(),
       " TensorFlow checkpoints; name one: ", joined(prefixes, ", "), ".");
}

/// The prefix that a file of a TensorFlow checkpoint belongs to; the path itself for other files.
std::string prefix_of(const std::string& path) {
  for (const char* end : {".index", ".meta"}) {
    if (path.ends_with(end)) return path.substr(0, path.size() - std::string_view(end).size());
  }
  const size_t data = path.rfind(".data-");
  return data == std::string::npos ? path : path.substr(0, data);
}

}  // namespace

WeightPlace locate_weights(const std::string& path) {
  if (fs::is_directory(path)) return locate_in_folder(path);
  if (path.ends_with(".safetensors") && fs::exists(path)) {
    return {.path = path, .folder = folder_of(path)};
  }
  const std::string prefix = prefix_of(path);
  if (fs::exists(prefix + kIndexEnd)) return tensorflow_place(prefix);
  if (!fs::exists(path)) {
    fail(ExitCode::kData, path, ": is not there; name a folder with ", kModelFile,
         ", a .safetensors file, or the prefix "
         "of a TensorFlow checkpoint (PREFIX.index).");
  }
  fail(ExitCode::kData, path, ": is no safetensors file, and there is no ", prefix, kIndexEnd,
       "; a TensorFlow checkpoint in one file is of format V1: save it again with a Saver of V2.");
}

std::unique_ptr<WeightSource> open_weights(const WeightPlace& place) {
  if (place.format == WeightFormat::kTensorFlow) return open_tf_weights(place.path);
  return std::make_unique<SafeTensorsSource>(place.path);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return concat("[", joined(shape, ","), "]");
}

}  // namespace bertha
