#include "kernels/ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/tests/matchers.h"
#include "tests/cuda/data_gradient_case.h"
#include "tests/support/captured_log.h"
#include "tests/support/files.h"
#include "tests/support/temp_folder.h"

namespace bertha::testing {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kGeluTanh, Activation::kTanh,
                                       Activation::kGelu};

// Whole tiles, ragged ones, a row, odd widths whose rows begin at any address, the heads of BERT.
constexpr Shape kShapes[] = {{0, 8, 3},     {1, 8, 8},      {7, 64, 2},      {33, 63, 129},
                             {33, 1, 17},   {511, 24, 72},  {512, 256, 384}, {511, 129, 30},
                             {96, 1024, 2}, {48, 64, 30528}};

TEST(CudaLinear, ForwardMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kIoTypes) {
      const Case c(shape, dtype);
      for (const Activation activation : kActivations) {
        for (const bool with_bias : {false, true}) expect_forward(c, with_bias, activation, gpu());
      }
    }
  }
}

// Enough tiles for the algorithms of large GEMMs with more outputs than inputs; the last tiles are
// partial.
TEST(CudaLinear, ForwardOfManyTilesMatchesTheReference) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    expect_forward(Case({5'392, 264, 2'056}, dtype), true, Activation::kNone, gpu());
  }
}

TEST(CudaLinear, DerivativesInBytesMatchTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kIoTypes) {
      const Case c(shape, dtype);
      for (const Activation gelu : kGelus) {
        for (const bool with_bias : {false, true}) {
          expect_forward_in_bytes(c, with_bias, gelu, gpu());
        }
      }
      expect_multiplied_gradient(c, gpu());
    }
  }
}

TEST(CudaLinear, DataGradientMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kIoTypes) {
      const Case c(shape, dtype);
      for (const Activation activation : kActivations) expect_data_gradient(c, activation, gpu());
    }
  }
}

TEST(CudaLinear, DataGradientAddsInPlace) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kIoTypes) {
      const Case c(shape, dtype);
      const HostTensor<float> before =
          rounded_to(dtype, random_tensor({shape.rows, shape.inputs}, 6));
      const auto run = [&](const TestBackend& backend, DType type) {
        return data_gradient(backend, c, type, c.x, before, Activation::kNone, Accumulate::kYes);
      };
      const HostTensor<float> want = run(cpu(), DType::kF32);
      std::vector<double> bound;
      for (int64_t i = 0; i < want.elements(); ++i) {
        bound.push_back(Case::product_error(shape.outputs, 1.0) + 4 * tolerance::kRoundF32 +
                        sum_rounding(dtype, want[i], before[i]));
      }
      expect_within(run(gpu(), dtype), want, bound, "dx " + text(shape, dtype));
    }
  }
}

TEST(CudaLinear, BiasGradientBelowIsTheSumOfTheDataGradient) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kIoTypes) {
      const Case c(shape, dtype);
      for (const Activation activation : kActivations) expect_bias_below(c, activation, gpu());
    }
  }
}

struct ParameterGradients {
  HostTensor<float> weight;
  HostTensor<float> bias;
};

ParameterGradients weight_gradient(const TestBackend& backend, const Case& c, DType dtype,
                                   const ParameterGradients& before, bool with_bias,
                                   Accumulate accumulate) {
  const DeviceTensor dy(backend, dtype, c.dy);
  const DeviceTensor x(backend, dtype, c.x);
  const DeviceTensor dweight(backend, dtype, before.weight);
  const DeviceTensor dbias(backend, dtype, before.bias);
  backend.ops->run(LinearBwdWeight{.dy = dy.view(),
                                   .x = x.view(),
                                   .dweight = dweight.view(),
                                   .dbias = with_bias ? dbias.view() : View(),
                                   .accumulate = accumulate});
  return {.weight = dweight.floats(), .bias = dbias.floats()};
}

