#pragma once

#include <string>

namespace bertha {

/// NUMA node of the PCI device "0000:1b:00.0"; -1 where the system does not say. `root` is where
/// /sys is: "/" in the program.
int numa_node_of(const std::string& root, const std::string& bus_id);

}  // namespace bertha
