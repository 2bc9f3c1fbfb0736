#include "harness/comm/numa_node.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace bertha {
namespace {

namespace fs = std::filesystem;

TEST(NumaNode, IsWhatTheSystemSaysOfTheDevice) {
  std::string root = (fs::temp_directory_path() / "numa_node_XXXXXX").string();
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  const auto write = [&](const char* bus_id, const char* text) {
    const fs::path folder = fs::path(root) / "sys/bus/pci/devices" / bus_id;
    fs::create_directories(folder);
    std::ofstream(folder / "numa_node") << text;
  };
  write("0000:1b:00.0", "1\n");
  write("0000:3d:00.0", "-1\n");
  write("0000:9a:00.0", "");
  EXPECT_EQ(numa_node_of(root, "0000:1b:00.0"), 1);
  EXPECT_EQ(numa_node_of(root, "0000:3d:00.0"), -1);
  EXPECT_EQ(numa_node_of(root, "0000:9a:00.0"), -1);
  EXPECT_EQ(numa_node_of(root, "0000:ff:00.0"), -1);
  EXPECT_EQ(numa_node_of(root, ""), -1);
  fs::remove_all(root);
}

}  // namespace
}  // namespace bertha
