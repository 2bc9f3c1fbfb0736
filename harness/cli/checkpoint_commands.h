#pragma once

#include <filesystem>
#include <string>

#include "harness/cli/command.h"
#include "kernels/base/error.h"

namespace bertha {

/// Accepts a checkpoint, a folder of checkpoints or a run folder; folders give their newest one.
std::string checkpoint_at(const std::string& path);
/// The same, but a damaged checkpoint is not skipped in favor of an older one.
std::string checkpoint_to_check(const std::string& path);

/// The newest checkpoint of a run folder; any other path unchanged.
std::string weights_at(const std::string& path);

/// Returns use(find(path)). If a live run removes the checkpoint meanwhile, it has saved a newer
/// one, and the call is repeated with that.
template <class Find, class Use>
auto with_checkpoint(const std::string& path, const Find& find, const Use& use) {
  for (int tries_left = 20;; --tries_left) {
    const std::string found = find(path);
    try {
      return use(found);
    } catch (const Error&) {
      if (found == path || tries_left == 0 || std::filesystem::exists(found)) throw;
    }
  }
}

// Sub-commands of `bertha checkpoint`.
void add_checkpoint_verify(CLI::App& checkpoint, Chosen& chosen);
void add_checkpoint_convert(CLI::App& checkpoint, Chosen& chosen);
void add_checkpoint_export(CLI::App& checkpoint, Chosen& chosen);
void add_checkpoint_average(CLI::App& checkpoint, Chosen& chosen);

}  // namespace bertha
