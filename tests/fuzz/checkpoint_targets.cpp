#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "data/files/byte_file.h"
#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/optimizer_files.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/stated_model.h"
#include "harness/checkpoint/tf_index.h"
#include "harness/comm/solo_collectives.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/harness/checkpoint/bundle_writer.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"

namespace bertha::fuzz {
namespace {

/// --- safetensors ---

void read_safetensors(const std::string& bytes) {
  const std::string path = scratch_file("model.safetensors", bytes);
  const SafeTensorsHeader header = read_safetensors_header(path);
  for (const auto& [name, tensor] : header.tensors) {
    const int64_t elements = tensor.elements();
    const int64_t first = elements / 3;
    use(std::ssize(read_safetensor(path, header, name, first, elements - first)));
  }
}

std::vector<std::string> safetensors_seeds() {
  const std::string path = scratch_path("seed.safetensors");
  SafeTensorsWriter writer(path,
                           {{"bert.embeddings.LayerNorm.weight", {3}, "F32"},
                            {"b", {2, 2}, "BF16"},
                            {"c", {}, "F16"},
                            {"d", {0, 5}, "F32"}},
                           {{"format", "pt"}});
  writer.append(std::string(12 + 8 + 2, '\1').data(), 22);
  writer.finish();
  return {bytes_of(path)};
}

/// --- TensorFlow: an index, and a checkpoint of an index and one data file ---

void read_index(const std::string& bytes) {
  for (const auto& [key, value] : read_tf_index(scratch_file("model.index", bytes))) {
    use(std::ssize(key) + std::ssize(value));
  }
}

std::vector<std::string> index_seeds() {
  auto seeds = golden_files("tf", ".index", 5000);
  const std::string path = scratch_path("seed.index");
  testing::write_tf_index(path, {{"", testing::bundle_header(1)}, {"a", "b"}, {"ab", "c"}});
  seeds.push_back(bytes_of(path));
  return seeds;
}

/// A varint at `at`, which moves behind it; none where the bytes end.
std::optional<uint64_t> varint_at(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Repairs the checksum of the block that the handle at `at` names, and gives its first byte.
std::optional<size_t> repair_block(std::string& bytes, size_t& at) {
  const auto offset = varint_at(bytes, at);
  const auto size = varint_at(bytes, at);
  if (!offset || !size || bytes.size() < 5 || *size > bytes.size() - 5 ||
      *offset > bytes.size() - 5 - *size) {
    return std::nullopt;
  }
  const std::string_view covered = std::string_view(bytes).substr(*offset, *size + 1);
  const uint32_t crc = masked_crc32c(crc32c(covered));
  std::memcpy(bytes.data() + *offset + *size + 1, &crc, sizeof(crc));
  return *offset;
}

/// The footer names the blocks of the table, whose entries name all others.
std::string repair_index(const std::string& bytes) {
  constexpr size_t kFooterBytes = 48;
  std::string repaired = bytes;
  if (repaired.size() < kFooterBytes) return repaired;
  size_t footer = repaired.size() - kFooterBytes;
  std::memcpy(repaired.data() + footer + 40, "\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8);
  repair_block(repaired, footer);
  const std::optional<size_t> table = repair_block(repaired, footer);
  for (size_t at = table.value_or(repaired.size()); at < repaired.size();) {
    const auto shared = varint_at(repaired, at);
    const auto key_bytes = varint_at(repaired, at);
    const auto value_bytes = varint_at(repaired, at);
    if (!shared || !key_bytes || !value_bytes || *key_bytes > repaired.size() - at) break;
    at += *key_bytes;
    if (!repair_block(repaired, at)) break;
  }
  return repaired;
}

constexpr size_t kPartBytes = 4;  // the length of the index, in front of it

struct BundleParts {
  std::string index;
  std::string data;
};

BundleParts bundle_parts(const std::string& bytes) {
  if (bytes.size() < kPartBytes) return {};
  uint32_t index_bytes = 0;
  std::memcpy(&index_bytes, bytes.data(), kPartBytes);
  return {bytes.substr(kPartBytes, index_bytes),
          bytes.substr(std::min<size_t>(bytes.size(), kPartBytes + index_bytes))};
}

std::string joined(const BundleParts& parts) {
  const auto index_bytes = static_cast<uint32_t>(parts.index.size());
  return std::string(reinterpret_cast<const char*>(&index_bytes), kPartBytes) + parts.index +
         parts.data;
}

void read_bundle(const std::string& bytes) {
  const BundleParts parts = bundle_parts(bytes);
  scratch_file("bundle.index", parts.index);
  scratch_file("bundle.data-00000-of-00001", parts.data);
  const auto weights = open_tf_weights(scratch_path("bundle"));
  for (const auto& [name, tensor] : weights->tensors()) {
    if (tensor.dtype != "STRING") use(std::ssize(weights->read(name)));
  }
}

std::vector<std::string> bundle_seeds() {
  std::vector<std::string> seeds;
  const auto indexes = golden_files("tf", "objects-1.index", 5000);
  const auto data = golden_files("tf", "objects-1.data-00000-of-00001", 30'000);
  seeds.push_back(joined({indexes[0], data[0]}));
  testing::BundleDraft draft;
  draft.add("bert/embeddings/LayerNorm/gamma", {3}, {1, 2, 3});
  draft.add(
      "model/layer_with_weights-0/_transformer_layers/0/_attention_layer/_key_dense/bias/"
      ".ATTRIBUTES/VARIABLE_VALUE",
      {2, 2}, {1, 2, 3, 4});
  draft.write(scratch_path("seed"));
  seeds.push_back(joined(
      {bytes_of(scratch_path("seed.index")), bytes_of(scratch_path("seed.data-00000-of-00001"))}));
  return seeds;
}

/// Of one string: its length, the checksum of that, the text.
void repair_string(std::string& data, tf::BundleEntry& entry) {
  auto at = static_cast<size_t>(entry.offset());
  const auto length = varint_at(data, at);
  const size_t end = static_cast<size_t>(entry.offset() + entry.size());
  if (!length || at + 4 > end) return;
  const auto number = static_cast<uint32_t>(end - at - 4);
  const std::string_view number_bytes(reinterpret_cast<const char*>(&number), sizeof(number));
  const uint32_t lengths_crc = crc32c(number_bytes);
  const uint32_t masked = masked_crc32c(lengths_crc);
  std::memcpy(data.data() + at, &masked, sizeof(masked));
  entry.set_crc32c(masked_crc32c(crc32c(std::string_view(data).substr(at, end - at), lengths_crc)));
}

/// The index is written again, with the checksums that the data has.
std::string repair_bundle(const std::string& bytes) {
  constexpr int32_t kString = 7;
  BundleParts parts = bundle_parts(bytes);
  std::map<std::string, std::string> entries;
  try {
    entries = read_tf_index(scratch_file("repaired.index", repair_index(parts.index)));
  } catch (const Error&) {
    return bytes;
  }
  const auto data_bytes = std::ssize(parts.data);
  for (auto& [key, message] : entries) {
    tf::BundleEntry entry;
    if (key.empty() || !entry.ParseFromString(message)) continue;
    if (entry.offset() < 0 || entry.size() < 0 || entry.offset() > data_bytes ||
        entry.size() > data_bytes - entry.offset()) {
      continue;
    }
    const auto begin = static_cast<size_t>(entry.offset());
    const auto size = static_cast<size_t>(entry.size());
    entry.set_crc32c(masked_crc32c(crc32c(std::string_view(parts.data).substr(begin, size))));
    if (entry.dtype() == kString) repair_string(parts.data, entry);
    message = entry.SerializeAsString();
  }
  testing::write_tf_index(scratch_path("repaired.index"), entries);
  parts.index = bytes_of(scratch_path("repaired.index"));
  return joined(parts);
}

/// --- config.json ---

void read_config_json(const std::string& bytes) {
  const std::string path = scratch_file("config.json", bytes);
  std::optional<Error> refusal;
  for (const auto format : {WeightFormat::kHuggingFace, WeightFormat::kTensorFlow}) {
    try {
      const StatedModel stated = read_stated_model(path, format);
      use(stated.model.hidden + std::ssize(silent_differences(stated, ModelConfig{})));
      use(make_param_table(make_dims(stated.model), DecayRule::kReference).elements);
    } catch (const Error& error) {
      refusal = error;
    }
  }
  if (refusal) throw Error(*refusal);
}

std::vector<std::string> config_seeds() {
  ModelConfig erf;
  erf.gelu = GeluForm::kErf;
  return {hugging_face_config(ModelConfig{}), hugging_face_config(erf, ModelHeads::kNone),
          R"({"attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_size": 64,
  "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 256,
  "type_vocab_size": 2, "max_position_embeddings": 64, "vocab_size": 100})"};
}

/// --- a checkpoint's state.json, DONE and optimizer files ---

void read_state(const std::string& bytes) {
  const std::string path = scratch_path("state.json");
  const TrainingState state = training_state_from_json(bytes, path);
  // What was read can be written, and read again.
  use(training_state_from_json(to_json(state), path).step);
}

std::vector<std::string> state_seeds() {
  TrainingState state = testing::some_state(40);
  const std::string plain = to_json(state);
  state.joules = 1e6;
  state.fp8_scale_exponents = {1, -7};
  return {plain, to_json(state)};
}

void read_done(const std::string& bytes) {
  const std::string folder = scratch_path("step_00000001");
  std::filesystem::create_directories(folder);
  scratch_file("step_00000001/state.json", "{}");
  scratch_file("step_00000001/DONE", bytes);
  verify_folder(folder);
}

std::vector<std::string> done_seeds() {
  std::filesystem::create_directories(scratch_path("step_00000001"));
  return {done_line(scratch_file("step_00000001/state.json", "{}"))};
}

/// A checkpoint's parts of one rank, with the smallest model.
struct Rank {
  Rank() {
    config.model = {.layers = 1,
                    .hidden = 8,
                    .heads = 1,
                    .feed_forward = 8,
                    .vocab_size = 8,
                    .max_positions = 8};
    dims = make_dims(config.model);
    table = make_param_table(dims, DecayRule::kReference);
    parts = {.device = device.get(),
             .stream = stream.get(),
             .table = &table,
             .dims = dims,
             .config = &config};
    optimizer = std::make_unique<Optimizer>(config.optimizer, 100, table,
                                            Optimizer::Parts{.device = device.get(),
                                                             .stream = stream.get(),
                                                             .ops = ops.get(),
                                                             .collectives = collectives.get()});
    parts.optimizer = optimizer.get();
    const std::vector<float> zeros(static_cast<size_t>(table.elements), 0.0f);
    optimizer->set_weights(zeros.data());
  }

  Config config;
  Dims dims;
  ParamTable table;
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Stream> stream = device->make_stream();
  std::unique_ptr<Ops> ops = make_cpu_ops(*device, *stream);
  std::unique_ptr<Collectives> collectives = make_solo_collectives(*device);
  std::unique_ptr<Optimizer> optimizer;
  CheckpointParts parts;
};

const Rank& rank() {
  static const Rank only;
  return only;
}

constexpr const char* kOptimizerFile = "optimizer/optimizer-00000-of-00001.safetensors";

void read_optimizer(const std::string& bytes) {
  std::filesystem::create_directories(scratch_path("optimizer"));
  scratch_file(kOptimizerFile, bytes);
  read_optimizer_files(scratch_path("optimizer"), rank().parts);
}

std::vector<std::string> optimizer_seeds() {
  std::filesystem::create_directories(scratch_path("optimizer"));
  return {bytes_of(write_optimizer_file(scratch_path("optimizer"), rank().parts))};
}

constexpr FuzzTarget kTargets[] = {
    {.name = "safetensors", .read = read_safetensors, .seeds = safetensors_seeds},
    {.name = "tf_index", .read = read_index, .seeds = index_seeds, .repair = repair_index},
    {.name = "tf_bundle", .read = read_bundle, .seeds = bundle_seeds, .repair = repair_bundle},
    {.name = "config_json", .read = read_config_json, .seeds = config_seeds},
    {.name = "state_json", .read = read_state, .seeds = state_seeds},
    {.name = "done", .read = read_done, .seeds = done_seeds},
    {.name = "optimizer", .read = read_optimizer, .seeds = optimizer_seeds},
};

}  // namespace

std::span<const FuzzTarget> checkpoint_targets() { return kTargets; }

}  // namespace bertha::fuzz
