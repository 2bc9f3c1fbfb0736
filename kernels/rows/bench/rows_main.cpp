#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/bench/bench_report.h"
#include "kernels/base/cpu/cpu_devices.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"
#include "kernels/base/parse_number.h"
#include "kernels/base/shortened.h"
#include "kernels/rows/bench/row_cases.h"
#include "kernels/rows/cpu/cpu_row_ops.h"
#ifdef BERTHA_ROWS_CUDA
#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/rows/cuda/cuda_row_ops.h"
#endif

namespace bertha {
namespace {

constexpr char kDescription[] =
    "Checks and times softmax and LayerNorm over many widths, PReLU at the shapes of an\n"
    "InsightFace network and BatchNorm + (Add +) ReLU at those of ResNet-50, next to a plain copy\n"
    "of as many bytes. Exit code 7 if a result is wrong.\n";

struct Options {
  std::vector<std::string> operations;
  std::string device = "auto";
  std::string dtype = "fp16";
  std::string json;
  std::vector<int64_t> widths = default_widths();
  int64_t rows = 49152;
  int64_t images = 128;
  int64_t launches = 50;
  int64_t threads = std::max(1U, std::thread::hardware_concurrency());
};

/// `--name value` or `--name=value`.
struct Option {
  std::string name;
  std::string help;
  std::string wanted;                                 // which values
  std::function<bool(const std::string& value)> set;  // false: not a wanted value
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream text(list + ",");
  for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
  return parts;
}

bool set_count(int64_t& target, int64_t most, const std::string& value) {
  target = parse_number<int64_t>(value).value_or(0);
  return target >= 1 && target <= most;
}

std::vector<Option> options_of(Options& options) {
  constexpr int64_t kMost = 1 << 24;
  const auto count = [](const char* name, int64_t& target, int64_t most, const char* help) {
    return Option{name, concat(help, ", default ", target), concat("a number from 1 to ", most),
                  [=, &target](const auto& value) { return set_count(target, most, value); }};
  };
  const auto word = [](const char* name, std::string& target, const char* help,
                       const std::vector<std::string>& words) {
    return Option{name, concat(help, ", default ", target), "one of " + joined(words, ", "),
                  [=, &target](const auto& value) {
                    return std::ranges::find(words, target = value) != words.end();
                  }};
  };
  return {{"--op", "the operations to run; softmax is softmax_fwd and softmax_bwd",
           "names separated by commas",
           [&](const auto& value) { return !(options.operations = split(value)).empty(); }},
          word("--device", options.device, "auto selects a GPU if this machine has one",
               {"auto", "cpu", "cuda"}),
          word("--dtype", options.dtype,
               "element type; fp64 for softmax and LayerNorm only, 16 bits for PReLU and BatchNorm "
               "on a GPU only",
               {"fp16", "bf16", "fp32", "fp64"}),
          {"--widths", "columns of a row", concat("numbers from 1 to ", kMost, " and commas"),
           [&](const auto& value) {
             options.widths.clear();
             return std::ranges::all_of(split(value), [&](const auto& width) {
               return set_count(options.widths.emplace_back(), kMost, width);
             });
           }},
          count("--rows", options.rows, kMost, "rows; fewer if the device's memory is small"),
          count("--images", options.images, kMost, "images of a batch, for PReLU and BatchNorm"),
          count("--repeats", options.launches, kMost, "launches to time"),
          count("--threads", options.threads, 1024, "threads of the CPU backend"),
          {"--json", "file for the same figures as JSON", "a file name",
           [&](const auto& value) { return !(options.json = value).empty(); }}};
}

/// False after --help, whose text it prints.
bool parse(const std::vector<std::string>& words, const std::vector<Option>& table) {
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      std::cout << kDescription << joined(table, "", [](const Option& option) {
        return concat("\n", option.name, ": ", option.help, " (", option.wanted, ")");
      }) << "\n";
      return false;
    }
    const auto option = std::ranges::find(table, name, &Option::name);
    if (option == table.end()) {
      fail(ExitCode::kUsage, shortened(name), " is not an option; choose from ",
           joined(table, ", ", &Option::name), ", --help.");
    }
    const std::string value = equals != std::string::npos ? words[i].substr(equals + 1)
                              : ++i < words.size()        ? words[i]
                                                          : "";
    if (!option->set(value)) {
      fail(ExitCode::kUsage, name, " is \"", shortened(value), "\"; want ", option->wanted, ".");
    }
  }
  return true;
}

struct RowBackend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<RowOps> ops;
};

RowBackend make_backend(const Options& options) {
  RowBackend made;
  auto* make_ops = make_cpu_row_ops;
#ifdef BERTHA_ROWS_CUDA
  if (options.device == "cuda" || (options.device == "auto" && count_cuda_devices() > 0)) {
    made.device = make_cuda_device(0);
    make_ops = make_cuda_row_ops;
  }
#endif
  if (made.device == nullptr) {
    if (options.device == "cuda") {
      fail(ExitCode::kEnvironment, "--device cuda: this program has no CUDA backend.");
    }
    made.device = make_cpu_device(static_cast<int>(options.threads));
  }
  made.stream = made.device->make_stream();
  made.ops = make_ops(*made.device, *made.stream);
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
  std::vector<RowCase> cases =
      make_row_cases({.widths = options.widths,
                      .rows = options.rows,
                      .most_bytes = backend.device->total_memory_bytes() / 2,
                      .io = io});
  // PReLU and BatchNorm have no double, and the CPU backend has them in f32 only.
  const bool has_channels = io != DType::kF64 && backend.device->has_io(io);
  for (RowCase& op : make_channel_cases(options.images)) {
    if (has_channels) {
      cases.push_back(std::move(op));
    } else if (is_chosen(op.operation, options.operations)) {
      fail(ExitCode::kUsage, "--op ", op.operation, " runs in fp32",
           backend.device->has_io(DType::kF16) ? " and 16 bits" : "", " here; give --dtype fp32.");
    }
  }
  OpBench<RowOps> bench({.device = backend.device.get(),
                         .stream = backend.stream.get(),
                         .ops = backend.ops.get(),
                         .make_reference = make_cpu_row_ops,
                         .io = io,
                         .reference_threads = static_cast<int>(options.threads)});
  BenchReport report{
      .device = backend.device->description(), .precision = name(io), .date = utc_date()};
  for (const RowCase& op : chosen_cases(std::move(cases), options.operations)) {
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
  try {
    bertha::Options options;
    return bertha::parse({argv + 1, argv + argc}, bertha::options_of(options))
               ? bertha::run(options)
               : 0;
  } catch (const bertha::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(error.code);
  }
}
