#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bertha {

/// The fields of one protobuf message, in the order in which they were written.
///
/// Errors    Error(kData) naming `origin` where the bytes are no message, or a field has another
///           kind than the one asked for.
class ProtoReader {
 public:
  /// `message` must outlive the reader; `origin` is what messages to the user name.
  ProtoReader(std::string_view message, std::string origin);

  /// Goes to the next field; false after the last one.
  bool next();
  uint32_t field() const { return field_; }
  /// Value of a varint or of a fixed field.
  uint64_t number() const;
  /// The bytes of a string or of a message inside this one.
  std::string_view bytes() const;

 private:
  uint64_t take_varint();
  std::string_view take(uint64_t count);
  [[noreturn]] void refuse() const;

  std::string_view rest_;
  std::string origin_;
  uint32_t field_ = 0;
  bool has_bytes_ = false;
  uint64_t number_ = 0;
  std::string_view bytes_;
};

/// Takes a varint from the front of `bytes`; false when they end within it.
bool take_varint(std::string_view& bytes, uint64_t& value);

}  // namespace bertha
