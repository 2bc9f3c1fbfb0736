#include "kernels/base/check.h"

#include <cmath>

namespace bertha {

void ArgumentCheck::rank(const char* field, const View& view, int wanted) const {
  if (view.rank != wanted) {
    refuse(field, "is ", view.shape_text(), ", want ", wanted, wanted == 1 ? " axis" : " axes");
  }
}

void ArgumentCheck::io(const char* field, const View& view) const {
  const bool floating =
      view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
  if (!floating) refuse(field, "is ", name(view.dtype), ", want f32, f16 or bf16");
}

void ArgumentCheck::floating(const char* field, const View& view) const {
  if (view.dtype != DType::kF64 && view.dtype != DType::kF32 && view.dtype != DType::kF16 &&
      view.dtype != DType::kBF16) {
    refuse(field, "is ", name(view.dtype), ", want f64, f32, f16 or bf16");
  }
}

RowsShape ArgumentCheck::matrix(const char* field, const View& view) const {
  rank(field, view, 2);
  io(field, view);
  same(field, view, view.dtype, view);
  return {.io = view.dtype, .rows = view.extent(0), .columns = view.extent(1)};
}

void ArgumentCheck::view(const char* field, const View& view, DType dtype,
                         std::initializer_list<int64_t> extents) const {
  same(field, view, dtype, View(nullptr, dtype, extents));
}

void ArgumentCheck::same(const char* field, const View& view, DType dtype,
                         const View& other) const {
  View wanted = other;
  wanted.dtype = dtype;
  const bool same =
      view.dtype == dtype && view.rank == wanted.rank && view.extents == wanted.extents;
  const bool is_absent = view.data == nullptr && (same ? view.elements() > 0 : view.rank == 0);
  if (is_absent) refuse(field, "has no data, want ", wanted.shape_text());
  if (!same) refuse(field, "is ", view.shape_text(), ", want ", wanted.shape_text());
}

void ArgumentCheck::optional_view(const char* field, const View& given, DType dtype,
                                  std::initializer_list<int64_t> extents) const {
  if (given.data != nullptr) view(field, given, dtype, extents);
}

void ArgumentCheck::views(std::initializer_list<std::pair<const char*, const View&>> fields,
                          DType dtype, std::initializer_list<int64_t> extents) const {
  for (const auto& [field, given] : fields) view(field, given, dtype, extents);
}

void ArgumentCheck::multiple_of(const char* field, int64_t value, int64_t divisor) const {
  if (value % divisor != 0) refuse(field, "= ", value, ", want a multiple of ", divisor);
}

void ArgumentCheck::at_least(const char* field, int64_t value, int64_t least) const {
  if (value < least) refuse(field, "= ", value, ", want at least ", least);
}

void ArgumentCheck::at_most(const char* field, int64_t value, int64_t most) const {
  if (value > most) refuse(field, "= ", value, ", want at most ", most);
}

void ArgumentCheck::positive(const char* field, double value) const {
  if (!std::isfinite(value) || value <= 0.0) {
    refuse(field, "= ", value, ", want a finite value above 0");
  }
}

void ArgumentCheck::finite(const char* field, double value) const {
  if (!std::isfinite(value)) refuse(field, "= ", value, ", want a finite value");
}

void ArgumentCheck::dropout(const Dropout& dropout) const {
  const float probability = dropout.probability;
  if (!(probability >= 0.0f && probability < 1.0f)) {
    refuse("dropout.probability", "= ", probability, ", want a value in [0, 1)");
  }
  if (probability > 0.0f) view("dropout.random", dropout.random, DType::kU64, {2});
}

void ArgumentCheck::mask(const View& mask, const Dropout& dropout,
                         std::initializer_list<int64_t> extents) const {
  if (dropout.probability > 0.0f) view("mask", mask, DType::kU8, extents);
}

}  // namespace bertha
