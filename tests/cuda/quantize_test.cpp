#include "kernels/ops/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/cuda/gpu.h"
#include "tests/support/fp8_case.h"

namespace bertha::testing {
namespace {

struct Bytes {
  std::vector<uint8_t> q;
  std::vector<uint8_t> transposed;
  uint32_t amax_bits = 0;
  int64_t saturated = 0;

  bool operator==(const Bytes&) const = default;
};

struct Case {
  int64_t rows;
  int64_t columns;
  int64_t live_rows;
  DType format = DType::kE4M3;
  float scale = 1.0f;
  bool wants_q = true;
  bool wants_transposed = true;
};

View as_fp8(const DeviceTensor& bytes, const Case& c, bool is_wanted) {
  View view = bytes.view();
  if (!is_wanted) return View();
  view.dtype = c.format;
  return view;
}

/// A matrix on a device and what Quantize writes.
struct OnDevice {
  OnDevice(const TestBackend& backend, DType io, const HostTensor<float>& values, const Case& c)
      : x(backend, io, values),
        scale(backend, DType::kF32, HostTensor<float>({1}, c.scale)),
        q(backend, HostTensor<uint8_t>({c.rows, c.columns}, 0xAA)),
        transposed(backend, HostTensor<uint8_t>({c.columns, c.rows}, 0xAA)),
        amax(backend, DType::kF32, HostTensor<float>({1}, 0.125f)),
        saturated(backend, HostTensor<int64_t>({1}, 5)),
        live_rows(backend, HostTensor<int32_t>({1}, static_cast<int32_t>(c.live_rows))),
        args{.x = x.view(),
             .scale = scale.view(),
             .q = as_fp8(q, c, c.wants_q),
             .transposed = as_fp8(transposed, c, c.wants_transposed),
             .amax = amax.view(),
             .saturated = saturated.view(),
             .live_rows = live_rows.view()} {}

  Bytes bytes() const {
    return {.q = q.values<uint8_t>().values,
            .transposed = transposed.values<uint8_t>().values,
            .amax_bits = std::bit_cast<uint32_t>(amax.floats()[0]),
            .saturated = saturated.values<int64_t>()[0]};
  }

  DeviceTensor x, scale, q, transposed, amax, saturated, live_rows;
  Quantize args;
};

Bytes quantized(const TestBackend& backend, DType io, const HostTensor<float>& x, const Case& c) {
  const OnDevice matrix(backend, io, x, c);
  backend.ops->run(matrix.args);
  return matrix.bytes();
}

void expect_the_same(const HostTensor<float>& values, const Case& c) {
  for (const DType io : kIoTypes) {
    const HostTensor<float> x = rounded_to(io, values);
    EXPECT_EQ(quantized(gpu(), io, x, c), quantized(cpu(), DType::kF32, x, c))
        << name(io) << " to " << name(c.format) << ", " << c.rows << " x " << c.columns;
  }
}

using CudaQuantize = NeedsSm90a;

TEST_F(CudaQuantize, EveryBitIsTheReferences) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const int64_t rows : {0, 16, 112, 128, 144, 528}) {
      for (const int64_t columns : {16, 128, 240, 1024}) {
        const HostTensor<float> x = fp8_values(rows, columns, 11);
        expect_the_same(x, {.rows = rows, .columns = columns, .live_rows = rows, .format = format});
        expect_the_same(x, {.rows = rows,
                            .columns = columns,
                            .live_rows = rows / 3,
                            .format = format,
                            .scale = 0.25f});
      }
    }
  }
}

TEST_F(CudaQuantize, WeightsTogetherGiveTheBytesOfEachAlone) {
  constexpr Case kCases[] = {{.rows = 384, .columns = 128, .live_rows = 384, .scale = 4.0f},
                             {.rows = 16, .columns = 240, .live_rows = 16, .scale = 512.0f},
                             {.rows = 0, .columns = 32, .live_rows = 0},
                             {.rows = 144, .columns = 528, .live_rows = 100}};
  for (const DType io : kIoTypes) {
    for (const size_t count : {1u, 4u, 38u}) {  // 38 are more than a launch has
      std::vector<HostTensor<float>> x;
      std::vector<OnDevice> matrices;
      matrices.reserve(count);
      std::vector<Quantize> all;
      for (size_t i = 0; i < count; ++i) {
        const Case& c = kCases[i % 4];
        x.push_back(rounded_to(io, fp8_values(c.rows, c.columns, 20 + static_cast<int>(i))));
        all.push_back(matrices.emplace_back(gpu(), io, x.back(), c).args);
      }
      gpu().ops->run(QuantizeWeights{.weights = all});
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(matrices[i].bytes(), quantized(cpu(), DType::kF32, x[i], kCases[i % 4])) << i;
      }
    }
  }
}

