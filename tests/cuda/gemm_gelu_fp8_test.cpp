#include "kernels/ops/linear_quantize.h"
#include "tests/cuda/gelu_gemms.h"

namespace bertha::testing {
namespace {

constexpr float kXInverse = 0.5f;
constexpr float kWeightInverse = 0.0625f;
constexpr float kScale = 16.0f;
constexpr float kSumsBefore = 2.0f;
constexpr int64_t kPadding = 5;  // rows that are not live

// Ragged and whole tiles of 128 rows and 256 columns, and numbers of inner blocks below, at and
// above the fragments of a tile.
constexpr Shape kShapes[] = {{16, 128, 256},   {112, 256, 512}, {128, 384, 256},
                             {144, 1024, 256}, {528, 768, 512}, {2512, 1280, 256}};
constexpr DType kTypes[] = {DType::kF16, DType::kBF16};

/// Operands of a GEMM [rows, inputs] x [outputs, inputs].
struct Operands {
  explicit Operands(const Shape& shape_in)
      : shape(shape_in),
        x(random_tensor({shape.rows, shape.inputs}, 1)),
        weight(random_tensor({shape.outputs, shape.inputs}, 2)),
        bias(random_tensor({shape.outputs}, 3)),
        z(scaled(random_tensor({shape.rows, shape.outputs}, 4), 2.5f)) {}
  Shape shape;
  HostTensor<float> x, weight, bias, z;
};

struct Result {
  HostTensor<float> z, column_sums;
  std::vector<uint8_t> q, transposed;
  float amax = 0;
  int64_t saturated = 0;

  bool operator==(const Result& other) const {
    return z.values == other.z.values && column_sums.values == other.column_sums.values &&
           q == other.q && transposed == other.transposed && amax == other.amax &&
           saturated == other.saturated;
  }
};

/// What all calls share: where results go.
class Outputs {
 public:
  Outputs(const TestBackend& backend, const Shape& shape, DType io, DType format, float scale)
      : format_(format),
        z(backend, io, garbage_tensor({shape.rows, shape.outputs})),
        column_sums(backend, io, HostTensor<float>({shape.outputs}, kSumsBefore)),
        scale_(backend, DType::kF32, HostTensor<float>({1}, scale)),
        q_(backend, HostTensor<uint8_t>({shape.rows, shape.outputs}, 0xAA)),
        transposed_(backend, HostTensor<uint8_t>({shape.outputs, shape.rows}, 0xAA)),
        amax_(backend, DType::kF32, HostTensor<float>({1})),
        saturated_(backend, HostTensor<int64_t>({1}, 3)) {}

  Quantize quantize(const View& x) const {
    return {.x = x,
            .scale = scale_.view(),
            .q = as_fp8(q_),
            .transposed = as_fp8(transposed_),
            .amax = amax_.view(),
            .saturated = saturated_.view(),
            .live_rows = x.extent(0) - kPadding,
            .activation = Activation::kGeluTanh};
  }
  Result result() const {
    return {.z = z.floats(),
            .column_sums = column_sums.floats(),
            .q = q_.values<uint8_t>().values,
            .transposed = transposed_.values<uint8_t>().values,
            .amax = amax_.floats()[0],
            .saturated = saturated_.values<int64_t>()[0]};
  }

 private:
  View as_fp8(const DeviceTensor& bytes) const {
    View view = bytes.view();
    view.dtype = format_;
    return view;
  }
  DType format_;

 public:
  DeviceTensor z, column_sums;

