#include "harness/comm/numa_node.h"

#include <filesystem>
#include <fstream>

namespace bertha {

int numa_node_of(const std::string& root, const std::string& bus_id) {
  if (bus_id.empty()) return -1;
  int node = -1;
  std::ifstream file(std::filesystem::path(root) / "sys/bus/pci/devices" / bus_id / "numa_node");
  return file >> node ? node : -1;
}

}  // namespace bertha
