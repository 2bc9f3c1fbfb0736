#include "harness/report/system_facts.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

// NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  ...
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool is_number = word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_number && word.find('.') != std::string::npos) return word;
  }
  return "";
}

void write_system_facts(const std::string& path, const SystemFacts& facts) {
  const HostFacts& host = facts.host;
  Json versions = Json::object();
  for (const auto& [name, version] : facts.versions) versions[name] = version;
  const Json json = {{"nodes", facts.nodes},
                     {"ranks_per_node", facts.ranks_per_node},
                     {"host",
                      {{"name", host.host},
                       {"operating_system", host.operating_system},
                       {"kernel", host.kernel},
                       {"cpu_model", host.cpu_model},
                       {"sockets", host.sockets},
                       {"cores", host.cores},
                       {"logical_cpus", host.logical_cpus},
                       {"max_mhz", host.max_mhz},
                       {"caches", host.caches},
                       {"memory_bytes", host.memory_bytes},
                       {"network", host.network}}},
                     {"accelerator",
                      {{"name", facts.accelerator},
                       {"memory_bytes", facts.accelerator_memory_bytes},
                       {"driver", facts.driver}}},
                     {"versions", versions},
                     {"git_hash", facts.git_hash}};
  write_new_file(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

SystemFacts read_system_facts(const std::string& path) {
  try {
    const nlohmann::json json = parse_json(read_text_file(path));
    const nlohmann::json& host = json.at("host");
    const nlohmann::json& accelerator = json.at("accelerator");
    SystemFacts facts{.host = {.host = host.at("name"),
                               .operating_system = host.at("operating_system"),
                               .kernel = host.at("kernel"),
                               .cpu_model = host.at("cpu_model"),
                               .sockets = host.at("sockets"),
                               .cores = host.at("cores"),
                               .logical_cpus = host.at("logical_cpus"),
                               .max_mhz = host.at("max_mhz"),
                               .caches = host.at("caches"),
                               .memory_bytes = host.at("memory_bytes"),
                               .network = host.at("network")},
                      .nodes = json.at("nodes"),
                      .ranks_per_node = json.at("ranks_per_node"),
                      .accelerator = accelerator.at("name"),
                      .accelerator_memory_bytes = accelerator.at("memory_bytes"),
                      .driver = accelerator.at("driver"),
                      .git_hash = json.at("git_hash")};
    for (const auto& [name, version] : json.at("versions").items()) {
      facts.versions.emplace_back(name, version);
    }
    return facts;
  } catch (const Json::exception& error) {
    fail(ExitCode::kData, path, ": ", error.what(), "; want the system.json of a run folder");
  }
}

}  // namespace bertha
