#include "harness/train/data_position.h"

#include <filesystem>

#include "data/files/hashing.h"
#include "data/format/shard_names.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

template <class Value>
void check_same(const std::string& checkpoint, const char* key, const Value& configured,
                const Value& saved) {
  if (configured == saved) return;
  fail(ExitCode::kUsage, checkpoint, " was trained with ", key, " ", saved, ", found ", configured,
       "; set ", key, " to ", saved, " to go on, or checkpoint.resume to never to start anew.");
}

}  // namespace

DataPosition data_position(const Config& config) {
  std::string shards;
  for (const std::string& path : list_shards(config.data.train)) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(path, error);
    if (error) {
      fail(ExitCode::kData, path, ": its size cannot be read (", error.message(),
           "); check the folder's permissions.");
    }
    shards += concat(fs::path(path).filename().string(), " ", bytes, "\n");
  }
  return {.global_batch_seqs = config.train.global_batch_seqs,
          .order = config.data.order,
          .window_shards = config.data.window_shards,
          .identity = md5_of_text(shards)};
}

void check_data_position(const DataPosition& saved, const DataPosition& configured,
                         const Config& config, const std::string& checkpoint) {
  check_same(checkpoint, "train.global_batch_seqs", configured.global_batch_seqs,
             saved.global_batch_seqs);
  check_same(checkpoint, "data.order", configured.order, saved.order);
  if (configured.order == "windowed") {  // the published order knows no windows
    check_same(checkpoint, "data.window_shards", configured.window_shards, saved.window_shards);
  }
  if (configured.identity != saved.identity) {
    fail(ExitCode::kUsage, checkpoint,
         " was trained on other shards than those of data.train: ", config.data.train,
         " has names and sizes with the md5 ", configured.identity, ", want ", saved.identity,
         "; set data.train to the shards that it was trained on to go on, or ",
         "checkpoint.resume to never to start anew.");
  }
}

}  // namespace bertha
