#include "harness/mlperf/system_description.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/files/json_file.h"
#include "data/files/text_file.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

using Json = nlohmann::ordered_json;

std::string availability_of(const std::string& status) {
  if (status == "cloud") return "Available cloud";
  if (status == "onprem") return "Available on-premise";
  if (status == "preview") return "Preview";
  return "Research, Development, or Internal (RDI)";
}

std::string count_text(int64_t count) { return count > 0 ? std::to_string(count) : ""; }

std::string per_socket(int64_t count, int64_t sockets) {
  return sockets > 0 ? count_text(count / sockets) : count_text(count);
}

std::string software_of(const SystemFacts& facts) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& version) {
    if (!version.empty()) text += concat(text.empty() ? "" : ", ", name, " ", version);
  };
  add("NVIDIA driver", facts.driver);
  for (const auto& [name, version] : facts.versions) {
    if (name != "bertha") add(name, version);
  }
  return text;
}

std::string framework_of(const SystemFacts& facts) {
  for (const auto& [name, version] : facts.versions) {
    if (name == "bertha") return concat("Bertha ", version, " (", facts.git_hash, ")");
  }
  return concat("Bertha (", facts.git_hash, ")");
}

}  // namespace

SystemDescription describe_system(const SystemFacts& facts, const SystemNames& names) {
  const HostFacts& host = facts.host;
  const bool has_accelerator = !facts.accelerator.empty();
  // Where there is none, no person needs to say more about it.
  const std::string none = has_accelerator ? "" : "N/A";
  const auto bytes = [](int64_t count) { return count > 0 ? bytes_text(count) : ""; };
  return {{{"submitter", names.submitter},
           {"division", names.division},
           {"status", availability_of(names.status)},
           {"system_name", names.system},
           {"number_of_nodes", std::to_string(facts.nodes)},
           {"host_processors_per_node", count_text(host.sockets)},
           {"host_processor_model_name", host.cpu_model},
           {"host_processor_core_count", per_socket(host.cores, host.sockets)},
           {"host_processor_vcpu_count", per_socket(host.logical_cpus, host.sockets)},
           {"host_processor_frequency",
            host.max_mhz > 0 ? concat(fixed_text(host.max_mhz, 0), " MHz") : ""},
           {"host_processor_caches", host.caches},
           {"host_processor_interconnect", host.sockets == 1 ? "N/A" : ""},
           {"host_memory_capacity", bytes(host.memory_bytes)},
           {"host_storage_type", ""},
           {"host_storage_capacity", ""},
           {"host_networking", host.network},
           {"host_networking_topology", facts.nodes == 1 ? "N/A" : ""},
           {"host_memory_configuration", ""},
           {"accelerators_per_node", has_accelerator ? std::to_string(facts.ranks_per_node) : "0"},
           {"accelerator_model_name", has_accelerator ? facts.accelerator : none},
           {"accelerator_host_interconnect", none},
           {"accelerator_frequency", none},
           {"accelerator_on-chip_memories", none},
           {"accelerator_memory_configuration", none},
           {"accelerator_memory_capacity",
            has_accelerator ? bytes(facts.accelerator_memory_bytes) : none},
           {"accelerator_interconnect", none},
           {"accelerator_interconnect_topology", none},
           {"cooling", ""},
           {"hw_notes", ""},
           {"framework", framework_of(facts)},
           {"other_software_stack", software_of(facts)},
           {"operating_system", host.operating_system},
           {"sw_notes", ""}}};
}

std::vector<std::string> SystemDescription::empty_fields() const {
  std::vector<std::string> empty;
  for (const auto& [name, value] : fields) {
    const bool is_note = name.ends_with("_notes");  // may well have nothing to say
    if (value.empty() && !is_note) empty.push_back(name);
  }
  return empty;
}

std::string SystemDescription::json() const {
  Json json = Json::object();
  for (const auto& [name, value] : fields) json[name] = value;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void keep_written_fields(const std::string& path, SystemDescription& description) {
  nlohmann::json json;
  try {
    json = parse_json(read_text_file(path));
  } catch (const Json::exception& error) {
    fail(ExitCode::kData, path, ": ", error.what(), "; want a system description, or remove it");
  }
  if (!json.is_object()) {
    fail(ExitCode::kData, path, ": found no object, want a system description, or remove it");
  }
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) {
      fail(ExitCode::kData, path, ": ", name, " is ", value.dump(), ", want text in quotes");
    }
    const auto text = value.get<std::string>();
    const auto same_name = [&](const auto& field) { return field.first == name; };
    auto& fields = description.fields;
    const auto known = std::ranges::find_if(fields, same_name);
    if (known == fields.end()) {
      fields.emplace_back(name, text);
    } else if (!text.empty()) {
      known->second = text;
    }
  }
}

}  // namespace bertha
