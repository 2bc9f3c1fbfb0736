#include "harness/checkpoint/weight_source.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "data/files/json_file.h"
#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kModelIndex = "model.safetensors.index.json";
constexpr const char* kIndexEnd = ".index";

std::string folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// One file, or several that an index lists.
class SafeTensorsSource : public WeightSource {
 public:
  explicit SafeTensorsSource(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      files_.push_back({.path = path, .header = read_safetensors_header(path)});
    }
    for (const File& file : files_) {
      for (const auto& [name, tensor] : file.header.tensors) {
        if (file_of_.emplace(name, &file).second) continue;
        fail(ExitCode::kData, file.path, ": ", name, " is also in ", file_of_.at(name)->path,
             "; remove one of the files, or save the model again");
      }
    }
    prefix_ = wrapper_prefix();
    for (const auto& [name, file] : file_of_) {
      const SafeTensor& tensor = file->header.tensors.at(name);
      tensors_[name.substr(prefix_.size())] = {.dtype = tensor.dtype, .shape = tensor.shape};
    }
  }

  std::vector<float> read(const std::string& name) const override {
    const std::string stored = prefix_ + name;
    const File& file = *file_of_.at(stored);
    const int64_t elements = file.header.tensors.at(stored).elements();
    return read_safetensor(file.path, file.header, stored, 0, elements);
  }

 private:
  struct File {
    std::string path;
    SafeTensorsHeader header;
  };

  /// The common prefix of all names.
  std::string wrapper_prefix() const {
    std::string found;
    for (bool grows = !file_of_.empty(); grows;) {
      grows = false;
      for (const char* wrapper : {"module.", "_orig_mod."}) {
        const std::string longer = found + wrapper;
        const bool all = std::ranges::all_of(
            file_of_, [&](const auto& entry) { return entry.first.starts_with(longer); });
        if (!all) continue;
        found = longer;
        grows = true;
      }
    }
    return found;
  }

  std::vector<File> files_;
  std::map<std::string, const File*> file_of_;  // by the stored name of the tensor
};

/// The files that model.safetensors.index.json lists, in name order.
std::vector<std::string> files_of_index(const std::string& path) {
  std::set<std::string> names;
  try {
    const nlohmann::json root = parse_json(read_text_file(path));
    JsonField(path, root)["weight_map"].for_each_key(
        [&](const std::string&, const JsonField& file) {
          const std::string name = file.text();
          if (fs::path(name).filename() != name)
            file.wrong("the name of a file in the same folder");
          names.insert(name);
        });
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::kData, path, ": not valid JSON (", error.what(), "); save the model again");
  }
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(folder_of(path) + "/" + name);
  return paths;
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
    fail(ExitCode::kData, folder,
         ": this run has not saved a checkpoint yet; give another folder.");
  }
  if (fs::exists(root / kModelIndex)) {
    return {.path = (root / kModelIndex).string(), .folder = folder};
  }
  if (fs::exists(root / "pytorch_model.bin") || fs::exists(root / "pytorch_model.bin.index.json")) {
    fail(ExitCode::kData, folder,
         ": has its weights in pytorch_model.bin, a pickle, which this program does not read; "
         "convert it once with: python3 -c 'import sys, torch; from safetensors.torch import "
         "save_file; f = sys.argv[1]; t = torch.load(f + \"/pytorch_model.bin\", "
         "weights_only=True, map_location=\"cpu\"); save_file({k: v.clone() for k, v in "
         "t.items()}, f + \"/model.safetensors\")' ",
         shell_word(folder));
  }
  std::vector<std::string> prefixes;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() != kIndexEnd) continue;
    prefixes.push_back((root / entry.path().stem()).string());
  }
  if (prefixes.size() == 1) return tensorflow_place(prefixes.front());
  if (prefixes.empty()) {
    fail(ExitCode::kData, folder, ": contains neither ", kModelFile,
         " nor a TensorFlow checkpoint (*.index); give a folder or a file that does.");
  }
  fail(ExitCode::kData, folder, ": contains ", prefixes.size(),
       " TensorFlow checkpoints; give one of: ", joined(prefixes, ", "), ".");
}

/// The prefix of a file of a TensorFlow checkpoint; the path itself for other files.
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
  if ((path.ends_with(".safetensors") || path.ends_with(kModelIndex)) && fs::exists(path)) {
    return {.path = path, .folder = folder_of(path)};
  }
  const std::string prefix = prefix_of(path);
  if (fs::exists(prefix + kIndexEnd)) return tensorflow_place(prefix);
  if (!fs::exists(path)) {
    fail(ExitCode::kData, path, ": no such file or folder; give a folder with ", kModelFile,
         ", a .safetensors file, or the prefix "
         "of a TensorFlow checkpoint (PREFIX.index).");
  }
  fail(ExitCode::kData, path, ": is not a safetensors file, and ", prefix, kIndexEnd,
       " does not exist; a TensorFlow checkpoint in one file has format V1: save it again with a "
       "Saver of V2.");
}

std::unique_ptr<WeightSource> open_weights(const WeightPlace& place) {
  if (place.format == WeightFormat::kTensorFlow) return open_tf_weights(place.path);
  const bool is_index = place.path.ends_with(kModelIndex);
  return std::make_unique<SafeTensorsSource>(is_index ? files_of_index(place.path)
                                                      : std::vector{place.path});
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return concat("[", joined(shape, ","), "]");
}

}  // namespace bertha
