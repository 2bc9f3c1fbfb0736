#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/files.h"

namespace bertha::fuzz {

/// A parser of bytes that strangers may have written.
struct FuzzTarget {
  const char* name;  // also of its folder in corpus/
  /// Reads the bytes as the program does, and uses what it got so far that a wrong size shows.
  void (*read)(const std::string& bytes);
  /// Sound inputs: golden files, and what this program writes.
  std::vector<std::string> (*seeds)();
  /// Makes the checksums inside agree, so that mutations get past them. Null: there are none.
  std::string (*repair)(const std::string& bytes) = nullptr;
  /// How the reader refuses, naming the file.
  ExitCode refusal = ExitCode::kData;
};

std::span<const FuzzTarget> shard_targets();       // HDF5, global heap, packed rows, LZF
std::span<const FuzzTarget> data_targets();        // TFRecord, manifest, .chk, texts, histograms
std::span<const FuzzTarget> checkpoint_targets();  // safetensors, TensorFlow, state, optimizer
std::span<const FuzzTarget> text_targets();        // YAML, logs, reports, post-mortems, GEMM plans

std::vector<FuzzTarget> all_targets();
/// Null when there is none.
const FuzzTarget* find_target(std::string_view name);

/// Reads the bytes. Ends the process with SIGABRT, and says why, where the reader throws anything
/// but its refusal, or refuses without a name of a file.
void execute(const FuzzTarget& target, const std::string& bytes);

// For the targets.

/// A path in this process's folder in memory, which ends with the process or before.
std::string scratch_path(const std::string& name);
/// The path of a file there that holds the bytes.
std::string scratch_file(const std::string& name, std::string_view bytes);
/// The files in a folder of tests/golden/ whose names end so, up to most_bytes each.
std::vector<std::string> golden_files(const std::string& folder, const std::string& ending,
                                      int64_t most_bytes);

/// Keeps the compiler from leaving out what made the value.
void use(int64_t value);

}  // namespace bertha::fuzz