void expect_weight_gradient(const Case& c, DType dtype, Accumulate accumulate,
                            const TestBackend& backend) {
  const Shape& shape = c.shape;
  const bool adds = accumulate == Accumulate::kYes;
  const ParameterGradients before =
      adds ? ParameterGradients{.weight = rounded_to(
                                    dtype, random_tensor({shape.outputs, shape.inputs}, 7)),
                                .bias = c.bias}
           : ParameterGradients{.weight = garbage_tensor({shape.outputs, shape.inputs}),
                                .bias = garbage_tensor({shape.outputs})};
  const ParameterGradients want = weight_gradient(cpu(), c, DType::kF32, before, true, accumulate);
  const ParameterGradients got = weight_gradient(backend, c, dtype, before, true, accumulate);
  const auto bounds = [&](const HostTensor<float>& values, const HostTensor<float>& old,
                          double largest) {
    std::vector<double> bound;
    for (int64_t i = 0; i < values.elements(); ++i) {
      bound.push_back(Case::product_error(shape.rows, largest) + 4 * tolerance::kRoundF32 +
                      sum_rounding(dtype, values[i], adds ? old[i] : values[i]));
    }
    return bound;
  };
  const std::string what = concat(text(shape, dtype), adds ? " add" : " overwrite");
  expect_within(got.weight, want.weight, bounds(want.weight, before.weight, 4.0),
                "dweight " + what);
  expect_within(got.bias, want.bias, bounds(want.bias, want.bias, 2.0), "dbias " + what);
}

TEST(CudaLinear, WeightAndBiasGradientsMatchTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kIoTypes) {
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        expect_weight_gradient(Case(shape, dtype), dtype, accumulate, gpu());
      }
    }
  }
}

