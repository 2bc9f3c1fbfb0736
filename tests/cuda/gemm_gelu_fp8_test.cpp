#include "kernels/ops/linear_quantize.h"
#include "tests/cuda/gelu_gemms.h"
#include "tests/support/fp8_case.h"

namespace bertha::testing {
namespace {

constexpr float kXInverse = 0.5f;
constexpr float kWeightInverse = 0.0625f;
constexpr float kScale = 16.0f;
constexpr float kSumsBefore = 2.0f;
constexpr int64_t kPadding = 5;  // rows that are not live

// Ragged and whole tiles of 128 rows and 256 columns, and numbers of inner blocks below, at and
// above the fragments of a tile. In the last three these are constants of the kernel, on 132 SMs
// and on 6.
constexpr Shape kShapes[] = {{16, 128, 256},   {112, 256, 512},   {128, 384, 256},
                             {528, 768, 512},  {2512, 1280, 256}, {1552, 512, 256},
                             {656, 768, 1024}, {1552, 1024, 256}};
constexpr DType kTypes[] = {DType::kF16, DType::kBF16};

/// Operands of a GEMM [rows, inputs] x [outputs, inputs].
struct Operands {
  explicit Operands(const Shape& shape_in)
      : shape(shape_in),
        x(random_tensor({shape.rows, shape.inputs}, 1)),
        weight(random_tensor({shape.outputs, shape.inputs}, 2)),
        bias(random_tensor({shape.outputs}, 3)),
        derivative({shape.rows, shape.outputs}) {
    for (size_t i = 0; i < derivative.values.size(); ++i) {
      derivative.values[i] = static_cast<uint8_t>(i * 37);
    }
  }
  Shape shape;
  HostTensor<float> x, weight, bias;
  HostTensor<uint8_t> derivative;  // backward
  Activation gelu = Activation::kGeluTanh;
};

struct Result {
  HostTensor<float> column_sums;
  std::vector<uint8_t> q, transposed, derivative;
  float amax = 0;
  int64_t saturated = 0;

  bool operator==(const Result& other) const {
    return column_sums.values == other.column_sums.values && q == other.q &&
           transposed == other.transposed && derivative == other.derivative && amax == other.amax &&
           saturated == other.saturated;
  }
};

/// What all calls share: where results go.
class Outputs {
 public:
  Outputs(const TestBackend& backend, const Operands& of, DType io, DType format, float scale)
      : Outputs(backend, of.shape, of.derivative, io, format, scale) {}
  Outputs(const TestBackend& backend, const Shape& shape, const HostTensor<uint8_t>& bytes,
          DType io, DType format, float scale)
      : format_(format),
        memory(backend, io, garbage_tensor({shape.rows, shape.outputs})),
        derivative(backend, bytes),
        column_sums(backend, io, HostTensor<float>({shape.outputs}, kSumsBefore)),
        scale_(backend, DType::kF32, HostTensor<float>({1}, scale)),
        q_(backend, HostTensor<uint8_t>({shape.rows, shape.outputs}, 0xAA)),
        transposed_(backend, HostTensor<uint8_t>({shape.outputs, shape.rows}, 0xAA)),
        amax_(backend, DType::kF32, HostTensor<float>({1})),
        saturated_(backend, HostTensor<int64_t>({1}, 3)),
        live_rows_(backend, HostTensor<int32_t>({1}, static_cast<int32_t>(shape.rows - kPadding))) {
  }

