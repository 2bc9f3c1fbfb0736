#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL
struct evp_md_st;

namespace bertha {

/// 128-bit XXH3 of a file's bytes as 32 hex digits. Error(kData) when it cannot be read.
std::string xxh3_of_file(const std::string& path);
/// SHA-256 of a file's bytes as 64 hex digits.
std::string sha256_of_file(const std::string& path);
std::string md5_of_text(const std::string& text);
/// 64-bit XXH3 of the text, a number like a random one for each seed.
uint64_t xxh3_of_text(std::string_view text, uint64_t seed);

/// A running digest as OpenSSL makes it, given as hex digits.
class Digest {
 public:
  /// `algorithm` as OpenSSL calls it: "MD5", "SHA256". Error(kEnvironment) when it is not offered.
  explicit Digest(const char* algorithm);
  void update(std::string_view bytes);
  /// The next update starts a new one.
  std::string finish();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
  const evp_md_st* algorithm_;
};

/// CRC-32C of bytes that follow others, whose checksum is `before` (0: none).
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);
/// How the formats of TensorFlow and LevelDB store a CRC-32C.
uint32_t masked_crc32c(uint32_t crc);

}  // namespace bertha
