#include "harness/report/system_facts.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// The text after `key` and its separator on the first line that begins with `key`.
std::string value_of(const std::string& path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t mark = line.find(separator);
    if (mark == std::string::npos) continue;
    const size_t first = line.find_first_not_of(" \t\"", mark + 1);
    const size_t last = line.find_last_not_of(" \t\"");
    if (first != std::string::npos && last >= first) return line.substr(first, last - first + 1);
  }
  return "unknown";
}

/// The first line; "" if there is none.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// On aarch64 /proc/cpuinfo has numbers instead of a name: implementer (0x41 = Arm) and part.
std::string cpu_model(const std::string& cpuinfo) {
  const std::string name = value_of(cpuinfo, "model name", ':');
  const std::string part = value_of(cpuinfo, "CPU part", ':');
  if (name != "unknown" || part == "unknown") return name;
  return fmt::format("CPU implementer {}, part {}", value_of(cpuinfo, "CPU implementer", ':'),
                     part);
}

double number_in(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Folders below `path` whose names begin with `prefix`, in order; empty if `path` does not exist.
std::vector<fs::path> entries(const fs::path& path, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

void read_topology(const fs::path& processors, HostFacts& facts) {
  std::set<std::string> sockets;
  std::set<std::pair<std::string, std::string>> cores;
  for (const fs::path& processor : entries(processors, "cpu")) {
    const std::string socket = line_of(processor / "topology/physical_package_id");
    if (socket.empty()) continue;
    sockets.insert(socket);
    cores.emplace(socket, line_of(processor / "topology/core_id"));
  }
  facts.sockets = std::ssize(sockets);
  facts.cores = std::ssize(cores);
}

std::string caches_of(const fs::path& processor) {
  return joined(entries(processor / "cache", "index"), ", ", [](const fs::path& cache) {
    const std::string type = line_of(cache / "type");
    const std::string letter = type == "Data" ? "d" : type == "Instruction" ? "i" : "";
    return fmt::format("L{}{} {}", line_of(cache / "level"), letter, line_of(cache / "size"));
  });
}

/// The active ports, counted by kind and speed.
std::string network_below(const fs::path& classes) {
  std::map<std::string, int> ports;
  for (const fs::path& adapter : entries(classes / "infiniband", "")) {
    for (const fs::path& port : entries(adapter / "ports", "")) {
      const std::string rate = line_of(port / "rate");
      if (line_of(port / "state").find("ACTIVE") != std::string::npos) {
        ++ports[line_of(port / "link_layer") + " " + rate];
      }
    }
  }
  for (const fs::path& interface : entries(classes / "net", "")) {
    const bool is_hardware = fs::exists(interface / "device");
    const double speed = number_in(line_of(interface / "speed"));  // -1 = unknown
    if (is_hardware && speed > 0) ++ports[fmt::format("Ethernet {:g} Mb/s", speed)];
  }
  return joined(ports, ", ",
                [](const auto& port) { return fmt::format("{}x {}", port.second, port.first); });
}

}  // namespace

std::string host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "unknown";
}

HostFacts read_host_facts(const std::string& root) {
  utsname names{};
  const bool named = ::uname(&names) == 0;
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = ::sysconf(_SC_PAGESIZE);
  const fs::path processors = root + "/sys/devices/system/cpu";
  HostFacts facts{
      .name = host_name(),
      .operating_system = value_of(root + "/etc/os-release", "PRETTY_NAME", '='),
      .kernel = named ? std::string(names.sysname) + " " + names.release : "unknown",
      .cpu_model = cpu_model(root + "/proc/cpuinfo"),
      .logical_cpus = static_cast<int64_t>(std::thread::hardware_concurrency()),
      .caches = caches_of(processors / "cpu0"),
      .memory_bytes = pages > 0 && page_bytes > 0 ? pages * page_bytes : 0,
      .network = network_below(root + "/sys/class"),
  };
  read_topology(processors, facts);
  const std::string max_khz = line_of(processors / "cpu0/cpufreq/cpuinfo_max_freq");
  facts.max_mhz = max_khz.empty() ? number_in(value_of(root + "/proc/cpuinfo", "cpu MHz", ':'))
                                  : number_in(max_khz) / 1000;
  return facts;
}

// NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  ...
std::string driver_version() {
  std::istringstream words(line_of("/proc/driver/nvidia/version"));
  for (std::string word; words >> word;) {
    const bool is_number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_number && word.find('.') != std::string::npos) return word;
  }
  return "";
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostFacts, name, operating_system, kernel, cpu_model, sockets,
                                   cores, logical_cpus, max_mhz, caches, memory_bytes, network)

nlohmann::json host_json(const HostFacts& facts) { return facts; }

void write_system_facts(const std::string& path, const SystemFacts& facts) {
  Json versions = Json::object();
  for (const auto& [name, version] : facts.versions) versions[name] = version;
  const Json json = {{"nodes", facts.nodes},
                     {"ranks_per_node", facts.ranks_per_node},
                     {"host", host_json(facts.host)},
                     {"accelerator",
                      {{"name", facts.accelerator},
                       {"memory_bytes", facts.accelerator_memory_bytes},
                       {"driver", facts.driver}}},
                     {"versions", versions},
                     {"git_hash", facts.git_hash}};
  write_new_file(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace bertha
