#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace bertha {

/// This machine. A fact that the system does not state is "unknown", "" if it is optional, or 0.
struct HostFacts {
  std::string name;
  std::string operating_system;  // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;
  std::string cpu_model;
  int64_t sockets = 0;
  int64_t cores = 0;  // all sockets together
  int64_t logical_cpus = 0;
  double max_mhz = 0;
  std::string caches = {};  // "L1d 48K, L1i 32K, L2 2048K, L3 107520K", of the first processor
  int64_t memory_bytes = 0;
  std::string network = {};  // "8x InfiniBand 400 Gb/sec (4X NDR), 2x Ethernet 100000 Mb/s"
};

/// Reads files below `root`: "/" except in tests.
HostFacts read_host_facts(const std::string& root = "");
std::string host_name();
/// Every fact with its name.
nlohmann::json host_json(const HostFacts& facts);

/// The system of a run, as in system.json in its folder.
struct SystemFacts {
  HostFacts host;  // rank 0's machine
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::string accelerator = {};  // "NVIDIA H200"; "" = the ranks ran on CPUs
  int64_t accelerator_memory_bytes = 0;
  std::string driver = {};                                         // of the accelerator
  std::vector<std::pair<std::string, std::string>> versions = {};  // {"bertha", "1.0.0"}, ...
  std::string git_hash = {};                                       // of the sources of the program
};

/// The version of the NVIDIA driver that is loaded here; "" = none.
std::string driver_version();

/// Errors    Error(kData) with the path: cannot be written.
void write_system_facts(const std::string& path, const SystemFacts& facts);

}  // namespace bertha
