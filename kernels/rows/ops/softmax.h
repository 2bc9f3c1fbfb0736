#pragma once

#include "kernels/base/arguments.h"
#include "kernels/base/divide.h"

namespace bertha {

enum class SoftmaxKind : uint8_t { kSoftmax, kLogSoftmax };

/// y = softmax(z) or log softmax(z), row by row, with z = scale * x + bias if the mask is not
/// zero, and minus infinity elsewhere; dropped = dropout(y), zero where dropped, whatever y is.
///
/// Letters   C = columns, the last axis of x; R = rows, all other axes together; W = C rounded up
///           to a multiple of 32.
/// Dtypes    io is one of f64, f32, f16, bf16; computed in f64 for f64, in f32 otherwise (CPU:
///           f64).
/// Broadcast mask and bias have as many axes as x, each of x's extent or of 1: [B, 1, 1, C] masks
///           the keys of attention scores [B, A, Q, C].
/// Random    element (r, c) is dropped as the element r * W + c of `dropout`; softmax only. Rows of
///           the mask of kept elements so start at a 32-bit word.
/// Writes    overwrites y, and with dropout `dropped` and kept_mask (the bits beyond a row's
///           columns too: with the decisions that nothing reads).
/// Exact     deterministic. A row without a value above minus infinity, or wholly masked, gives
///           zeros (softmax) or minus infinities (log softmax). A NaN, or plus infinity, that is
///           not masked makes its whole row NaN.
/// Needs     1 <= rank of x <= 4; C >= 1; R == 0 is a no-op. y or dropped may be x's memory;
///           kept_mask begins at a multiple of 4 bytes.
struct SoftmaxFwd {
  static constexpr const char* kName = "softmax_fwd";
  View x;          // io [.., C]
  View bias;       // io [.., C], axes may be 1   without data: none
  View mask;       // u8 [.., C], axes may be 1   without data: nothing is masked
  View y;          // io [.., C]  out, saved for backward
  View dropped;    // io [.., C]  out     not touched at probability 0
  View kept_mask;  // u8 [R, W / 8]  out  not touched at probability 0
  SoftmaxKind kind = SoftmaxKind::kSoftmax;
  double scale = 1.0;
  Dropout dropout = {};
};

/// The gradient by x: scale * y * (g - sum(y * g)) with g = dy through the dropout, and for log
/// softmax scale * (dy - exp(y) * sum(dy)).
///
/// Writes    overwrites dx (may be dy's or y's memory).
/// Exact     deterministic. Where y is minus infinity, masked or too small for io, dy is not looked
///           at and dx is 0. The gradient by bias is dx / scale, summed by the
///           caller over the axes that it was broadcast to.
struct SoftmaxBwd {
  static constexpr const char* kName = "softmax_bwd";
  View dy;         // io [.., C]
  View y;          // io [.., C]  of forward, not `dropped`
  View kept_mask;  // u8 [R, W / 8]  not read at probability 0
  View dx;         // io [.., C]  out
  SoftmaxKind kind = SoftmaxKind::kSoftmax;
  double scale = 1.0;
  Dropout dropout = {};
};

/// W: the row stride of kept_mask in bits, and of dropout indices.
constexpr int64_t softmax_mask_columns(int64_t columns) { return round_up(columns, 32); }

void validate(const SoftmaxFwd& args);
void validate(const SoftmaxBwd& args);

}  // namespace bertha
