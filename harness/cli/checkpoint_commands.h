#pragma once

#include <string>

#include "harness/cli/command.h"

namespace bertha {

/// A checkpoint itself, the newest one of a folder of them, or the one of a run folder.
std::string checkpoint_at(const std::string& path);
/// The same, but a checkpoint that is damaged is not passed over for an older one.
std::string checkpoint_to_check(const std::string& path);

/// A run folder stands for its newest checkpoint; other paths for themselves.
std::string weights_at(const std::string& path);

// Sub-commands of `bertha checkpoint`.
void add_checkpoint_verify(CLI::App& checkpoint, Chosen& chosen);
void add_checkpoint_convert(CLI::App& checkpoint, Chosen& chosen);
void add_checkpoint_export(CLI::App& checkpoint, Chosen& chosen);

}  // namespace bertha
