#pragma once

#include <initializer_list>
#include <utility>

#include "kernels/base/arguments.h"

namespace bertha {

/// The matrix that an operation's other fields are measured by.
struct RowsShape {
  DType io = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
};

/// Checks the fields of one operation's arguments and names operation, field, found and wanted.
///
/// Errors    Error(kInternal): wrong arguments are a bug of the caller, not of the user's input.
class ArgumentCheck {
 public:
  explicit ArgumentCheck(const char* operation) : operation_(operation) {}

  /// Number of axes; do this before reading a view's extents.
  void rank(const char* field, const View& view, int wanted) const;
  /// One of f32, f16, bf16.
  void io(const char* field, const View& view) const;
  /// One of f64, f32, f16, bf16.
  void floating(const char* field, const View& view) const;
  /// Two axes, one of f32, f16, bf16, and data.
  RowsShape matrix(const char* field, const View& view) const;
  /// As view, with the extents of another.
  void same(const char* field, const View& view, DType dtype, const View& other) const;
  /// Dtype, extents, and data (unless the view is empty).
  void view(const char* field, const View& view, DType dtype,
            std::initializer_list<int64_t> extents) const;
  /// As view, but a view without data passes.
  void optional_view(const char* field, const View& view, DType dtype,
                     std::initializer_list<int64_t> extents) const;
  /// view() of each field, all of one dtype and shape.
  void views(std::initializer_list<std::pair<const char*, const View&>> fields, DType dtype,
             std::initializer_list<int64_t> extents) const;
  void multiple_of(const char* field, int64_t value, int64_t divisor) const;
  void at_least(const char* field, int64_t value, int64_t least) const;
  void at_most(const char* field, int64_t value, int64_t most) const;
  /// Finite and above zero.
  void positive(const char* field, double value) const;
  void finite(const char* field, double value) const;
  /// Probability in [0, 1), and the random state if elements are dropped.
  void dropout(const Dropout& dropout) const;
  /// Bits of kept elements, u8; required if elements are dropped.
  void mask(const View& mask, const Dropout& dropout, std::initializer_list<int64_t> extents) const;
  /// Throws with a sentence that begins with operation and field.
  template <class... Parts>
  [[noreturn]] void refuse(const char* field, const Parts&... parts) const {
    fail(ExitCode::kInternal, operation_, ": ", field, " ", parts...);
  }

 private:
  const char* operation_;
};

}  // namespace bertha
