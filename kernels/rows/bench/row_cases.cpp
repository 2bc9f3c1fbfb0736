#include "kernels/rows/bench/row_cases.h"

#include <algorithm>
#include <utility>

#include "kernels/base/bench/case_parts.h"
#include "kernels/base/philox.h"
#include "kernels/rows/bench/layer_norm_cases.h"
#include "kernels/rows/ops/batch_norm_relu.h"
#include "kernels/rows/ops/check_channels.h"
#include "kernels/rows/ops/prelu.h"
#include "kernels/rows/ops/softmax.h"

namespace bertha {
namespace {

constexpr int64_t kCheckedElements = int64_t{1} << 20;  // per tensor, approximately

enum class Layout : uint8_t { kChannelsFirst, kChannelsLast };

/// Images of one layer.
struct Images {
  int64_t images;
  int64_t channels;
  int64_t side;  // pixels
  Layout layout;

  int64_t pixels() const { return side * side; }
  int64_t of_channel() const { return images * pixels(); }
  /// Images that the reference computes: a divisor of all.
  int64_t checked_images() const {
    int64_t checked = std::clamp<int64_t>(kCheckedElements / (channels * pixels()), 1, images);
    while (images % checked != 0) --checked;
    return checked;
  }
  std::vector<int64_t> extents(int64_t count) const {
    if (layout == Layout::kChannelsFirst) return {count, channels, pixels()};
    return {count * pixels(), channels, 1};
  }
  std::string text() const {
    return concat(images, "x", channels, "x", side, "x", side,
                  layout == Layout::kChannelsFirst ? " NCHW" : " NHWC");
  }

