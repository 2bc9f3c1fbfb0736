#pragma once

#include <cstdint>
#include <string>

#include "harness/comm/gpu_state.h"

namespace bertha {

/// Identity and measurements of a rank of `bertha doctor`. Rates per second; -1 = not measured.
struct RankFacts {
  int rank = 0;
  std::string host;
  std::string machine;  // equal for the ranks of one machine
  std::string version;  // the output of --version
  int cores = 0;
  int gpus_seen = 0;
  std::string gpu = "";         // "NVIDIA H200, ..."; "" = the rank computes on the CPU
  std::string gpu_bus_id = "";  // "0000:1b:00.0"
  GpuState gpu_state = {};      // during the GEMMs
  // All ranks measure at the same time.
  double gpu_gemm_flops = -1;     // bf16
  double gpu_copy_bytes = -1;     // within the GPU's memory
  double host_to_gpu_bytes = -1;  // from pinned memory
  double gpu_free_share = -1;     // of the GPU's memory, before anything is measured
  double cpu_gemm_flops = -1;     // f32, on the rank's cores
  double host_copy_bytes = -1;    // one core
  double node_reduce_bytes = -1;  // all-reduce within the node: bus bandwidth by NCCL's definition
  double job_reduce_bytes = -1;   // all-reduce over all ranks
  double host_reduce_bytes = -1;  // all-reduce over all ranks with MPI on host memory
  double host_reduce_latency_s = -1;
  double neighbor_bytes = -1;     // to and from other nodes over MPI; on the node's first rank
  double shm_free_bytes = -1;     // of /dev/shm
  double open_files = -1;         // limit of the process
  double output_free_bytes = -1;  // of --output-dir; on the node's first rank, as the next
  double output_write_bytes = -1;
  std::string output_trouble = "";  // why writing failed
};

/// One JSON object, and back.
std::string to_json_text(const RankFacts& facts);
RankFacts rank_facts_of(const std::string& json_text);

}  // namespace bertha
