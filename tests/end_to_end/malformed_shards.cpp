// Writes shards of training samples that are wrong in one way each, for the end-to-end tests.
//
// usage: malformed_shards KIND PATH, with a KIND of the table below.

#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>

#include "tests/data/example_data.h"
#include "tests/data/format/raw_shard.h"

namespace bertha {
namespace {

// Those of the runs in support.py.
constexpr SampleLimits kLimits{.max_seq_tokens = 32, .max_masked_per_seq = 5, .vocab_size = 320};
constexpr int64_t kSamples = 40;
constexpr size_t kWrong = 17;  // the sample that is wrong

using Shard = std::vector<RawDataset>;
using Change = std::function<void(Shard&)>;

const std::map<std::string, Change>& changes() {
  namespace names = dataset_names;
  static const std::map<std::string, Change> table{
      {"sound", [](Shard&) {}},
      {"token_beyond_vocabulary",
       [](Shard& shard) { dataset_of(shard, names::kInputIds).values[kWrong][2] = 320; }},
      {"label_beyond_vocabulary",
       [](Shard& shard) { dataset_of(shard, names::kMaskedIds).values[kWrong][0] = 3000; }},
      {"mask_beyond_length",
       [](Shard& shard) {
         const size_t length = dataset_of(shard, names::kInputIds).values[kWrong].size();
         dataset_of(shard, names::kMaskedPositions).values[kWrong].back() =
             static_cast<int>(length);
       }},
      {"wrong_dtype",
       [](Shard& shard) { dataset_of(shard, names::kInputIds).element = Hdf5Element::kI8; }},
      {"nothing_masked",
       [](Shard& shard) {
         for (const char* name : {names::kMaskedPositions, names::kMaskedIds}) {
           for (auto& row : dataset_of(shard, name).values) row.clear();
         }
       }},
      {"no_samples",
       [](Shard& shard) {
         for (RawDataset& dataset : shard) dataset.values.clear();
       }},
  };
  return table;
}

int write_malformed_shard(const std::string& kind, const std::string& path) {
  const auto change = changes().find(kind);
  if (change == changes().end()) fail(ExitCode::kUsage, kind, ": unknown kind");
  Shard shard = raw_shard(example_samples(kSamples, 5, kLimits), ShardLayout::kVariableLength);
  change->second(shard);
  write_raw_shard(path, shard);
  return 0;
}

}  // namespace
}  // namespace bertha

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: malformed_shards KIND PATH\n");
    return 2;
  }
  try {
    return bertha::write_malformed_shard(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "malformed_shards: %s\n", error.what());
    return 1;
  }
}
