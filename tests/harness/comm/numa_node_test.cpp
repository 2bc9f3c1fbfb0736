#include "harness/comm/binding.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

TEST(NumaNode, IsWhatTheSystemSaysOfTheDevice) {
  const TempFolder root;
  const auto write = [&](const std::string& bus_id, const char* text) {
    root.write("sys/bus/pci/devices/" + bus_id + "/numa_node", text);
  };
  write("0000:1b:00.0", "1\n");
  write("0000:3d:00.0", "-1\n");
  write("0000:9a:00.0", "");
  EXPECT_EQ(numa_node_of(root.path(), "0000:1b:00.0"), 1);
  EXPECT_EQ(numa_node_of(root.path(), "0000:3d:00.0"), -1);
  EXPECT_EQ(numa_node_of(root.path(), "0000:9a:00.0"), -1);
  EXPECT_EQ(numa_node_of(root.path(), "0000:ff:00.0"), -1);
  EXPECT_EQ(numa_node_of(root.path(), ""), -1);
}

}  // namespace
}  // namespace bertha
