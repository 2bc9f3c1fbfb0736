#include "data/pipeline/agreement.h"

#include <cstring>
#include <span>
#include <string>

#include "kernels/base/error.h"
#include "kernels/base/failure.h"

namespace bertha {
namespace {

using Kind = Contribution::Kind;

void append(std::vector<std::byte>& message, const void* data, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  message.insert(message.end(), first, first + bytes);
}

/// A message is int64 words: the kind, then the values, or the exit code and the text's bytes.
std::vector<std::byte> encode(const Contribution& mine) {
  std::vector<std::byte> message;
  message.reserve((mine.values.size() + 1) * sizeof(int64_t));
  append(message, &mine.kind, sizeof mine.kind);
  if (mine.kind == Kind::kValues) {
    append(message, mine.values.data(), mine.values.size() * sizeof(int64_t));
  } else if (mine.kind == Kind::kFailure) {
    const Failure failure = failure_of(mine.failure);
    const auto code = static_cast<int64_t>(failure.code);
    append(message, &code, sizeof code);
    append(message, failure.what.data(), failure.what.size());
  }
  return message;
}

int64_t word(std::span<const std::byte> message, size_t index) {
  BERTHA_CHECK(message.size() >= (index + 1) * sizeof(int64_t), "a message of ", message.size(),
               " bytes");
  int64_t value = 0;
  std::memcpy(&value, message.data() + index * sizeof value, sizeof value);
  return value;
}

std::vector<int64_t> values_of(std::span<const std::byte> message) {
  std::vector<int64_t> values(message.size() / sizeof(int64_t) - 1);
  if (!values.empty()) {
    std::memcpy(values.data(), message.data() + sizeof(int64_t), values.size() * sizeof(int64_t));
  }
  return values;
}

}  // namespace

Contribution contribution_of(const std::function<std::vector<int64_t>()>& work) {
  try {
    return {.values = work()};
  } catch (...) {
    return {.kind = Kind::kFailure, .values = {}, .failure = std::current_exception()};
  }
}

std::vector<std::vector<int64_t>> gather_values(Transport& transport, const Contribution& mine) {
  const std::vector<std::vector<std::byte>> messages = transport.all_gather_bytes(encode(mine));
  for (const auto& message : messages) {
    if (static_cast<Kind>(word(message, 0)) != Kind::kFailure) continue;
    const auto* text = reinterpret_cast<const char*>(message.data()) + 2 * sizeof(int64_t);
    throw_error(static_cast<ExitCode>(word(message, 1)),
                std::string(text, message.size() - 2 * sizeof(int64_t)));
  }
  std::vector<std::vector<int64_t>> values;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (static_cast<Kind>(word(messages[rank], 0)) == Kind::kLeaving) {
      fail(ExitCode::kInternal, "rank ", rank,
           " closed its data pipeline while other ranks still wanted batches; every rank must take "
           "the same number of batches");
    }
    values.push_back(values_of(messages[rank]));
  }
  return values;
}

std::vector<int64_t> sum_values(Transport& transport, const Contribution& mine, int64_t count) {
  std::vector<int64_t> words = mine.values;
  words.resize(static_cast<size_t>(count));
  words.push_back(mine.kind == Kind::kValues ? 0 : 1);
  std::vector<int64_t> sums = transport.sum(words);
  if (sums.back() > 0) {
    gather_values(transport, mine.kind == Kind::kValues ? Contribution{} : mine);
  }
  sums.pop_back();
  return sums;
}

}  // namespace bertha
