#include "data/files/new_file.h"
#include "harness/report/system_facts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "data/files/text_file.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

void put(const TempFolder& root, const std::string& path, const std::string& text) {
  const std::filesystem::path file = root.path(path);
  std::filesystem::create_directories(file.parent_path());
  write_new_file(file.string(), text + "\n");
}

TEST(HostFacts, AMachineOfTwoSocketsAndTwoThreadsPerCore) {
  const TempFolder root;
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string topology = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    put(root, topology + "physical_package_id", std::to_string(cpu / 2 % 2));
    put(root, topology + "core_id", std::to_string(cpu % 2));
  }
  put(root, "sys/devices/system/cpu/cpufreq/policy0/unrelated", "1");
  put(root, "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3800000");
  for (const auto& [index, type, level, size] :
       {std::tuple{"0", "Data", "1", "48K"}, std::tuple{"1", "Instruction", "1", "32K"},
        std::tuple{"2", "Unified", "2", "2048K"}}) {
    const std::string cache = std::string("sys/devices/system/cpu/cpu0/cache/index") + index + "/";
    put(root, cache + "type", type);
    put(root, cache + "level", level);
    put(root, cache + "size", size);
  }
  put(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2.1\ncpu MHz\t\t: 2100.5");
  put(root, "etc/os-release", "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"");

  const HostFacts facts = read_host_facts(root.path());
  EXPECT_EQ(facts.sockets, 2);
  EXPECT_EQ(facts.cores, 4);
  EXPECT_EQ(facts.max_mhz, 3800);
  EXPECT_EQ(facts.caches, "L1d 48K, L1i 32K, L2 2048K");
  EXPECT_EQ(facts.cpu_model, "Some CPU @ 2.1");
  EXPECT_EQ(facts.operating_system, "Debian GNU/Linux 12");
  EXPECT_GT(facts.logical_cpus, 0);
  EXPECT_GT(facts.memory_bytes, 0);
}

TEST(HostFacts, AnAarch64ProcessorHasNumbersInsteadOfAName) {
  const TempFolder root;  // as Linux shows a Neoverse V2, the processor of the GB200
  put(root, "proc/cpuinfo",
      "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd sve2\nCPU implementer\t: 0x41\n"
      "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0");
  EXPECT_EQ(read_host_facts(root.path()).cpu_model, "CPU implementer 0x41, part 0xd4f");
}

TEST(HostFacts, PortsThatAreUpAreCountedBySpeed) {
  const TempFolder root;
  const auto adapter = [&](const std::string& name, const std::string& state) {
    const std::string port = "sys/class/infiniband/" + name + "/ports/1/";
    put(root, port + "state", state);
    put(root, port + "rate", "400 Gb/sec (4X NDR)");
    put(root, port + "link_layer", "InfiniBand");
  };
  adapter("mlx5_0", "4: ACTIVE");
  adapter("mlx5_1", "4: ACTIVE");
  adapter("mlx5_2", "1: DOWN");
  put(root, "sys/class/net/eth0/speed", "100000");
  put(root, "sys/class/net/eth0/device/vendor", "0x15b3");
  put(root, "sys/class/net/eth1/speed", "-1");
  put(root, "sys/class/net/eth1/device/vendor", "0x15b3");
  put(root, "sys/class/net/docker0/speed", "10000");
  EXPECT_EQ(read_host_facts(root.path()).network,
            "1x Ethernet 100000 Mb/s, 2x InfiniBand 400 Gb/sec (4X NDR)");
}

TEST(SystemFacts, AreWrittenForReaders) {
  const TempFolder folder;
  const std::string path = folder.path("system.json");
  SystemFacts facts;
  facts.host.cores = 96;
  facts.nodes = 4;
  facts.accelerator = "NVIDIA H200";
  facts.versions = {{"bertha", "1.0.0"}};
  write_system_facts(path, facts);
  const auto json = nlohmann::json::parse(read_text_file(path));
  EXPECT_EQ(json["nodes"], 4);
  EXPECT_EQ(json["host"]["cores"], 96);
  EXPECT_EQ(json["accelerator"]["name"], "NVIDIA H200");
  EXPECT_EQ(json["versions"]["bertha"], "1.0.0");
}

TEST(HostFacts, WhatAMachineDoesNotTellIsLeftOpen) {
  const TempFolder root;
  const HostFacts facts = read_host_facts(root.path());
  EXPECT_EQ(facts.sockets, 0);
  EXPECT_EQ(facts.cores, 0);
  EXPECT_EQ(facts.max_mhz, 0);
  EXPECT_EQ(facts.caches, "");
  EXPECT_EQ(facts.network, "");
  EXPECT_EQ(facts.cpu_model, "unknown");
}

}  // namespace
}  // namespace bertha
