#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "data/files/text_file.h"

namespace bertha {

/// Limit of nested lists and objects: copying, comparing and printing a value use stack per level.
inline constexpr int64_t kMaxJsonLevels = 64;

/// Why a text is not accepted as JSON: "line 3, byte 17: nested deeper than 64 levels", "a
/// name is given twice".
/// Whoever catches what nlohmann throws for a wrong field catches this too.
struct JsonError : nlohmann::json::exception {
  explicit JsonError(const std::string& what) : exception(0, what.c_str()) {}
};

/// The one way to read JSON: lists and objects are counted before anything is built, and no object
/// may have a name twice.
/// Errors: JsonError.
nlohmann::json parse_json(std::string_view text);

/// The record of finished work in a JSON file; nothing if the file is missing or damaged: then the
/// work is done again.
template <class Record>
std::optional<Record> read_json_record(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  try {
    return parse_json(read_text_file(path)).get<Record>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

/// A value of a JSON file together with its name, which every error contains.
///
/// Errors    of every member function: Error(kData) with the path, the field's name, the value
///           found and the value wanted.
class JsonField {
 public:
  /// The whole file. Both arguments must outlive the field.
  JsonField(const std::string& path, const nlohmann::json& value) : JsonField(path, "", value) {}

  /// Whether it is an object with this field.
  bool contains(const char* key) const { return value_.is_object() && value_.contains(key); }
  /// A field that an object must have.
  JsonField operator[](const char* key) const;

  bool is_null() const { return value_.is_null(); }
  std::string text() const;
  /// A number that is not infinite.
  double number() const;
  /// A whole number written as one (3, not 3.0), within [least, most].
  int64_t integer(int64_t least, int64_t most) const;
  int64_t count() const { return integer(0, INT64_MAX); }
  uint64_t word() const;
  /// The hex digits of a hash.
  std::string hex(size_t digits) const;

  template <class Take>
  void for_each(const Take& take) const {
    if (!value_.is_array()) wrong("a list");
    for (size_t i = 0; i < value_.size(); ++i) take(element(i));
  }

  template <class Take>
  void for_each_key(const Take& take) const {
    if (!value_.is_object()) wrong("an object");
    for (const auto& [key, value] : value_.items()) take(key, member(key, value));
  }

  [[noreturn]] void wrong(const std::string& want) const;

 private:
  JsonField(const std::string& path, const std::string& name, const nlohmann::json& value)
      : path_(path), name_(name), value_(value) {}
  JsonField element(size_t index) const;
  JsonField member(const std::string& key, const nlohmann::json& value) const;

  const std::string& path_;
  std::string name_;
  const nlohmann::json& value_;
};

}  // namespace bertha
