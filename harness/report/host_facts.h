#pragma once

#include <cstdint>
#include <string>

namespace bertha {

/// This machine. A fact that the system does not give is "unknown", "" where there may be none, or
/// 0.
struct HostFacts {
  std::string host;
  std::string operating_system;  // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;
  std::string cpu_model;
  int64_t sockets = 0;
  int64_t cores = 0;  // of all sockets
  int64_t logical_cpus = 0;
  double max_mhz = 0;
  std::string caches = {};  // "L1d 48K, L1i 32K, L2 2048K, L3 107520K", of the first processor
  int64_t memory_bytes = 0;
  std::string network = {};  // "8x InfiniBand 400 Gb/sec (4X NDR), 2x Ethernet 100000 Mb/s"
};

/// Read below `root`, which tests point elsewhere.
HostFacts read_host_facts(const std::string& root = "");
std::string host_name();

}  // namespace bertha
