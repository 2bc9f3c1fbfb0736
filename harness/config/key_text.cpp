#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "harness/config/keys.h"
#include "harness/config/nearest_word.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

std::string number_text(double value) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string bound_text(double value) {
  return std::abs(value) < 1e7 && std::floor(value) == value
             ? std::to_string(static_cast<int64_t>(value))
             : number_text(value);
}

// Always in double quotes: a name such as "no" or "1" must be read back as text.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct ValueText {
  std::string operator()(const int64_t* field) const { return std::to_string(*field); }
  std::string operator()(const double* field) const { return number_text(*field); }
  std::string operator()(const bool* field) const { return *field ? "true" : "false"; }
  std::string operator()(const std::string* field) const { return quoted(*field); }
  std::string operator()(const ChoiceRef& field) const { return quoted(*field); }
};

std::string_view last_part(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

// Names of the keys in Hugging Face's Trainer, PyTorch and other BERT programs.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"lr", "optimizer.base_learning_rate"},
    {"learning_rate", "optimizer.base_learning_rate"},
    {"batch_size", "train.global_batch_seqs"},
    {"train_batch_size", "train.global_batch_seqs"},
    {"per_device_train_batch_size", "train.global_batch_seqs"},
    {"gradient_accumulation_steps", "train.accumulation_steps"},
    {"epochs", "train.max_epochs"},
    {"num_epochs", "train.max_epochs"},
    {"num_train_epochs", "train.max_epochs"},
    {"steps", "train.max_steps"},
    {"warmup", "optimizer.warmup_steps"},
    {"warmup_ratio", "optimizer.warmup_steps"},
    {"lr_scheduler_type", "optimizer.schedule"},
    {"scheduler", "optimizer.schedule"},
    {"optim", "optimizer.name"},
    {"max_grad_norm", "optimizer.max_gradient_norm"},
    {"clip_grad", "optimizer.max_gradient_norm"},
    {"adam_epsilon", "optimizer.epsilon"},
    {"max_length", "data.max_seq_tokens"},
    {"max_seq_length", "data.max_seq_tokens"},
    {"block_size", "data.max_seq_tokens"},
    {"mlm_probability", "data.masked_fraction"},
    {"train_file", "data.train"},
    {"validation_file", "data.eval"},
    {"model_name_or_path", "checkpoint.init"},
    {"output_dir", "log.run_dir"},
    {"logging_steps", "train.log_every_steps"},
    {"save_steps", "checkpoint.every_steps"},
    {"eval_steps", "eval.every_samples"},
    {"dropout", "model.hidden_dropout"},
    {"bf16", "train.precision"},
    {"fp16", "train.precision"}};

}  // namespace

std::string_view key_of_other_name(std::string_view name) {
  const auto found =
      std::ranges::find(kOtherNames, name, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kOtherNames) ? "" : found->second;
}

std::string nearest_key(std::string_view path) {
  if (const std::string_view key = key_of_other_name(last_part(path)); !key.empty()) {
    return std::string(key);
  }
  std::vector<std::string> paths;
  std::vector<std::string> names;
  for (const Key& key : config_keys()) {
    paths.emplace_back(key.path);
    names.emplace_back(last_part(key.path));
  }
  // The right name in the wrong section first, then a misspelled section, path and name.
  const std::string name(last_part(path));
  const auto exact = std::ranges::find(names, name);
  if (exact != names.end()) return paths[static_cast<size_t>(exact - names.begin())];
  if (path.find('.') == std::string_view::npos) {
    std::vector<std::string> sections;
    for (const std::string& known : paths) sections.push_back(known.substr(0, known.find('.')));
    if (std::string near = nearest_word(path, sections); !near.empty()) return near;
  }
  if (std::string near = nearest_word(path, paths); !near.empty()) return near;
  const std::string near = nearest_word(name, names);
  if (near.empty()) return "";
  return paths[static_cast<size_t>(std::ranges::find(names, near) - names.begin())];
}

std::string type_name(const Key& key) {
  Config config;
  // In the order of FieldRef.
  constexpr std::array kNames = {"integer", "number", "true or false", "text", "text"};
  return kNames.at(key.field(config).index());
}

std::string unit_name(Unit unit) {
  // In the order of Unit.
  constexpr std::array kNames = {"", "tokens", "sequences", "steps", "minutes"};
  return kNames[static_cast<size_t>(unit)];
}

std::span<const std::string_view> allowed_words(const Key& key) {
  Config config;
  const FieldRef field = key.field(config);
  const auto* const choice = std::get_if<ChoiceRef>(&field);
  return choice == nullptr ? std::span<const std::string_view>() : choice->words;
}

std::string allowed_values(const Key& key) {
  if (const auto words = allowed_words(key); !words.empty()) return joined(words, " | ");
  const Range& range = key.range;
  if (range.low == range.high) return "";
  const std::string low = range.low_open ? "above " + bound_text(range.low) : bound_text(range.low);
  const bool no_top = range.high >= 1e15;
  if (no_top && range.low <= -1e15) return "";
  if (no_top) return low + (range.low_open ? "" : " or more");
  if (range.high_open && !range.low_open) {
    return concat(low, " or more, below ", bound_text(range.high));
  }
  return concat(low, range.low_open ? ", up to " : " to ", bound_text(range.high));
}

std::string value_text(const Key& key, const Config& config) {
  Config copy = config;
  return std::visit(ValueText{}, key.field(copy));
}

std::vector<std::string> changed_settings(const Config& was, const Config& is) {
  const bool own_schedule = was.optimizer.schedule_steps > 0 && is.optimizer.schedule_steps > 0;
  std::vector<std::string> changes;
  for (const Key& key : config_keys()) {
    if (!key.is_learned || (own_schedule && key.path == "train.max_steps")) continue;
    const std::string old_value = value_text(key, was), new_value = value_text(key, is);
    if (old_value == new_value) continue;
    changes.push_back(concat(key.path, " ", old_value, " -> ", new_value));
  }
  return changes;
}

}  // namespace bertha
