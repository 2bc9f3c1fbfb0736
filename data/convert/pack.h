#pragma once

#include <cstdint>
#include <string>

#include "data/convert/packing.h"
#include "data/convert/shard_job.h"

namespace bertha {

struct PackOptions {
  SourceOptions source;
  std::string output_dir;  // empty: only the figures are computed
  int64_t max_seqs_per_pack = 3;
  int64_t num_shards = 0;  // 0 = the number of source files
  uint64_t seed = 24;      // of the order of packs and of their composition
};

struct PackResult : JobResult {
  PackFigures figures;
  double planning_seconds = 0.0;  // from lengths to packs
};

/// Writes the sequences of a data set, in any published form, as packed shards (FORMAT.md): packs
/// as plan_packs() says, in random order over all shards. Shards have the published sizes, in
/// packs.
///
/// A stopped run continues where it stopped when it is started again. Needs memory of 13 bytes per
/// sequence (2 GB for the 156,726,829 of the benchmark) plus SourceOptions::memory_bytes, and twice
/// the disk space of the packed data while it runs.
///
/// Errors    as convert_data().
PackResult pack_data(const PackOptions& options, const WorkProgress& progress);

}  // namespace bertha