 private:
  DeviceTensor scale_, q_, transposed_, amax_, saturated_;
};

struct Inputs {
  Inputs(const TestBackend& backend, const Operands& of, DType io, DType format)
      : x(backend, format, of.x),
        weight(backend, DType::kE4M3, of.weight),
        bias(backend, io, of.bias),
        z(backend, io, of.z),
        x_inverse(backend, DType::kF32, HostTensor<float>({1}, kXInverse)),
        weight_inverse(backend, DType::kF32, HostTensor<float>({1}, kWeightInverse)) {}
  DeviceTensor x, weight, bias, z, x_inverse, weight_inverse;
};

enum class Layouts { kBoth, kRows };

Result forward(const TestBackend& backend, const Operands& of, DType io, float scale = kScale,
               Layouts layouts = Layouts::kBoth) {
  const Inputs in(backend, of, io, DType::kE4M3);
  const Outputs out(backend, of.shape, io, DType::kE4M3, scale);
  Quantize quantize = out.quantize(out.z.view());
  if (layouts == Layouts::kRows) quantize.transposed = View();
  backend.ops->run(LinearFwdQuantize{.linear = {.x = in.x.view(),
                                                .weight = in.weight.view(),
                                                .bias = in.bias.view(),
                                                .y = out.z.view(),
                                                .pre_activation = View(),
                                                .x_inverse_scale = in.x_inverse.view(),
                                                .weight_inverse_scale = in.weight_inverse.view()},
                                     .quantize = quantize});
  return out.result();
}

Result backward(const TestBackend& backend, const Operands& of, DType io,
                Accumulate accumulate = Accumulate::kNo, float scale = kScale) {
  const Inputs in(backend, of, io, DType::kE5M2);
  const Outputs out(backend, of.shape, io, DType::kE5M2, scale);
  Quantize quantize = out.quantize(out.z.view());
  quantize.saved = in.z.view();
  quantize.column_sums = out.column_sums.view();
  quantize.accumulate_sums = accumulate;
  backend.ops->run(
      LinearBwdDataQuantize{.linear = {.dy = in.x.view(),
                                       .weight = in.weight.view(),
                                       .saved = View(),
                                       .dx = out.z.view(),
                                       .dy_inverse_scale = in.x_inverse.view(),
                                       .weight_inverse_scale = in.weight_inverse.view()},
                            .quantize = quantize});
  Result result = out.result();
  result.z = {};  // undefined
  return result;
}

/// What Quantize makes of a pre-activation on the GPU.
Result gelu_of(const HostTensor<float>& z, DType io, float scale) {
  const Outputs out(gpu(), {z.extents[0], 0, z.extents[1]}, io, DType::kE4M3, scale);
  const DeviceTensor from(gpu(), io, z);
  gpu().ops->run(out.quantize(from.view()));
  Result result = out.result();
  result.z = z;
  return result;
}

/// The same sums of magnitudes, which errors of GEMMs are relative to.
Operands magnitudes(Operands of) {
  for (HostTensor<float>* values : {&of.x, &of.weight}) {
    for (float& value : values->values) value = std::abs(value);
  }
  for (float& value : of.bias.values) value = 0.0f;
  return of;
}

double sum_error(float magnitude) {
  return tolerance::kFp8Sum * static_cast<double>(magnitude) + 4 * tolerance::kRoundF32;
}

void expect_transposed(const Result& result, const Shape& shape) {
  for (size_t i = 0; i < result.q.size(); ++i) {
    const size_t row = i / static_cast<size_t>(shape.outputs);
    const size_t column = i % static_cast<size_t>(shape.outputs);
    ASSERT_EQ(result.transposed[column * static_cast<size_t>(shape.rows) + row], result.q[i])
        << "row " << row << ", column " << column;
  }
}

TEST(CudaGemmGeluFp8, ForwardStoresZAndRoundsItsGelu) {
  for (const Shape& shape : kShapes) {
    const Operands of(shape);
    const HostTensor<float> want = forward(cpu(), of, DType::kF32).z;
    const HostTensor<float> sums = forward(cpu(), magnitudes(of), DType::kF32).z;
    for (const DType io : kTypes) {
      SCOPED_TRACE(text(shape, io));
      for (const int sm_count : {kAllSms, kFewSms}) {
        // At 512 some results are beyond the largest number.
        for (const float scale : {kScale, 512.0f}) {
          const Result got = forward(own_gelu(sm_count), of, io, scale);
          std::vector<double> bound;
          for (int64_t i = 0; i < want.elements(); ++i) {
            bound.push_back(sum_error(sums[i]) +
                            rounding(io) * (std::abs(static_cast<double>(want[i])) + 2.0));
          }
          expect_within(got.z, want, bound, "z");
          const Result apart = gelu_of(got.z, io, scale);
          EXPECT_EQ(got.q, apart.q);
          EXPECT_EQ(got.transposed, apart.transposed);
          EXPECT_EQ(got.amax, apart.amax);
          EXPECT_EQ(got.saturated, apart.saturated);
          EXPECT_EQ(got.saturated > 3, scale > kScale);
        }
      }
    }
  }
}

TEST(CudaGemmGeluFp8, ForwardWithoutTheTransposedResult) {
  const Operands of({144, 256, 512});
  Result want = forward(own_gelu(), of, DType::kBF16);
  const Result got = forward(own_gelu(), of, DType::kBF16, kScale, Layouts::kRows);
  want.transposed.assign(want.transposed.size(), 0xAA);
  EXPECT_EQ(got, want);
}

double value_of(uint8_t code) {
  return static_cast<double>(to_float(Fp8E5M2{code})) / static_cast<double>(kScale);
}

TEST(CudaGemmGeluFp8, GradientMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType io : kTypes) {
      SCOPED_TRACE(text(shape, io));
      Operands of(shape);
      of.z = rounded_to(io, of.z);
      const Operands positive = magnitudes(of);
      const auto plain = [&](const Operands& operands) {
        Operands linear = operands;  // where gelu' is 1, in f32
        linear.z = HostTensor<float>({shape.rows, shape.outputs}, 20.0f);
        const Inputs in(cpu(), linear, DType::kF32, DType::kE5M2);
        const DeviceTensor dx(cpu(), DType::kF32, garbage_tensor({shape.rows, shape.outputs}));
        cpu().ops->run(LinearBwdData{.dy = in.x.view(),
                                     .weight = in.weight.view(),
                                     .saved = View(),
                                     .dx = dx.view(),
                                     .dy_inverse_scale = in.x_inverse.view(),
                                     .weight_inverse_scale = in.weight_inverse.view()});
        return dx.floats();
      };
      const HostTensor<float> product = plain(of);
      const HostTensor<float> sums = plain(positive);
      const Result want = backward(cpu(), of, DType::kF32, Accumulate::kYes);
      const Result got = backward(own_gelu(), of, io, Accumulate::kYes);
      expect_transposed(got, shape);
      EXPECT_EQ(got.saturated, 3);
      std::vector<double> column_bounds(static_cast<size_t>(shape.outputs), 0.0);
      std::vector<double> column_magnitudes(column_bounds.size(), kSumsBefore);
      double amax_bound = 0;
      int wrong = 0;
      for (int64_t i = 0; i < product.elements(); ++i) {
        const double size = std::abs(static_cast<double>(product[i]));
        const double error = tolerance::kGeluDerivative * sum_error(sums[i]) +
                             tolerance::kGeluDerivativeF16 * size +
                             rounding(io) * tolerance::kGeluDerivative * size;
        // Both round to fp8, with 2 bits behind the point.
        const auto at = static_cast<size_t>(i);
        const double half_unit = std::max(std::ldexp(std::abs(value_of(want.q[at])) + error, -3),
                                          std::ldexp(1.0, -17) / 16.0);
        if (!(std::abs(value_of(got.q[at]) - value_of(want.q[at])) <= error + 2 * half_unit)) {
          ++wrong;
        }
        amax_bound = std::max(amax_bound, error);
        // The kernel adds three levels of pairs in the stored type.
        const double magnitude = tolerance::kGeluDerivative * size + error;
        const auto column = static_cast<size_t>(i % shape.outputs);
        column_bounds[column] += error + 3 * rounding(io) * magnitude;
        column_magnitudes[column] += magnitude;
      }
      EXPECT_EQ(wrong, 0);
      EXPECT_NEAR(static_cast<double>(got.amax), static_cast<double>(want.amax), amax_bound);
      for (size_t i = 0; i < column_bounds.size(); ++i) {
        column_bounds[i] += tolerance::stored_column_sum(
            rounding(io), static_cast<double>(want.column_sums.values[i]), column_magnitudes[i],
            shape.rows);
      }
      expect_within(got.column_sums, want.column_sums, column_bounds, "column sums");
    }
  }
}

