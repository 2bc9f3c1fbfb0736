#include "data/pipeline/agreement.h"

#include <span>
#include <string>

#include "data/files/byte_file.h"
#include "kernels/base/error.h"
#include "kernels/base/failure.h"

namespace bertha {
namespace {

using Kind = Contribution::Kind;

/// A message is int64 words: the kind, then the values, or the exit code and the text's bytes.
std::vector<std::byte> encode(const Contribution& mine) {
  std::vector<int64_t> words{static_cast<int64_t>(mine.kind)};
  std::string text;
  if (mine.kind == Kind::kFailure) {
    const Failure failure = failure_of(mine.failure);
    words.push_back(static_cast<int64_t>(failure.code));
    text = failure.what;
  } else {
    words.insert(words.end(), mine.values.begin(), mine.values.end());
  }
  const auto letters = std::as_bytes(std::span(text));
  const auto bytes = std::as_bytes(std::span(words));
  std::vector<std::byte> message(bytes.begin(), bytes.end());
  message.insert(message.end(), letters.begin(), letters.end());
  return message;
}

int64_t word(std::span<const std::byte> message, size_t index) {
  BERTHA_CHECK(message.size() >= (index + 1) * sizeof(int64_t), "a message of ", message.size(),
               " bytes");
  return load<int64_t>(message.data() + index * sizeof(int64_t));
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
           " closed its data pipeline while other ranks still needed batches; every rank must take "
           "the same number of batches");
    }
    std::vector<int64_t>& of_rank = values.emplace_back();
    for (size_t i = 1; i < messages[rank].size() / sizeof(int64_t); ++i) {
      of_rank.push_back(word(messages[rank], i));
    }
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