  BenchTensor input(const char* name, double passes) const {
    BenchTensor made = result(name, passes);
    made.is_result = false;
    made.repeats = true;
    made.scale = 1;
    return made;
  }
  BenchTensor result(const char* name, double passes) const {
    return {.name = name,
            .extents = extents(images),
            .checked = extents(checked_images()),
            .passes = passes,
            .is_result = true};
  }
  /// f32 [C]; `scale` as BenchTensor has it.
  BenchTensor statistic(const char* name, double scale) const {
    return {.name = name, .extents = {channels}, .io = false, .scale = scale};
  }
  /// A sum over all elements of a channel, in the benchmarked dtype or in f32.
  BenchTensor channel_sum(const char* name, bool io) const {
    BenchTensor made = as_result({.name = name, .extents = {channels}, .io = io}, of_channel());
    made.repeated = static_cast<double>(images) / static_cast<double>(checked_images());
    return made;
  }
  /// A bit per element.
  BenchTensor mask(double passes) const {
    return {.name = "mask",
            .extents = {bit_bytes(images * channels * pixels())},
            .checked = {bit_bytes(checked_images() * channels * pixels())},
            .io = false,
            .dtype = DType::kU8,
            .passes = passes};
  }
  /// Random bits. Given, not taken from a forward pass: where y is a rounding away from zero, two
  /// backends may save different ones.
  BenchTensor bits() const {
    BenchTensor made = mask(2);
    made.repeats = true;
    for (int64_t i = 0; i < made.checked[0]; ++i) {
      made.bytes.push_back(static_cast<char>(random_block(20, 1, 0, i).elem[0]));
    }
    return made;
  }
};

void add_prelu(const Images& images, std::vector<RowCase>& cases) {
  const BenchTensor slope{.name = "slope", .extents = {images.channels}, .scale = 1};
  cases.push_back({.operation = "prelu_fwd",
                   .shape = images.text(),
                   .tensors = {images.input("x", 1), slope, images.result("y", 1)},
                   .call = [](const RowCall& c) {
                     c.ops.run(PreluFwd{.x = c["x"], .slope = c["slope"], .y = c["y"]});
                   }});
  cases.push_back({.operation = "prelu_bwd",
                   .shape = images.text(),
                   .tensors = {images.input("dy", 1), images.input("x", 1), slope,
                               images.result("dx", 1), images.channel_sum("dslope", true)},
                   .call = [](const RowCall& c) {
                     c.ops.run(PreluBwd{.dy = c["dy"],
                                        .x = c["x"],
                                        .slope = c["slope"],
                                        .dx = c["dx"],
                                        .dslope = c["dslope"]});
                   }});
}

void add_batch_norm_relu(const Images& images, bool add, std::vector<RowCase>& cases) {
  const std::string shape = concat(images.text(), add ? ", add" : "");
  std::vector<BenchTensor> tensors{images.input("x", 2),
                                   images.statistic("gamma", 1),
                                   images.statistic("beta", 1),
                                   images.result("y", 1),
                                   images.mask(1),  // not compared, see Images::bits
                                   as_result(images.statistic("mean", 0), images.of_channel()),
                                   as_result(images.statistic("rstd", 0), images.of_channel()),
                                   images.statistic("running_mean", 1),
                                   images.statistic("running_var", 1)};
  if (add) tensors.push_back(images.input("addend", 1));
  cases.push_back({.operation = "batch_norm_relu_fwd",
                   .shape = shape,
                   .tensors = std::move(tensors),
                   .call = [add](const RowCall& c) {
                     c.ops.run(BatchNormReluFwd{.x = c["x"],
                                                .addend = add ? c["addend"] : View(),
                                                .gamma = c["gamma"],
                                                .beta = c["beta"],
                                                .running_mean = c["running_mean"],
                                                .running_var = c["running_var"],
                                                .y = c["y"],
                                                .mask = c["mask"],
                                                .mean = c["mean"],
                                                .rstd = c["rstd"]});
                   }});

  // A mean and a deviation near the real ones of x will do; they are the same on both sides.
  tensors = {images.input("dy", 2),
             images.input("x", 2),
             images.bits(),
             images.statistic("mean", 0x1p-4),
             images.statistic("rstd", 1),
             images.statistic("gamma", 1),
             images.result("dx", 1),
             images.channel_sum("dgamma", false),
             images.channel_sum("dbeta", false)};
  if (add) tensors.push_back(images.result("daddend", 1));
  cases.push_back({.operation = "batch_norm_relu_bwd",
                   .shape = shape,
                   .tensors = std::move(tensors),
                   .call = [add](const RowCall& c) {
                     c.ops.run(BatchNormReluBwd{.dy = c["dy"],
                                                .x = c["x"],
                                                .mask = c["mask"],
                                                .mean = c["mean"],
                                                .rstd = c["rstd"],
                                                .gamma = c["gamma"],
                                                .dx = c["dx"],
                                                .daddend = add ? c["daddend"] : View(),
                                                .dgamma = c["dgamma"],
                                                .dbeta = c["dbeta"]});
                   }});
}

void add_softmax(const Rows& r, SoftmaxKind kind, std::vector<RowCase>& cases) {
  const auto forward = [=](const RowCall& c) {
    c.ops.run(SoftmaxFwd{.x = c["x"],
                         .bias = View(),
                         .mask = View(),
                         .y = c["y"],
                         .dropped = View(),
                         .kept_mask = View(),
                         .kind = kind});
  };
  cases.push_back({.operation = "softmax_fwd",
                   .shape = concat(r.text(), kind == SoftmaxKind::kLogSoftmax ? ", log" : ""),
                   .tensors = {r.matrix("x", 2, 1), r.result("y", 1)},
                   .call = forward});
  const auto backward = [=](const RowCall& c) {
    c.ops.run(
        SoftmaxBwd{.dy = c["dy"], .y = c["y"], .kept_mask = View(), .dx = c["dx"], .kind = kind});
  };
  RowCase op =
      backward_case(cases.back(), "softmax_bwd", {r.gradient(), r.result("dx", 1)}, backward);
  op["x"].passes = 0;
  cases.push_back(std::move(op));
}

}  // namespace

std::vector<int64_t> default_widths() {
  return {32,   33,   64,   100,  128,  256,   512,   513,  1000,
          1024, 2048, 4096, 5000, 8192, 16384, 30522, 32768};
}

std::vector<RowCase> make_row_cases(const RowSweep& sweep) {
  constexpr int64_t kMostMatrices = 4;  // per case: x, dy, dx and y
  constexpr int64_t kSets = 2;
  std::vector<RowCase> cases;
  for (const int64_t width : sweep.widths) {
    const int64_t row_bytes = kSets * kMostMatrices * width * size_bytes(sweep.io);
    const int64_t rows = std::clamp<int64_t>(sweep.most_bytes / row_bytes, 1, sweep.rows);
    const Rows r{.rows = rows,
                 .checked = std::clamp<int64_t>(kCheckedElements / width, 1, rows),
                 .columns = width,
                 .statistics = sweep.io == DType::kF64 ? DType::kF64 : DType::kF32};
    add_softmax(r, SoftmaxKind::kSoftmax, cases);
    add_softmax(r, SoftmaxKind::kLogSoftmax, cases);
    add_layer_norm(r, cases);
  }
  return cases;
}

std::vector<RowCase> make_channel_cases(int64_t images) {
  using Layer = std::pair<int64_t, int64_t>;  // channels and side
  // The layers of an InsightFace network, and of ResNet-50.
  constexpr Layer kLayers[] = {{64, 112}, {64, 56}, {128, 28}, {256, 14}, {512, 7}};
  constexpr Layer kResNetSums[] = {{256, 56}, {512, 28}, {1024, 14}, {2048, 7}};
  std::vector<RowCase> cases;
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    const auto of = [&](const Layer& layer) -> Images {
      return {images, layer.first, layer.second, layout};
    };
    for (const Layer& layer : kLayers) add_prelu(of(layer), cases);
    for (const Layer& layer : kLayers) add_batch_norm_relu(of(layer), false, cases);
    for (const Layer& layer : kResNetSums) add_batch_norm_relu(of(layer), true, cases);
  }
  return cases;
}

}  // namespace bertha