/// Small integers, whose sums are exact, and pre-activations where gelu' is 0 or 1.
Operands exact_operands(const Shape& shape) {
  Operands of(shape);
  for (HostTensor<float>* values : {&of.x, &of.weight}) {
    for (float& value : values->values) {
      value = std::abs(value) < 1.8f ? 0.0f : std::copysign(1.0f, value);
    }
  }
  for (float& z : of.z.values) z = std::copysign(20.0f, z);
  return of;
}

TEST(CudaGemmGeluFp8, GradientGivesTheBytesOfTheOperationsApart) {
  const TestBackend& apart = gelu_gpu(GeluGemms::kLibrary, kAllSms);
  for (const Shape& shape : kShapes) {
    const Operands of = exact_operands(shape);
    for (const DType io : kTypes) {
      SCOPED_TRACE(text(shape, io));
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        for (const float scale : {kScale, 262144.0f}) {
          const Result want = backward(apart, of, io, accumulate, scale);
          EXPECT_EQ(backward(own_gelu(), of, io, accumulate, scale), want);
          EXPECT_EQ(backward(own_gelu(kFewSms), of, io, accumulate, scale), want);
        }
      }
    }
  }
}

TEST(CudaGemmGeluFp8, ANaNReachesAmax) {
  Operands of({144, 256, 256});
  of.z[100 * 256 + 7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(backward(own_gelu(), of, DType::kBF16).amax));
  of.bias[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(forward(own_gelu(), of, DType::kBF16).amax));
}

}  // namespace
}  // namespace bertha::testing
