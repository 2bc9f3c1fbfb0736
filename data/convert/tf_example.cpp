#include "data/convert/tf_example.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

enum Feature : size_t { kIds, kMask, kSegments, kPositions, kLabels, kWeights, kNext };
constexpr std::array<std::string_view, 7> kNames{
    "input_ids",     "input_mask",        "segment_ids",         "masked_lm_positions",
    "masked_lm_ids", "masked_lm_weights", "next_sentence_labels"};

using Bytes = std::span<const std::byte>;
using Wrong = ExampleDecoder::Wrong;

enum WireType : uint64_t { kVarint = 0, kEightBytes = 1, kLengthDelimited = 2, kFourBytes = 5 };

/// Walks over the fields of a protobuf message.
class Message {
 public:
  Message(Bytes bytes, const Wrong& wrong) : bytes_(bytes), wrong_(wrong) {}

  bool at_end() const { return bytes_.empty(); }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = std::to_integer<uint64_t>(take(1)[0]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    wrong_("no tf.train.Example: a number of more than 10 bytes");
    return 0;
  }

  /// Field number and wire type of the coming field.
  std::pair<uint64_t, uint64_t> tag() {
    const uint64_t word = varint();
    return {word >> 3, word & 7};
  }

  Bytes delimited() {
    const uint64_t size = varint();
    if (size > bytes_.size()) {
      wrong_(concat("no tf.train.Example: a field of ", size, " bytes where ", bytes_.size(),
                    " are left"));
    }
    return take(size);
  }

  void pass(uint64_t wire_type) {
    switch (wire_type) {
      case kVarint:
        varint();
        return;
      case kEightBytes:
        take(8);
        return;
      case kLengthDelimited:
        delimited();
        return;
      case kFourBytes:
        take(4);
        return;
      default:
        wrong_(concat("no tf.train.Example: a field of the unknown type ", wire_type));
    }
  }

  Bytes take(size_t size) {
    if (size > bytes_.size()) wrong_("no tf.train.Example: it ends inside of a field");
    const Bytes taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
  }

 private:
  Bytes bytes_;
  const Wrong& wrong_;
};

/// Calls take(bytes) for each length-delimited field of this number; passes over the others.
template <class Take>
void for_each_field(Bytes bytes, uint64_t number, const Wrong& wrong, const Take& take) {
  Message message(bytes, wrong);
  while (!message.at_end()) {
    const auto [field, wire_type] = message.tag();
    if (field == number && wire_type == kLengthDelimited) {
      take(message.delimited());
    } else {
      message.pass(wire_type);
    }
  }
}

float float_of(Bytes bytes) {
  float value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

/// The packed or single numbers of an Int64List or a FloatList.
void read_numbers(Bytes list, const Wrong& wrong, std::vector<int64_t>& integers) {
  Message message(list, wrong);
  while (!message.at_end()) {
    const auto [field, wire_type] = message.tag();
    if (field == 1 && wire_type == kVarint) {
      integers.push_back(static_cast<int64_t>(message.varint()));
    } else if (field == 1 && wire_type == kLengthDelimited) {
      Message packed(message.delimited(), wrong);
      while (!packed.at_end()) integers.push_back(static_cast<int64_t>(packed.varint()));
    } else {
      message.pass(wire_type);
    }
  }
}

void read_numbers(Bytes list, const Wrong& wrong, std::vector<float>& floats) {
  Message message(list, wrong);
  while (!message.at_end()) {
    const auto [field, wire_type] = message.tag();
    if (field == 1 && wire_type == kFourBytes) {
      floats.push_back(float_of(message.take(4)));
    } else if (field == 1 && wire_type == kLengthDelimited) {
      Message packed(message.delimited(), wrong);
      while (!packed.at_end()) floats.push_back(float_of(packed.take(4)));
    } else {
      message.pass(wire_type);
    }
  }
}

template <class T>
void copy_checked(std::string_view name, std::span<const int64_t> from, const Wrong& wrong,
                  std::vector<T>& to) {
  to.clear();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] < 0 || from[i] > std::numeric_limits<T>::max()) {
      wrong(concat("feature ", name, ", element ", i, " is ", from[i], ", want 0 to ",
                   static_cast<int64_t>(std::numeric_limits<T>::max())));
    }
    to.push_back(static_cast<T>(from[i]));
  }
}

}  // namespace

ExampleDecoder::ExampleDecoder(const SampleLimits& limits, Wrong wrong)
    : limits_(limits), wrong_(std::move(wrong)) {}

