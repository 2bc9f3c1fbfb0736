#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// A field of an enumeration, as the index of its value in the list of words.
struct ChoiceRef {
  template <Choice Enum>
  ChoiceRef(Enum* choice)
      : words(kChoiceWords<Enum>),
        field(choice),
        get([](const void* from) { return static_cast<size_t>(*static_cast<const Enum*>(from)); }),
        set([](void* to, size_t place) { *static_cast<Enum*>(to) = static_cast<Enum>(place); }) {}

  std::string_view operator*() const { return words[get(field)]; }

  std::span<const std::string_view> words;
  void* field;
  size_t (*get)(const void* field);
  void (*set)(void* field, size_t place);
};

/// Pointer to the field of a key in a Config.
using FieldRef = std::variant<int64_t*, double*, bool*, std::string*, ChoiceRef>;

/// The unit of a number. Counts take 64k and 1.5M, minutes take 90m and 2h.
enum class Unit : uint8_t { kNone, kTokens, kSeqs, kSteps, kMinutes };

/// Bounds of a number, inclusive unless marked open; high = 1e15 means no upper bound. Integers
/// within the bounds are exact in a double.
struct Range {
  double low = 0;
  double high = 0;
  bool low_open = false;   // low itself is refused
  bool high_open = false;  // high itself is refused

  bool holds(double value) const {
    return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
  }
};

/// One key of the configuration, with all that help and documentation say about it.
struct Key {
  std::string_view path;  // "train.seed"
  FieldRef (*field)(Config&);
  Unit unit = Unit::kNone;
  Range range;  // numbers
  std::string_view doc;
  /// Whether it changes what a model learns: false for paths, speed, reports and the end of a run.
  /// The contents of the shards are compared with the checkpoint's elsewhere.
  bool is_learned = true;
};

/// Every key, in the order of config.h.
const std::vector<Key>& config_keys();
/// The row of `path`, or null.
const Key* find_key(std::string_view path);

/// The key of earlier versions that optimizer.name replaces.
inline constexpr std::string_view kTrustRatio = "optimizer.trust_ratio";
/// What to use instead of a retired key; "" for other keys. Retired keys are read and, except for
/// kTrustRatio, ignored.
std::string_view retired_key(std::string_view path);

/// The key that another program's name stands for ("lr", "batch_size"); "" for other words.
std::string_view key_of_other_name(std::string_view name);

/// nearest_word() over the paths of all keys; the last part alone ("seed") matches its key, and a
/// word without dots may match a section ("train").
std::string nearest_key(std::string_view path);

/// "integer", "number", "true or false", "text".
std::string type_name(const Key& key);
/// "steps"; "" without a unit.
std::string unit_name(Unit unit);
/// The allowed words of an enumeration; empty for other keys.
std::span<const std::string_view> allowed_words(const Key& key);
/// "1 to 256", "0 or more, below 1", "off | dynamic"; empty without a restriction.
std::string allowed_values(const Key& key);
/// The current value as YAML would write it; numbers read back to the same bits.
std::string value_text(const Key& key, const Config& config);

/// The differences of two configurations that change what a model learns, in the order of the keys:
/// {"optimizer.beta_1 0.9 -> 0.8"}. Keys that are not learned are left out, and train.max_steps if
/// optimizer.schedule_steps sets the schedule.
std::vector<std::string> changed_settings(const Config& was, const Config& is);

/// Sets the field of `key` from text, as written in a file or on the command line.
///
/// Returns nothing on success, else what is wrong, without the name or place of the key:
/// `found "abc", want an integer (64k and 1.5M are fine too)`. The field is then unchanged.
std::string assign(const Key& key, const std::string& text, Config& config);

}  // namespace bertha
