#include "data/format/lzf.h"

#include <algorithm>

namespace bertha {

size_t lzf_decode(std::span<const std::byte> in, std::span<std::byte> out) {
  size_t read = 0, written = 0;
  while (read < in.size()) {
    const auto control = std::to_integer<size_t>(in[read++]);
    if (control < 32) {  // control + 1 literal bytes
      const size_t length = control + 1;
      if (length > in.size() - read || length > out.size() - written) return 0;
      std::copy_n(in.begin() + static_cast<ptrdiff_t>(read), length,
                  out.begin() + static_cast<ptrdiff_t>(written));
      read += length;
      written += length;
      continue;
    }
    // A copy of earlier output: 3 bits of length, one more byte of it where they are all ones,
    // then 13 bits of distance of which the control byte holds the upper 5.
    size_t length = (control >> 5) + 2;
    const bool long_copy = control >> 5 == 7;
    if (in.size() - read < (long_copy ? 2 : 1)) return 0;
    if (long_copy) length += std::to_integer<size_t>(in[read++]);
    const size_t distance = ((control & 31) << 8) + std::to_integer<size_t>(in[read++]) + 1;
    if (distance > written || length > out.size() - written) return 0;
    for (; length > 0; --length, ++written) out[written] = out[written - distance];  // may overlap
  }
  return written;
}

}  // namespace bertha
