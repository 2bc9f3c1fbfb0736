#include "data/format/hdf5_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace bertha {
namespace {

/// What `in` gives to `room` bytes.
std::string decoded(const std::string& in, size_t room = 300) {
  std::string out(room, '?');
  out.resize(lzf_decode(std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out))));
  return out;
}

TEST(Lzf, GivesLiteralsAndCopiesOfEarlierBytes) {
  EXPECT_EQ(decoded({"\x02"
                     "abc",
                     4}),
            "abc");
  EXPECT_EQ(decoded({"\x02"
                     "abc\x20\x02",
                     6}),
            "abcabc");  // 3 bytes from 3 back
  EXPECT_EQ(decoded({"\x00"
                     "a\x60\x00",
                     4}),
            "aaaaaa");  // 5 bytes from 1 back
  EXPECT_EQ(decoded({"\x00"
                     "a\xe0\xff\x00",
                     5}),
            std::string(265, 'a'));  // 7 + 255 + 2 and one
  const std::string literals = "\x1f" + std::string(31, 'x') + "y";
  std::string far;
  for (int i = 0; i < 10; ++i) far += literals;
  // 3 bytes from 257 back: 1 in the upper 5 bits, 0 in the lower 8
  EXPECT_EQ(decoded(far + std::string("\x21\x00", 2), 400).substr(320), "yxx");
}

TEST(Lzf, RefusesWhatRunsOutOfEitherSide) {
  for (const std::string& in : {std::string("\x02"
                                            "ab"),
                                std::string("\x00"
                                            "a\x20",
                                            3),
                                std::string("\x00"
                                            "a\xe0\x01",
                                            4),
                                std::string("\x00"
                                            "a\x20\x01",
                                            4),
                                std::string("\x20\x00", 2), std::string()}) {
    EXPECT_EQ(decoded(in), "");
  }
  EXPECT_EQ(decoded({"\x02"
                     "abc",
                     4},
                    2),
            "");
  EXPECT_EQ(decoded({"\x00"
                     "a\xe0\xff\x00",
                     5},
                    264),
            "");
  EXPECT_EQ(decoded({"\x00"
                     "a\xe0\xff\x00",
                     5},
                    265)
                .size(),
            265);
}

}  // namespace
}  // namespace bertha
