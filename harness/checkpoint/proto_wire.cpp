#include "harness/checkpoint/proto_wire.h"

#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace

bool take_varint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      bytes.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

ProtoReader::ProtoReader(std::string_view message, std::string origin)
    : rest_(message), origin_(std::move(origin)) {}

void ProtoReader::refuse() const {
  fail(ExitCode::kData, origin_, ": cannot be read; the file is damaged, copy it again.");
}

uint64_t ProtoReader::take_varint() {
  uint64_t value = 0;
  if (!bertha::take_varint(rest_, value)) refuse();
  return value;
}

std::string_view ProtoReader::take(uint64_t count) {
  if (count > rest_.size()) refuse();
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

bool ProtoReader::next() {
  if (rest_.empty()) return false;
  const uint64_t tag = take_varint();
  field_ = static_cast<uint32_t>(tag >> 3);
  has_bytes_ = false;
  switch (static_cast<Wire>(tag & 7)) {
    case Wire::kVarint:
      number_ = take_varint();
      return true;
    case Wire::kFixed64:
      number_ = little_endian(take(8));
      return true;
    case Wire::kFixed32:
      number_ = little_endian(take(4));
      return true;
    case Wire::kBytes:
      has_bytes_ = true;
      bytes_ = take(take_varint());
      return true;
  }
  refuse();
}

uint64_t ProtoReader::number() const {
  if (has_bytes_) refuse();
  return number_;
}

std::string_view ProtoReader::bytes() const {
  if (!has_bytes_) refuse();
  return bytes_;
}

}  // namespace bertha