TEST(CudaLinear, BiasGradientOfManyRowsIsSummedInF32) {
  // 20,000 ones and one half: sums in bf16 would stop at 256, in f16 at 2,048.
  for (const DType dtype : kIoTypes) {
    Case c({20'001, 8, 40}, dtype);
    c.dy = HostTensor<float>({20'001, 40}, 1.0f);
    for (int64_t n = 0; n < 40; ++n) c.dy[n] = 0.5f;
    const ParameterGradients before{.weight = garbage_tensor({40, 8}),
                                    .bias = garbage_tensor({40})};
    const ParameterGradients got = weight_gradient(gpu(), c, dtype, before, true, Accumulate::kNo);
    EXPECT_EQ(got.bias.values, rounded_to(dtype, HostTensor<float>({40}, 20'000.5f)).values)
        << name(dtype);
  }
}

TEST(CudaLinear, WeightGradientWithoutBiasLeavesTheBiasAlone) {
  const Case c({33, 24, 17}, DType::kBF16);
  const ParameterGradients before{.weight = garbage_tensor({17, 24}), .bias = c.bias};
  const ParameterGradients got =
      weight_gradient(gpu(), c, DType::kBF16, before, false, Accumulate::kNo);
  EXPECT_EQ(got.bias.values, c.bias.values);
}

TEST(CudaLinear, ActivationGradientMatchesTheReference) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kIoTypes) {
      for (const Activation activation :
           {Activation::kGeluTanh, Activation::kTanh, Activation::kGelu}) {
        const Case c(shape, dtype);
        const HostTensor<float> saved =
            rounded_to(dtype, scaled(random_tensor({shape.rows, shape.outputs}, 8),
                                     activation == Activation::kTanh ? 0.49f : 6.0f));
        const auto run = [&](const TestBackend& backend, DType type, bool in_place) {
          const DeviceTensor dy(backend, type, c.dy);
          const DeviceTensor at(backend, type, saved);
          const DeviceTensor dx(backend, type, c.outputs());
          backend.ops->run(ActivationBwd{.dy = dy.view(),
                                         .saved = at.view(),
                                         .dx = in_place ? dy.view() : dx.view(),
                                         .activation = activation});
          return in_place ? dy.floats() : dx.floats();
        };
        const HostTensor<float> want = run(cpu(), DType::kF32, false);
        const HostTensor<float> got = run(gpu(), dtype, false);
        std::vector<double> bound;
        for (const float value : want.values) {
          bound.push_back(2 * 12 * tolerance::kGeluF32 +
                          rounding(dtype) * std::abs(static_cast<double>(value)));
        }
        expect_within(got, want, bound, "dx " + text(shape, dtype));
        EXPECT_EQ(run(gpu(), dtype, true).values, got.values);
      }
    }
  }
}

TEST(CudaLinear, ActivationGradientAtNanIsNan) {
  for (const DType dtype : kIoTypes) {
    const DeviceTensor dy(gpu(), dtype, HostTensor<float>({3, 8}, 1.0f));
    const DeviceTensor saved(gpu(), dtype, garbage_tensor({3, 8}));
    gpu().ops->run(ActivationBwd{.dy = dy.view(),
                                 .saved = saved.view(),
                                 .dx = dy.view(),
                                 .activation = Activation::kGeluTanh});
    for (const float value : dy.floats().values) EXPECT_TRUE(std::isnan(value)) << name(dtype);
  }
}

TEST(CudaLinear, OperandsMayBeginAtAnyElement) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kInputs = 63;
  constexpr int64_t kOutputs = 24;
  for (const DType dtype : kIoTypes) {
    for (const Activation activation : kActivations) {
      const Case whole({kRows + 1, kInputs, kOutputs + 1}, dtype);
      Case part({kRows, kInputs, kOutputs}, dtype);
      for (int64_t i = 0; i < part.x.elements(); ++i) part.x[i] = whole.x[i + kInputs];
      for (int64_t i = 0; i < part.weight.elements(); ++i) {
        part.weight[i] = whole.weight[i + kInputs];
      }
      for (int64_t i = 0; i < kOutputs; ++i) part.bias[i] = whole.bias[i + 1];
      const DeviceTensor x(gpu(), dtype, whole.x);
      const DeviceTensor weight(gpu(), dtype, whole.weight);
      const DeviceTensor bias(gpu(), dtype, whole.bias);
      const DeviceTensor y(gpu(), dtype, HostTensor<float>({1 + kRows * kOutputs}, 5.0f));
      const DeviceTensor z(gpu(), dtype, HostTensor<float>({1 + kRows * kOutputs}, 5.0f));
      const auto at_one = [&](const DeviceTensor& tensor) {
        return tensor.view().rows(1, kRows * kOutputs).reshaped({kRows, kOutputs});
      };
      const bool gelu = keeps_pre_activation(activation);
      gpu().ops->run(LinearFwd{.x = x.view().rows(1, kRows),
                               .weight = weight.view().rows(1, kOutputs),
                               .bias = bias.view().rows(1, kOutputs),
                               .y = at_one(y),
                               .pre_activation = gelu ? at_one(z) : View(),
                               .activation = activation});
      const HostTensor<float> got = y.floats();
      EXPECT_EQ(got[0], 5.0f);
      // The same numbers through aligned operands: another algorithm, the same value.
      const HostTensor<float> want = forward(gpu(), part, dtype, true, activation).y;
      for (int64_t i = 0; i < want.elements(); ++i) {
        const double w = static_cast<double>(want[i]);
        ASSERT_NEAR(static_cast<double>(got[i + 1]), w,
                    Case::product_error(kInputs, 1.0) + 4 * tolerance::kGeluInstruction +
                        rounding(dtype) * (8.0 + 4 * std::abs(w)))
            << name(dtype) << " " << i;
      }
    }
  }
}

TEST(CudaLinear, DerivativesMayBeginAtAnyByte) {
  for (const DType dtype : kIoTypes) {
    const Case c({40, 64, 256}, dtype);
    const DeviceTensor x(gpu(), dtype, c.x);
    const DeviceTensor weight(gpu(), dtype, c.weight);
    const DeviceTensor y(gpu(), dtype, c.outputs());
    const DeviceTensor bytes(gpu(), HostTensor<uint8_t>({1 + 40 * 256}, 7));
    const View derivative = bytes.view().rows(1, 40 * 256).reshaped({40, 256});
    gpu().ops->run(LinearFwd{.x = x.view(),
                             .weight = weight.view(),
                             .bias = View(),
                             .y = y.view(),
                             .pre_activation = View(),
                             .derivative = derivative,
                             .activation = Activation::kGelu});
    const ForwardInBytes want = forward_in_bytes(gpu(), c, dtype, false, Activation::kGelu);
    EXPECT_EQ(y.floats().values, want.y.values) << name(dtype);
    HostTensor<uint8_t> got = bytes.values<uint8_t>();
    EXPECT_EQ(got[0], 7);
    got.values.erase(got.values.begin());
    EXPECT_EQ(got.values, want.bytes.values) << name(dtype);
    const DeviceTensor aligned(gpu(), want.bytes);
    const DeviceTensor below(gpu(), dtype, random_tensor({64, 256}, 2));
    const auto dx_with = [&](const View& bytes_below) {
      const DeviceTensor dx(gpu(), dtype, c.outputs());
      gpu().ops->run(LinearBwdData{.dy = x.view(),
                                   .weight = below.view(),
                                   .saved = View(),
                                   .dx = dx.view(),
                                   .derivative = bytes_below});
      return dx.floats().values;
    };
    EXPECT_THAT(dx_with(derivative), ElementsAreArray(dx_with(aligned.view()))) << name(dtype);
  }
}

TEST(CudaLinear, RepeatsBitForBit) {
  for (const DType dtype : kIoTypes) {
    const Case c({511, 256, 384}, dtype);
    const ParameterGradients zero{.weight = garbage_tensor({384, 256}),
                                  .bias = garbage_tensor({384})};
    const Forward y = forward(gpu(), c, dtype, true, Activation::kGeluTanh);
    const ParameterGradients g = weight_gradient(gpu(), c, dtype, zero, true, Accumulate::kNo);
    for (int run = 0; run < 3; ++run) {
      const Forward again = forward(gpu(), c, dtype, true, Activation::kGeluTanh);
      EXPECT_EQ(again.y.values, y.y.values);
      EXPECT_EQ(again.z.values, y.z.values);
      const ParameterGradients g2 = weight_gradient(gpu(), c, dtype, zero, true, Accumulate::kNo);
      EXPECT_EQ(g2.weight.values, g.weight.values);
      EXPECT_EQ(g2.bias.values, g.bias.values);
    }
  }
}

class CudaGemmTuning : public ::testing::Test {
 protected:
  std::string file() const { return bytes_of(path); }

  TempFolder folder;
  std::string path = folder.path("plans.txt");
  CapturedLog log;
};

TEST_F(CudaGemmTuning, KeepsAlgorithmsThatComputeEveryProduct) {
  const auto expect_right = [](const TestBackend& backend, int64_t rows) {
    for (const DType dtype : kIoTypes) {
      const Case c({rows, 256, 384}, dtype);
      expect_forward(c, true, Activation::kGeluTanh, backend);
      expect_forward(c, false, Activation::kNone, backend);
      for (const Activation below : {Activation::kNone, Activation::kGeluTanh}) {
        expect_data_gradient(c, below, backend);
      }
      expect_weight_gradient(c, dtype, Accumulate::kYes, backend);
    }
  };
  expect_right(make_gpu({.gemm_plans_path = path, .tune_gemms = true}), 512);
  for (const std::string& line : log.texts()) {
    EXPECT_THAT(line, HasSubstr("0 faster ones wrong"));
  }
  EXPECT_THAT(log.texts(), ::testing::SizeIs(::testing::Ge(9)));

  // Exactly tuned, nearby, and too far away from what was tuned.
  const TestBackend loaded = make_gpu({.gemm_plans_path = path});
  for (const int64_t rows : {512, 300, 1000, 3}) expect_right(loaded, rows);
  EXPECT_THAT(log.warnings(), IsEmpty());
}

TEST_F(CudaGemmTuning, OnFirstUseTunesOnceAndSaves) {
  const Case c({64, 128, 256}, DType::kBF16);
  {
    const TestBackend tuning = make_gpu({.gemm_plans_path = path, .tune_gemms = true});
    expect_forward(c, true, Activation::kGeluTanh, tuning);
    const std::string first = file();
    expect_forward(Case({72, 128, 256}, DType::kBF16), true, Activation::kGeluTanh,
                   tuning);  // nearby
    EXPECT_EQ(file(), first);
    expect_forward(Case({200, 128, 256}, DType::kBF16), true, Activation::kGeluTanh, tuning);
    EXPECT_GT(file().size(), first.size());
  }
  const std::string saved = file();
  const TestBackend again = make_gpu({.gemm_plans_path = path, .tune_gemms = true});
  expect_forward(c, true, Activation::kGeluTanh, again);
  EXPECT_EQ(file(), saved);
  EXPECT_THAT(log.warnings(), IsEmpty());
}

TEST_F(CudaGemmTuning, WithoutItsFileTheLibraryChooses) {
  const TestBackend backend = make_gpu({.gemm_plans_path = path});
  EXPECT_THAT(log.warnings(), ElementsAre(HasSubstr(path)));
  expect_forward(Case({64, 128, 256}, DType::kF16), true, Activation::kTanh, backend);
}

TEST_F(CudaGemmTuning, GemmsMayPlanForFewerSms) {
  const TestBackend backend = make_gpu({.gemm_sm_count = 100});
  for (const DType dtype : kIoTypes) {
    expect_forward(Case({511, 256, 384}, dtype), true, Activation::kGeluTanh, backend);
  }
}

}  // namespace
}  // namespace bertha::testing