TEST_F(CudaQuantize, EveryBFloat16RoundsAsTheReferenceDoes) {
  HostTensor<float> x({256, 256});
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    x[bits] = std::bit_cast<float>(bits << 16);
  }
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const float scale : {1.0f, 0x1p-20f, 0x1p12f}) {
      const Case c{.rows = 256, .columns = 256, .live_rows = 256, .format = format, .scale = scale};
      EXPECT_EQ(quantized(gpu(), DType::kBF16, x, c), quantized(cpu(), DType::kF32, x, c));
    }
  }
}

TEST_F(CudaQuantize, MatrixOfFp8IsTransposed) {
  for (const int64_t rows : {16, 112, 528}) {
    for (const int64_t columns : {16, 240, 1024}) {
      HostTensor<uint8_t> x({rows, columns});
      for (int64_t i = 0; i < x.elements(); ++i) x[i] = static_cast<uint8_t>(i * 7 + i / 256);
      for (const TestBackend* backend : {&cpu(), &gpu()}) {
        const DeviceTensor in(*backend, x);
        const DeviceTensor out(*backend, HostTensor<uint8_t>({columns, rows}));
        Quantize args{.x = in.view(),
                      .scale = View(),
                      .q = View(),
                      .transposed = out.view(),
                      .amax = View(),
                      .saturated = View()};
        args.x.dtype = args.transposed.dtype = DType::kE5M2;
        backend->ops->run(args);
        const HostTensor<uint8_t> got = out.values<uint8_t>();
        int wrong = 0;
        for (int64_t i = 0; i < x.elements(); ++i) {
          wrong += got[i % columns * rows + i / columns] == x[i] ? 0 : 1;
        }
        EXPECT_EQ(wrong, 0) << rows << " x " << columns;
      }
    }
  }
}

TEST_F(CudaQuantize, OneOutputAlone) {
  const HostTensor<float> x = fp8_values(144, 48, 5);
  expect_the_same(x, {.rows = 144, .columns = 48, .live_rows = 144, .wants_transposed = false});
  expect_the_same(x, {.rows = 144, .columns = 48, .live_rows = 144, .wants_q = false});
  expect_the_same(
      x,
      {.rows = 144, .columns = 48, .live_rows = 99, .wants_q = false, .wants_transposed = false});
}

TEST(CudaUpdateScales, EveryBitIsTheReferences) {
  HostTensor<float> amax({2000});
  for (int64_t i = 0; i < 2000; ++i) {
    amax[i] =
        std::ldexp(1.0f + 0.001f * static_cast<float>(i % 1000), static_cast<int>(i % 270) - 149);
  }
  amax[7] = 0.0f;
  for (const float odd : {0.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    amax[1500] = odd;
    for (const DType format : {DType::kE4M3, DType::kE5M2}) {
      const auto updated = [&](const TestBackend& backend) {
        const DeviceTensor most(backend, DType::kF32, amax);
        const DeviceTensor scale(backend, DType::kF32, HostTensor<float>({2000}, 4.0f));
        const DeviceTensor inverse(backend, DType::kF32,
                                   HostTensor<float>({2000, kInverseScaleCopies}, 0.25f));
        const DeviceTensor sum(backend, HostTensor<double>({1}, 5.0));
        backend.ops->run(UpdateScales{.amax = most.view(),
                                      .scale = scale.view(),
                                      .inverse_scale = inverse.view(),
                                      .sum_of_squares = sum.view(),
                                      .format = format});
        std::vector<float> all = most.floats().values;
        for (const DeviceTensor* tensor : {&scale, &inverse}) {
          const std::vector<float> values = tensor->floats().values;
          all.insert(all.end(), values.begin(), values.end());
        }
        all.push_back(std::isnan(sum.values<double>()[0]) ? 1.0f : 0.0f);
        return all;
      };
      EXPECT_EQ(updated(gpu()), updated(cpu()));
    }
  }
}

}  // namespace
}  // namespace bertha::testing
