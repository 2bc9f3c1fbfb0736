#pragma once

#include <string>
#include <vector>

#include "harness/doctor/rank_facts.h"

namespace bertha::testing {

/// Ranks with a GPU each, on nodes "node0", "node1" and so on, all in order. Rates differ by a
/// percent, as those of healthy GPUs do.
inline std::vector<RankFacts> healthy_job(int nodes, int ranks_per_node) {
  std::vector<RankFacts> ranks;
  for (int i = 0; i < nodes * ranks_per_node; ++i) {
    const std::string node = std::to_string(i / ranks_per_node);
    const double wobble = i % 2 == 0 ? 1 : 0.99;
    ranks.push_back({.rank = i,
                     .host = "node" + node,
                     .machine = "boot id " + node,
                     .version = "bertha 1.0.0 (one)\nbackends: cpu, cuda\nHDF5 1.10.8",
                     .cores = 12,
                     .gpus_seen = ranks_per_node,
                     .gpu = "NVIDIA H200, 132 SMs",
                     .gpu_bus_id = "0000:" + std::to_string(10 + i % ranks_per_node) + ":00.0",
                     .gpu_state = {.pcie_generation = 5,
                                   .max_pcie_generation = 5,
                                   .pcie_lanes = 16,
                                   .max_pcie_lanes = 16,
                                   .sm_mhz = 1500,
                                   .max_sm_mhz = 1980,
                                   .throttle_reasons = 0x4},  // the power limit
                     .gpu_gemm_flops = 790e12 * wobble,
                     .gpu_copy_bytes = 2000e9 * wobble,
                     .host_to_gpu_bytes = 55e9 * wobble,
                     .gpu_free_share = 0.99,
                     .cpu_gemm_flops = 600e9 * wobble,
                     .host_copy_bytes = 8e9 * wobble,
                     .node_reduce_bytes = 360e9,
                     .job_reduce_bytes = 180e9,
                     .host_reduce_bytes = 2e9,
                     .host_reduce_latency_s = 20e-6,
                     .neighbor_bytes = i % ranks_per_node == 0 && nodes > 1 ? 3e9 : -1,
                     .shm_free_bytes = 500e9,
                     .open_files = 1048576,
                     .output_free_bytes = i % ranks_per_node == 0 ? 900e9 : -1,
                     .output_write_bytes = i % ranks_per_node == 0 ? 700e6 : -1});
  }
  return ranks;
}

}  // namespace bertha::testing
