#pragma once

#include <cstddef>
#include <span>

namespace bertha {

/// Decompresses what the LZF filter of h5py wrote, a stream of liblzf, to the start of `out`.
/// Returns the bytes that it gave, or 0 when `in` is damaged or gives more than `out` can hold.
size_t lzf_decode(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace bertha
