#include "data/files/hashing.h"

#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <span>

#include "data/files/byte_file.h"
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

/// Passes the bytes of a file to `take`, chunk by chunk.
void for_each_chunk(const std::string& path, const std::function<void(std::string_view)>& take) {
  const ByteFile file(path);
  std::string chunk(size_t{1} << 20, '\0');
  for (int64_t at = 0; at < file.size_bytes();) {
    const int64_t count = std::min(std::ssize(chunk), file.size_bytes() - at);
    const auto part = std::span(chunk).first(static_cast<size_t>(count));
    const std::string problem = file.read_at(at, std::as_writable_bytes(part));
    if (!problem.empty()) fail(ExitCode::kData, path, ": ", problem);
    take({part.data(), part.size()});
    at += count;
  }
}

}  // namespace

Digest::Digest(const char* algorithm)
    : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free), algorithm_(EVP_get_digestbyname(algorithm)) {
  if (algorithm_ == nullptr || EVP_DigestInit_ex(context_.get(), algorithm_, nullptr) != 1) {
    fail(ExitCode::kEnvironment, "OpenSSL does not provide ", algorithm,
         " here; check whether a FIPS configuration forbids it");
  }
}

void Digest::update(std::string_view bytes) {
  BERTHA_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "digest update");
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size_bytes = 0;
  BERTHA_CHECK(EVP_DigestFinal_ex(context_.get(), bytes.data(), &size_bytes) == 1 &&
                   EVP_DigestInit_ex(context_.get(), algorithm_, nullptr) == 1,
               "digest end");
  return hex_text(std::span(bytes).first(size_bytes));
}

std::string xxh3_of_file(const std::string& path) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for_each_chunk(path, [&](std::string_view chunk) {
    XXH3_128bits_update(state.get(), chunk.data(), chunk.size());
  });
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  return hex_text(canonical.digest);
}

uint64_t xxh3_of_text(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::string sha256_of_file(const std::string& path) {
  Digest digest("SHA256");
  for_each_chunk(path, [&](std::string_view chunk) { digest.update(chunk); });
  return digest.finish();
}

std::string md5_of_text(const std::string& text) {
  Digest digest("MD5");
  digest.update(text);
  return digest.finish();
}

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  constexpr size_t kChunkBytes = size_t{1} << 30;  // the library counts in int
  uint32_t crc = ~before;                          // and leaves the inversions to its caller
  for (size_t done = 0; done < bytes.size(); done += kChunkBytes) {
    const std::string_view chunk = bytes.substr(done, kChunkBytes);
    // The library's parameter is not const, although it only reads.
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<char*>(chunk.data())),
                      static_cast<int>(chunk.size()), crc);
  }
  return ~crc;
}

uint32_t masked_crc32c(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

}  // namespace bertha
