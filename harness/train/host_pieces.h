#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "kernels/base/device.h"
#include "kernels/base/view.h"

namespace bertha {

/// Copies device memory to the host in pieces: tensors may be larger than memory that can be
/// pinned.
class HostPieces {
 public:
  /// Both outlive this.
  HostPieces(Device& device, Stream& stream)
      : device_(device), stream_(stream), pinned_(device.allocate_pinned(kPieceBytes)) {}

  /// Calls `use` with a copy of each piece of `values`, in order: [elements] of their dtype.
  /// Blocks    the host, for each copy.
  void each(const View& values, const std::function<void(const View& piece)>& use) {
    const int64_t most_elements = kPieceBytes / size_bytes(values.dtype);
    const char* data = static_cast<const char*>(values.data);
    for (int64_t at = 0; at < values.elements(); at += most_elements) {
      const View piece(pinned_.data(), values.dtype,
                       {std::min(most_elements, values.elements() - at)});
      device_.copy(stream_, piece.data, data + at * size_bytes(values.dtype), piece.bytes());
      stream_.wait_on_host();
      use(piece);
    }
  }

 private:
  static constexpr int64_t kPieceBytes = 8 << 20;
  Device& device_;
  Stream& stream_;
  Buffer pinned_;
};

}  // namespace bertha
