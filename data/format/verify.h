#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/files/for_each_parallel.h"
#include "data/format/sample.h"

namespace bertha {

struct VerifyOptions {
  std::optional<SampleLimits> limits;  // default: the manifest's, else the benchmark's
  int64_t num_threads = 0;             // 0: one per core
  int64_t max_findings_per_shard = 1000;
  std::string checksum_list = {};  // a published one (checksum_list.h) to compare with; empty: none
};

/// One thing that is wrong.
struct Finding {
  std::string shard;         // file name; the manifest's if that is at fault
  std::string what;          // value found, value wanted
  int64_t row = -1;          // -1: the whole file
  std::string dataset = {};  // empty: no dataset in particular

  /// "part_0.hdf5, row 7, input_ids: ..."
  std::string text() const;
};

struct VerifyReport {
  std::vector<Finding> findings;  // by shard, then row
  bool has_manifest = false;      // without one only the samples themselves were checked
  int64_t num_shards = 0;
  int64_t num_samples = 0;
  int64_t num_bytes = 0;

  bool ok() const { return findings.empty(); }
};

/// Checks a data folder (or one shard of it) against its manifest.json and the rules for samples,
/// and collects all faults:
///   files: missing (from the manifest, or from names such as part_00003_of_00008.hdf5), not in the
///   manifest, other size, hash, sample count or token checksum,
///   unreadable, the same samples in two shards; a shard of another hash is not read, one without
///   an entry is read by a process of its own first, so no other threads may run;
///   a checksum list, if one is given: shards that differ from it, or are in one of them only;
///   samples: what read_shard() checks, at least one masked position, [CLS] at the start, [SEP] at
///   the end of both segments, none of the three masked or a label;
///   manifest: counts and token-length histogram that differ from the samples.
///
/// Errors    Error(kData) only if there is nothing to check: no shard, or no readable manifest.
VerifyReport verify_data(const std::string& path, const VerifyOptions& options = {},
                         const ItemProgress& progress = {});

}  // namespace bertha
