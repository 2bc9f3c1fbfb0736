#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/convert/sequence_files.h"
#include "data/convert/shard_job.h"

namespace bertha {

/// Reorders more sequences than fit into memory: scatter() reads all files once and writes the same
/// amount into spill files; gather() reads a part of each of these per shard.
struct Redistribution {
  const SequenceFiles& files;
  SampleLimits limits;
  std::span<const uint32_t> place_of;  // [n]  place of each sequence in the new order
  std::vector<int64_t> shard_firsts;   // [S + 1]  first place of each shard, and n
  int64_t memory_bytes = 0;            // for all threads of scatter()
  int64_t num_threads = 0;

  int64_t num_spills() const;
};

/// Writes the spill files into the folder's work; spill files from an earlier run with as much
/// memory per thread are kept.
void scatter(const Redistribution& all, const JobFolder& folder, const ItemProgress& progress);

/// Gives the sequences of a shard in the new order. Holds them in memory, twice for a moment.
void gather(const Redistribution& all, const JobFolder& folder, int64_t shard,
            const std::function<void(const SampleView&)>& take);

}  // namespace bertha
