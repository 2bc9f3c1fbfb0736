#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/bench/bench_report.h"
#include "kernels/bench/row_cases.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_row_ops.h"
#ifdef BERTHA_ROWS_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_row_ops.h"
#endif

namespace bertha {
namespace {

constexpr char kDescription[] =
    "Checks and times softmax and LayerNorm over many widths, PReLU at the shapes of an\n"
    "InsightFace network and BatchNorm + (Add +) ReLU at those of ResNet-50, beside a plain copy "
    "of\n"
    "as many bytes. Exit code 7 when a result is wrong.";

struct Options {
  std::vector<std::string> operations;
  std::string device = "auto";
  std::string dtype = "fp16";
  std::string json;
  std::vector<int64_t> widths = default_widths();
  int64_t rows = 49152;
  int64_t images = 128;
  int64_t launches = 50;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

struct RowBackend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<RowOps> row_ops;
};

RowBackend make_backend(const Options& options) {
  RowBackend made;
#ifdef BERTHA_ROWS_CUDA
  if (options.device == "cuda" || (options.device == "auto" && count_cuda_devices() > 0)) {
    made.device = make_cuda_device(0);
    made.stream = made.device->make_stream();
    made.ops = make_cuda_ops(*made.device, *made.stream, {});
    made.row_ops = make_cuda_row_ops(*made.device, *made.stream);
    return made;
  }
#endif
  if (options.device == "cuda") {
    fail(ExitCode::kEnvironment, "--device cuda: this program has no CUDA backend.");
  }
  made.device = make_cpu_device(options.threads);
  made.stream = made.device->make_stream();
  made.ops = make_cpu_ops(*made.device, *made.stream);
  made.row_ops = make_cpu_row_ops(*made.device, *made.stream);
  return made;
}

DType dtype_of(const std::string& word) {
  if (word == "fp64") return DType::kF64;
  if (word == "fp32") return DType::kF32;
  return word == "bf16" ? DType::kBF16 : DType::kF16;
}

int run(const Options& options) {
  const RowBackend backend = make_backend(options);
  const DType io = dtype_of(options.dtype);
  std::vector<OpCase> cases =
      make_row_cases({.widths = options.widths,
                      .rows = options.rows,
                      .most_bytes = backend.device->total_memory_bytes() / 2,
                      .io = io});
  // PReLU and BatchNorm have no double, and the CPU backend has them in f32 only.
  if (io != DType::kF64 && backend.device->has_io(io)) {
    for (OpCase& op : make_channel_cases(options.images)) cases.push_back(std::move(op));
  } else {
    refuse_cases(make_channel_cases(1), options.operations,
                 concat("runs in fp32", backend.device->has_io(DType::kF16) ? " and 16 bits" : "",
                        " here; give --dtype fp32"));
  }
  OpBench bench({.device = backend.device.get(),
                 .stream = backend.stream.get(),
                 .ops = backend.ops.get(),
                 .row_ops = backend.row_ops.get(),
                 .make_reference_row_ops = make_cpu_row_ops,
                 .io = io,
                 .reference_threads = options.threads});
  BenchReport report{.model = {},
                     .device = backend.device->description(),
                     .precision = name(io),
                     .date = utc_date(),
                     .rows = {}};
  for (const OpCase& op : chosen_cases(std::move(cases), options.operations)) {
    report.rows.push_back(bench.run(op, options.launches));
  }
  std::cout << bench_text(report);
  if (!options.json.empty() && !(std::ofstream(options.json) << bench_json(report)).flush()) {
    fail(ExitCode::kData, options.json, " cannot be written.");
  }
  return static_cast<int>(all_verified(report) ? ExitCode::kSuccess : ExitCode::kNumeric);
}

}  // namespace
}  // namespace bertha

int main(int argc, char** argv) {
  bertha::Options options;
  CLI::App program(bertha::kDescription);
  const CLI::Range count(1, 1 << 24);
  program.add_option("--op", options.operations, "Only these operations, separated by commas")
      ->delimiter(',');
  program.add_option("--device", options.device, "auto takes a GPU where there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  program
      .add_option("--dtype", options.dtype,
                  "Element type; fp64 for softmax and LayerNorm only, 16 bits for PReLU and "
                  "BatchNorm on a GPU only")
      ->check(CLI::IsMember({"fp16", "bf16", "fp32", "fp64"}))
      ->capture_default_str();
  program.add_option("--widths", options.widths, "Columns of a row")->delimiter(',')->check(count);
  program.add_option("--rows", options.rows, "Rows; fewer where the device's memory is small")
      ->check(count)
      ->capture_default_str();
  program.add_option("--images", options.images, "Images of a batch, for PReLU and BatchNorm")
      ->check(count)
      ->capture_default_str();
  program.add_option("--repeats", options.launches, "Launches to time")
      ->check(count)
      ->capture_default_str();
  program.add_option("--threads", options.threads, "Threads of the CPU backend")
      ->check(CLI::Range(1, 1024));
  program.add_option("--json", options.json, "File for the same figures as JSON");
  try {
    program.parse(argc, argv);
    return bertha::run(options);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : static_cast<int>(bertha::ExitCode::kUsage);
  } catch (const bertha::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(error.code);
  }
}
