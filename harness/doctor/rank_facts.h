#pragma once

#include <cstdint>
#include <string>

#include "harness/comm/gpu_state.h"

namespace bertha {

/// What one rank of `bertha doctor` is and measured. Rates are per second; -1 = not measured.
struct RankFacts {
  int rank = 0;
  std::string host;
  std::string machine;  // equal for ranks under one kernel
  std::string version;  // what --version prints
  int cores = 0;
  int gpus_seen = 0;
  std::string gpu = "";         // "NVIDIA H200, ..."; "" = the rank computes on the CPU
  std::string gpu_bus_id = "";  // "0000:1b:00.0"
  GpuState gpu_state = {};      // while the GPU multiplied
  // All ranks measure at the same time.
  double gpu_gemm_flops = -1;     // bf16
  double gpu_copy_bytes = -1;     // within the GPU's memory
  double host_to_gpu_bytes = -1;  // from pinned memory
  double gpu_free_share = -1;     // of the GPU's memory, before anything is measured
  double cpu_gemm_flops = -1;     // f32, on the rank's cores
  double host_copy_bytes = -1;    // by one core
  double node_reduce_bytes = -1;  // all-reduce of the node's ranks: bus bandwidth as NCCL counts it
  double job_reduce_bytes = -1;   // of all ranks
  double host_reduce_bytes = -1;  // of all ranks over MPI on host memory
  double host_reduce_latency_s = -1;
  double neighbor_bytes = -1;     // to and from other nodes over MPI; of the node's first rank
  double shm_free_bytes = -1;     // of /dev/shm
  double open_files = -1;         // limit of the process
  double output_free_bytes = -1;  // of --output-dir; of the node's first rank, as the next
  double output_write_bytes = -1;
  std::string output_trouble = "";  // why nothing could be written there
};

/// One JSON object, and back.
std::string to_json_text(const RankFacts& facts);
RankFacts rank_facts_of(const std::string& json_text);

}  // namespace bertha
