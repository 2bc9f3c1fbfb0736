#pragma once

#include <cstdint>
#include <string>

#include "kernels/bench/op_case.h"
#include "kernels/device.h"

namespace bertha {

/// What a reader of a dump has to know beside its tensors.
struct AttentionDump {
  std::string mix;      // "all 512"
  std::string kernels;  // "grouped"
  float dropout = 0;
  uint32_t site = 0;  // of the random bits, with the tensor `random` {seed, step}
};

/// FOLDER/all_512-grouped.safetensors.
std::string dump_path(const std::string& folder, const std::string& mix,
                      const std::string& kernels);

/// Writes every tensor of an attention_bwd call that has run, under its name in the case (qkv, out,
/// lse, mask, dout, dqkv, cu_seqlens, random), and `about` as metadata.
///
/// Blocks    the host, until the tensors have been copied.
/// Errors    Error(kData) with the path when it cannot be written.
void write_attention_dump(const std::string& path, const OpCase& op, const OpCall& call,
                          Device& device, Stream& stream, const AttentionDump& about);

}  // namespace bertha
