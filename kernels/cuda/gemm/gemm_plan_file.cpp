// Three lines name format, device and library; a checksum (64-bit FNV-1a) of the plans follows,
// then the plans as in memory, so that a cut or changed file shows. No other program reads it.

#include "kernels/cuda/gemm/gemm_plan_file.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

struct Record {
  GemmKey key;
  GemmAlgorithm algorithm;
};
static_assert(std::is_trivially_copyable_v<Record>);

/// The header of the file, before its records.
std::string head_of(const GemmOrigin& here, const std::string& records) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : records) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return concat("bertha_gemm_plans 4\n", here.device, "\n", here.library, "\n", hash, "\n");
}

}  // namespace

TunedGemms load_tuned_gemms(const std::string& path, const GemmOrigin& here) {
  std::ostringstream read;
  read << std::ifstream(path).rdbuf();
  const std::string text = read.str();
  size_t begin = 0;  // begin of the records
  for (int line = 0; line < 4; ++line) begin = text.find('\n', begin) + 1;
  const std::string records = text.substr(begin);
  TunedGemms tuned;
  if (text != head_of(here, records) + records || records.size() % sizeof(Record) != 0) {
    log_line(LogLevel::kWarning,
             concat("tuned GEMM plans in ", path,
                    " are ignored: the file is missing, damaged or not for ", here.device, ", ",
                    here.library, "; tune again, into another file."));
    return tuned;
  }
  for (size_t at = 0; at < records.size(); at += sizeof(Record)) {
    Record record{};
    std::memcpy(&record, &records[at], sizeof(record));
    tuned[record.key] = record.algorithm;
  }
  return tuned;
}

void save_tuned_gemms(const std::string& path, const GemmOrigin& here, const TunedGemms& tuned) {
  std::string records;
  for (const auto& [key, algorithm] : tuned) {
    const Record record{key, algorithm};
    records.append(reinterpret_cast<const char*>(&record), sizeof(record));
  }
  const std::string partial = concat(path, ".", std::random_device{}());  // a name per writer
  std::ofstream out(partial);
  out << head_of(here, records) << records;
  out.close();
  if (!out || std::rename(partial.c_str(), path.c_str()) != 0) {
    std::remove(partial.c_str());
    fail(ExitCode::kEnvironment, "writing tuned GEMM plans to ", path,
         " failed; check that its folder exists and has free space.");
  }
}

}  // namespace bertha
