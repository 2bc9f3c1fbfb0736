#include "data/hashing.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "data/byte_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

std::string hex_text(std::span<const unsigned char> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

/// A running digest of OpenSSL that can be used again and again.
class Digest {
 public:
  explicit Digest(const EVP_MD* algorithm)
      : algorithm_(algorithm), context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    start();
  }

  void update(const void* data, size_t size_bytes) {
    BERTHA_CHECK(EVP_DigestUpdate(context_.get(), data, size_bytes) == 1, "digest update");
  }

  /// The digest as hex digits; the next update starts a new one.
  std::string finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size_bytes = 0;
    BERTHA_CHECK(EVP_DigestFinal_ex(context_.get(), bytes.data(), &size_bytes) == 1, "digest end");
    start();
    return hex_text(std::span(bytes).first(size_bytes));
  }

 private:
  void start() {
    if (EVP_DigestInit_ex(context_.get(), algorithm_, nullptr) != 1) {
      fail(ExitCode::kEnvironment, "OpenSSL does not offer ", EVP_MD_get0_name(algorithm_),
           " here; a FIPS configuration may forbid it");
    }
  }

  const EVP_MD* algorithm_;
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// Gives the bytes of a file to `take`, piece by piece.
void for_each_piece(const std::string& path,
                    const std::function<void(const void* data, size_t size_bytes)>& take) {
  const ByteFile file(path);
  std::vector<std::byte> piece(size_t{1} << 20);
  for (int64_t at = 0; at < file.size_bytes();) {
    const int64_t count = std::min(std::ssize(piece), file.size_bytes() - at);
    const auto part = std::span(piece).first(static_cast<size_t>(count));
    const std::string problem = file.read_at(at, part);
    if (!problem.empty()) fail(ExitCode::kData, path, ": ", problem);
    take(part.data(), part.size());
    at += count;
  }
}

/// "[101, 2023]", as Python prints a list of integers.
void python_list(std::span<const int16_t> values, std::string& text) {
  text = "[";
  std::array<char, 8> digits{};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), values[i]).ptr;
    text.append(digits.data(), end);
  }
  text += "]";
}

}  // namespace

std::string xxh3_of_file(const std::string& path) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for_each_piece(path, [&](const void* data, size_t size_bytes) {
    XXH3_128bits_update(state.get(), data, size_bytes);
  });
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  return hex_text(canonical.digest);
}

std::string sha256_of_file(const std::string& path) {
  Digest digest(EVP_sha256());
  for_each_piece(path,
                 [&](const void* data, size_t size_bytes) { digest.update(data, size_bytes); });
  return digest.finish();
}

std::string md5_of_text(const std::string& text) {
  Digest digest(EVP_md5());
  digest.update(text.data(), text.size());
  return digest.finish();
}

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  constexpr size_t kPieceBytes = size_t{1} << 30;  // the library counts in int
  uint32_t crc = ~before;                          // and leaves the inversions to its caller
  for (size_t done = 0; done < bytes.size(); done += kPieceBytes) {
    const std::string_view piece = bytes.substr(done, kPieceBytes);
    // The library takes a pointer to what it only reads.
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(piece.data())),
                      static_cast<int>(piece.size()), crc);
  }
  return ~crc;
}

uint32_t masked_crc32c(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

std::string md5_of_lists(const SampleSet& samples, std::span<const int64_t> row_offsets) {
  const int64_t num_rows = row_offsets.empty() ? samples.size() : std::ssize(row_offsets) - 1;
  const auto first_token = [&](int64_t row) {
    const int64_t sample = row_offsets.empty() ? row : row_offsets[static_cast<size_t>(row)];
    return static_cast<size_t>(samples.token_offsets[static_cast<size_t>(sample)]);
  };
  Digest row_digest(EVP_md5());
  Digest list_digest(EVP_md5());
  std::string text;
  list_digest.update("[", 1);
  for (int64_t row = 0; row < num_rows; ++row) {
    const size_t first = first_token(row);
    python_list(std::span(samples.token_ids).subspan(first, first_token(row + 1) - first), text);
    row_digest.update(text.data(), text.size());
    text = concat(row == 0 ? "'" : ", '", row_digest.finish(), "'");
    list_digest.update(text.data(), text.size());
  }
  list_digest.update("]", 1);
  return list_digest.finish();
}

}  // namespace bertha
