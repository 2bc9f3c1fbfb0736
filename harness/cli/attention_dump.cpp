#include "harness/cli/attention_dump.h"

#include <algorithm>
#include <vector>

#include "harness/checkpoint/safetensors.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

std::string word(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kE4M3:
      return "F8_E4M3";
    case DType::kE5M2:
      return "F8_E5M2";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kU64:
      return "U64";
    case DType::kU8:
      return "U8";
  }
  fail(ExitCode::kInternal, "no safetensors word for dtype ", static_cast<int>(dtype));
}

}  // namespace

std::string dump_path(const std::string& folder, const std::string& mix,
                      const std::string& kernels) {
  std::string name = concat(mix, "-", kernels, ".safetensors");
  std::erase(name, ',');
  std::ranges::replace(name, ' ', '_');
  return concat(folder, "/", name);
}

void write_attention_dump(const std::string& path, const OpCase& op, const OpCall& call,
                          Device& device, Stream& stream, const AttentionDump& about) {
  std::vector<SafeTensorsWriter::Entry> entries;
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    entries.push_back({.name = op.tensors[i].name,
                       .shape = op.tensors[i].extents,
                       .dtype = word(call.tensors[i].dtype)});
  }
  SafeTensorsWriter writer(path, entries,
                           {{"mix", about.mix},
                            {"kernels", about.kernels},
                            {"dropout", concat(about.dropout)},
                            {"site", concat(about.site)}});
  for (const View& view : call.tensors) {
    const Buffer pinned = device.allocate_pinned(view.bytes());
    device.copy(stream, pinned.data(), view.data, view.bytes());
    stream.wait_on_host();
    writer.append(static_cast<const char*>(pinned.data()), view.bytes());
  }
  writer.finish();
}

}  // namespace bertha