void ExampleDecoder::read_feature(size_t index, Bytes feature) {
  constexpr uint64_t kFloatList = 2, kInt64List = 3;
  Values& values = values_[index];
  values.found = true;
  for_each_field(feature, kInt64List, wrong_,
                 [&](Bytes list) { read_numbers(list, wrong_, values.integers); });
  for_each_field(feature, kFloatList, wrong_,
                 [&](Bytes list) { read_numbers(list, wrong_, values.floats); });
}

void ExampleDecoder::read_entry(Bytes entry) {
  std::string_view name;
  Bytes feature;
  for_each_field(entry, 1, wrong_, [&](Bytes key) {
    name = {reinterpret_cast<const char*>(key.data()), key.size()};
  });
  for_each_field(entry, 2, wrong_, [&](Bytes value) { feature = value; });
  const auto known = std::find(kNames.begin(), kNames.end(), name);
  if (known != kNames.end()) read_feature(static_cast<size_t>(known - kNames.begin()), feature);
}

/// The number of leading elements that are not zero; the rest must be zero.
size_t ExampleDecoder::live_count(size_t index) const {
  const auto& values = values_[index].integers;
  const auto zero = std::find(values.begin(), values.end(), 0);
  const auto stray = std::find_if(zero, values.end(), [](int64_t value) { return value != 0; });
  if (stray != values.end()) {
    wrong_(concat("feature ", kNames[index], ", element ", stray - values.begin(), " is ", *stray,
                  " after a zero, want zeros only at the end"));
  }
  return static_cast<size_t>(zero - values.begin());
}

SampleView ExampleDecoder::decode(Bytes record) {
  for (Values& values : values_) {
    values.found = false;
    values.integers.clear();
    values.floats.clear();
  }
  for_each_field(record, 1, wrong_, [&](Bytes features) {
    for_each_field(features, 1, wrong_, [&](Bytes entry) { read_entry(entry); });
  });
  const auto tokens = static_cast<size_t>(limits_.max_seq_tokens);
  const auto masked = static_cast<size_t>(limits_.max_masked_per_seq);
  const std::array<size_t, 7> wanted{tokens, tokens, tokens, masked, masked, masked, 1};
  for (size_t i = 0; i < kNames.size(); ++i) {
    const Values& values = values_[i];
    if (!values.found) wrong_(concat("no feature ", kNames[i]));
    const size_t found = i == kWeights ? values.floats.size() : values.integers.size();
    if (found != wanted[i]) {
      wrong_(concat("feature ", kNames[i], " has ", found, " ",
                    i == kWeights ? "floats" : "integers", ", want ", wanted[i],
                    i == kNext ? "" : "; give the lengths that the data was made with"));
    }
  }
  const size_t num_tokens = live_count(kMask);
  const size_t num_masked = live_count(kPositions);
  for (size_t i = 0; i < num_tokens; ++i) {
    if (values_[kMask].integers[i] == 1) continue;
    wrong_(concat("feature ", kNames[kMask], ", element ", i, " is ", values_[kMask].integers[i],
                  ", want 0 or 1"));
  }
  const auto& weights = values_[kWeights].floats;
  for (size_t i = 0; i < masked; ++i) {
    const float want = i < num_masked ? 1.0f : 0.0f;
    if (weights[i] == want) continue;
    wrong_(concat("feature ", kNames[kWeights], ", element ", i, " is ", weights[i], ", want ",
                  want, " as there are ", num_masked, " masked positions"));
  }
  const auto live = [&](size_t index, size_t count) {
    return std::span(values_[index].integers).first(count);
  };
  copy_checked(kNames[kIds], live(kIds, num_tokens), wrong_, sample_.token_ids);
  copy_checked(kNames[kSegments], live(kSegments, num_tokens), wrong_, sample_.segment_ids);
  copy_checked(kNames[kPositions], live(kPositions, num_masked), wrong_, sample_.masked_positions);
  copy_checked(kNames[kLabels], live(kLabels, num_masked), wrong_, sample_.masked_ids);
  copy_checked(kNames[kNext], live(kNext, 1), wrong_, sample_.next_sentence_labels);
  return {.token_ids = sample_.token_ids,
          .segment_ids = sample_.segment_ids,
          .masked_positions = sample_.masked_positions,
          .masked_ids = sample_.masked_ids,
          .next_sentence_label = sample_.next_sentence_labels[0]};
}

}  // namespace bertha
