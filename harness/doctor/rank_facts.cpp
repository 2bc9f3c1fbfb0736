#include "harness/doctor/rank_facts.h"

#include <nlohmann/json.hpp>

#include "data/files/json_file.h"

namespace bertha {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuState, pcie_generation, max_pcie_generation, pcie_lanes,
                                   max_pcie_lanes, sm_mhz, max_sm_mhz, throttle_reasons,
                                   uncorrected_errors, energy_mj, unread)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, host, machine, version, cores, gpus_seen, gpu,
                                   gpu_bus_id, gpu_state, gpu_gemm_flops, gpu_copy_bytes,
                                   host_to_gpu_bytes, gpu_free_share, cpu_gemm_flops,
                                   host_copy_bytes, node_reduce_bytes, job_reduce_bytes,
                                   host_reduce_bytes, host_reduce_latency_s, neighbor_bytes,
                                   shm_free_bytes, open_files, output_free_bytes,
                                   output_write_bytes, output_trouble)

std::string to_json_text(const RankFacts& facts) {
  // Names of hosts and folders need not be UTF-8.
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankFacts rank_facts_of(const std::string& json_text) {
  return parse_json(json_text).get<RankFacts>();
}

}  // namespace bertha