  Quantize quantize() const {
    const View x = memory.view();
    return {.x = x,
            .scale = scale_.view(),
            .q = as_fp8(q_),
            .transposed = as_fp8(transposed_),
            .amax = amax_.view(),
            .saturated = saturated_.view(),
            .live_rows = live_rows_.view(),
            .derivative = derivative.view()};
  }
  Result result() const {
    return {.column_sums = column_sums.floats(),
            .q = q_.values<uint8_t>().values,
            .transposed = transposed_.values<uint8_t>().values,
            .derivative = derivative.values<uint8_t>().values,
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
  DeviceTensor memory, derivative, column_sums;

 private:
  DeviceTensor scale_, q_, transposed_, amax_, saturated_, live_rows_;
};

struct Inputs {
  Inputs(const TestBackend& backend, const Operands& of, DType io, DType format)
      : x(backend, format, of.x),
        weight(backend, DType::kE4M3, of.weight),
        bias(backend, io, of.bias),
        x_inverse(backend, DType::kF32, HostTensor<float>({1}, kXInverse)),
        weight_inverse(backend, DType::kF32, HostTensor<float>({1}, kWeightInverse)) {}
  DeviceTensor x, weight, bias, x_inverse, weight_inverse;
};

LinearFwd linear_of(const Inputs& in, const View& y) {
  return {.x = in.x.view(),
          .weight = in.weight.view(),
          .bias = in.bias.view(),
          .y = y,
          .pre_activation = View(),
          .x_inverse_scale = in.x_inverse.view(),
          .weight_inverse_scale = in.weight_inverse.view()};
}

/// kEvaluation: by rows alone, without the derivative. kEveryRow: all, and every row is live.
enum class Wanted { kAll, kEvaluation, kEveryRow };

Result forward(const TestBackend& backend, const Operands& of, DType io, float scale = kScale,
               Wanted wanted = Wanted::kAll) {
  const Inputs in(backend, of, io, DType::kE4M3);
  const Outputs out(backend, of, io, DType::kE4M3, scale);
  Quantize quantize = out.quantize();
  quantize.activation = of.gelu;
  if (wanted == Wanted::kEvaluation) quantize.transposed = quantize.derivative = View();
  if (wanted == Wanted::kEveryRow) quantize.live_rows = View();
  backend.ops->run(
      LinearFwdQuantize{.linear = linear_of(in, out.memory.view()), .quantize = quantize});
  return out.result();
}

Result backward(const TestBackend& backend, const Operands& of, DType io,
                Accumulate accumulate = Accumulate::kNo, float scale = kScale) {
  const Inputs in(backend, of, io, DType::kE5M2);
  const Outputs out(backend, of, io, DType::kE5M2, scale);
  Quantize quantize = out.quantize();
  quantize.column_sums = out.column_sums.view();
  quantize.accumulate_sums = accumulate;
  backend.ops->run(
      LinearBwdDataQuantize{.linear = {.dy = in.x.view(),
                                       .weight = in.weight.view(),
                                       .saved = View(),
                                       .dx = out.memory.view(),
                                       .dy_inverse_scale = in.x_inverse.view(),
                                       .weight_inverse_scale = in.weight_inverse.view()},
                            .quantize = quantize});
  return out.result();
}

/// The pre-activation in f32.
HostTensor<float> pre_activation(const Operands& of) {
  const Inputs in(cpu(), of, DType::kF32, DType::kE4M3);
  const DeviceTensor z(cpu(), DType::kF32, garbage_tensor({of.shape.rows, of.shape.outputs}));
  cpu().ops->run(linear_of(in, z.view()));
  return z.floats();
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

double value_of(DType format, uint8_t code) {
  return fp8_value(format, code) / static_cast<double>(kScale);
}

/// A unit in the last place of an fp8 number of that size: two results both round.
double unit(DType format, double value) {
  const auto scale = static_cast<double>(kScale);
  return 2 * fp8_half_unit(format, value * scale) / scale;
}

using CudaGemmGeluFp8 = NeedsSm90a;

/// z: the pre-activation; sums: of its magnitudes.
void expect_near(const Result& got, const Result& want, const Operands& of, DType io,
                 const HostTensor<float>& z, const HostTensor<float>& sums) {
  double amax_bound = 0;
  int wrong = 0;
  for (int64_t i = 0; i < z.elements(); ++i) {
    const double size = std::abs(static_cast<double>(z[i]));
    const double z_error =
        sum_error(sums[i]) + rounding(DType::kF16) * size +
        rounding(io) * std::abs(static_cast<double>(of.bias[i % of.shape.outputs]));
    const double error =
        tolerance::kGeluDerivative * z_error + tolerance::kGeluF16 * std::max(1.0, size);
    const auto at = static_cast<size_t>(i);
    const double wanted = value_of(DType::kE4M3, want.q[at]);
    if (!(std::abs(value_of(DType::kE4M3, got.q[at]) - wanted) <=
          error + unit(DType::kE4M3, std::abs(wanted) + error))) {
      ++wrong;
    }
    // The derivative changes by less than 0.8 of what z changes by.
    const double derivative_error =
        0.8 * z_error + tolerance::kGeluDerivativeF16 + static_cast<double>(kDerivativeStep);
    if (!(std::abs(derivative_of(got.derivative[at]) - derivative_of(want.derivative[at])) <=
          derivative_error)) {
      ++wrong;
    }
    amax_bound = std::max(amax_bound, error);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_NEAR(static_cast<double>(got.amax), static_cast<double>(want.amax), amax_bound);
  EXPECT_EQ(got.saturated, 3);
}

TEST_F(CudaGemmGeluFp8, ForwardMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    Operands of(shape);
    const HostTensor<float> z = pre_activation(of);
    const HostTensor<float> sums = pre_activation(magnitudes(of));
    for (const Activation gelu : kGelus) {
      of.gelu = gelu;
      const Result want = forward(cpu(), of, DType::kF32);
      for (const DType io : kTypes) {
        SCOPED_TRACE(concat(text(shape, io), " ", static_cast<int>(gelu)));
        const Result got = forward(own_gelu(), of, io);
        expect_transposed(got, shape);
        expect_near(got, want, of, io, z, sums);
      }
    }
  }
}

TEST_F(CudaGemmGeluFp8, EveryNumberHasItsGelu) {
  Operands of({16, 128, 65536});
  std::ranges::fill(of.x.values, 0.0f);
  of.bias.values = every_number(DType::kF16).values;  // and so z
  for (const Activation gelu : kGelus) {
    of.gelu = gelu;
    const Result got = forward(own_gelu(), of, DType::kF16);
    int wrong = 0;
    for (int64_t i = 0; i < of.bias.elements(); ++i) {
      const auto z = static_cast<double>(of.bias[i]);
      const double exact = exact_gelu(z, gelu);
      const double largest = Fp8E4M3::kMax / kScale;
      const double error = tolerance::kGeluF16 * std::max(1.0, std::abs(z));
      const double q = value_of(DType::kE4M3, got.q[static_cast<size_t>(i)]);
      const double byte = derivative_of(got.derivative[static_cast<size_t>(i)]);
      if (!(std::abs(q - std::min(exact, largest)) <=
            error + 0.5 * unit(DType::kE4M3, std::min(std::abs(exact) + error, largest))) ||
          !(std::abs(byte - exact_gelu_derivative(z, gelu)) <=
            tolerance::kGeluDerivativeF16 + 0.5 * static_cast<double>(kDerivativeStep))) {
        ++wrong;
      }
    }
    EXPECT_EQ(wrong, 0) << static_cast<int>(gelu);
  }
}

TEST_F(CudaGemmGeluFp8, GradientMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType io : kTypes) {
      SCOPED_TRACE(text(shape, io));
      const Operands of(shape);
      const Operands positive = magnitudes(of);
      const auto plain = [&](const Operands& operands) {
        const Inputs in(cpu(), operands, DType::kF32, DType::kE5M2);
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
        const double error = tolerance::kGeluDerivative *
                             (sum_error(sums[i]) + (rounding(io) + tolerance::kRowF32) * size);
        const auto at = static_cast<size_t>(i);
        const double wanted = value_of(DType::kE5M2, want.q[at]);
        if (!(std::abs(value_of(DType::kE5M2, got.q[at]) - wanted) <=
              error + unit(DType::kE5M2, std::abs(wanted) + error))) {
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

/// Numbers with exact sums, and derivatives of 0 and 1.
Operands exact_operands(const Shape& shape, float number) {
  Operands of(shape);
  for (HostTensor<float>* values : {&of.x, &of.weight}) {
    for (float& value : values->values) {
      value = std::abs(value) < 1.8f ? 0.0f : std::copysign(number, value);
    }
  }
  for (float& value : of.bias.values) value = std::round(value * 16) / 16;
  for (uint8_t& byte : of.derivative.values) {
    byte = static_cast<uint8_t>(kDerivativeZero + (byte % 2 == 0 ? 0.0f : 1 / kDerivativeStep));
  }
  return of;
}

TEST_F(CudaGemmGeluFp8, ForwardGivesTheBytesOfTheOperationsApart) {
  const TestBackend& apart = gelu_gpu(GeluGemms::kLibrary, kAllSms);
  for (const Shape& shape : kShapes) {
    Operands of = exact_operands(shape, 4.0f);
    for (const DType io : kTypes) {
      SCOPED_TRACE(text(shape, io));
      of.gelu = io == DType::kF16 ? Activation::kGelu : Activation::kGeluTanh;
      // From 512 on some results are beyond the largest number. 768 is not a power of two, 2^18 not
      // a number of f16.
      for (const float scale : {kScale, 512.0f, 768.0f, 262144.0f}) {
        for (const Wanted wanted : {Wanted::kAll, Wanted::kEvaluation}) {
          const Result want = forward(apart, of, io, scale, wanted);
          EXPECT_EQ(want.saturated > 3, scale > kScale);
          EXPECT_EQ(forward(own_gelu(), of, io, scale, wanted), want);
          EXPECT_EQ(forward(own_gelu(kFewSms), of, io, scale, wanted), want);
        }
      }
    }
  }
}

TEST_F(CudaGemmGeluFp8, GradientGivesTheBytesOfTheOperationsApart) {
  const TestBackend& apart = gelu_gpu(GeluGemms::kLibrary, kAllSms);
  for (const Shape& shape : kShapes) {
    const Operands of = exact_operands(shape, 1.0f);
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

// A tile has 128 rows: those past the last one have GELU(bias), which must not count.
TEST_F(CudaGemmGeluFp8, RowsPastTheLastOneDoNotReachAmax) {
  const Shape shape{.rows = 16, .inputs = 128, .outputs = 256};
  Operands of(shape);
  const float product = static_cast<float>(shape.inputs) * kXInverse * kWeightInverse;
  std::ranges::fill(of.x.values, 1.0f);
  std::ranges::fill(of.weight.values, -1.0f);
  std::ranges::fill(of.bias.values, product);
  EXPECT_EQ(forward(own_gelu(), of, DType::kBF16, kScale, Wanted::kEveryRow).amax, 0.0f);
}

TEST_F(CudaGemmGeluFp8, ANaNReachesAmax) {
  Operands of({144, 256, 256});
  of.x[100 * 256 + 7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(backward(own_gelu(), of, DType::kBF16).amax));
  of.x[100 * 256 + 7] = 0.0f;
  of.bias[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(forward(own_gelu(), of, DType::kBF16).amax));
}

}  // namespace
}  // namespace bertha::testing
