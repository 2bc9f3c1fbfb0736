#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/host_facts.h"

namespace bertha {

/// What a run ran on, as system.json in its folder keeps it.
struct SystemFacts {
  HostFacts host;  // of rank 0
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::string accelerator = {};  // "NVIDIA H200"; "" = the ranks ran on processors
  int64_t accelerator_memory_bytes = 0;
  std::string driver = {};                                         // of the accelerator
  std::vector<std::pair<std::string, std::string>> versions = {};  // {"bertha", "1.0.0"}, ...
  std::string git_hash = {};                                       // of the sources of the program
};

/// The version of NVIDIA's driver that is loaded here; "" = none.
std::string driver_version();

/// Errors    Error(kData) with the path: cannot be written; missing, no JSON or lacking a field.
void write_system_facts(const std::string& path, const SystemFacts& facts);
SystemFacts read_system_facts(const std::string& path);

}  // namespace bertha
