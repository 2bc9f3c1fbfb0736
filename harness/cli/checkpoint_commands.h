#pragma once

#include <filesystem>
#include <string>

#include "harness/cli/command.h"
#include "kernels/base/error.h"

namespace bertha {

/// A checkpoint itself, the newest one of a folder of them, or the one of a run folder.
std::string checkpoint_at(const std::string& path);
/// The same, but a checkpoint that is damaged is not passed over for an older one.
std::string checkpoint_to_check(const std::string& path);

/// A run folder stands for its newest checkpoint; other paths for themselves.
std::string weights_at(const std::string& path);

/// use(find(path)), and again when a run that goes on has removed the checkpoint that was found; it
/// has saved a newer one before.
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
