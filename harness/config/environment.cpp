#include "harness/config/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr std::array<std::string_view, 14> kPrefixes{
    "OMP_",       "OPENBLAS_", "CUDA_",        "NCCL_",
    "UCX_",       "HDF5_",     "OMPI_MCA_",    "OMPI_COMM_WORLD_",
    "SLURM_JOB",  "SLURM_N",   "SLURM_PROCID", "MASTER_",
    "WORLD_SIZE", "TMPDIR"};

}  // namespace

std::vector<std::pair<std::string, std::string>> recorded_environment() {
  std::vector<std::pair<std::string, std::string>> recorded;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool wanted = std::ranges::any_of(
        kPrefixes, [&](std::string_view prefix) { return text.starts_with(prefix); });
    const size_t equals = text.find('=');
    if (!wanted || equals == std::string_view::npos) continue;
    recorded.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::ranges::sort(recorded);
  return recorded;
}

std::string batch_job() {
  const char* const id = std::getenv("SLURM_JOB_ID");
  const std::string_view text = id == nullptr ? "" : id;
  if (text.find_first_not_of("0123456789") != std::string_view::npos) {
    fail(ExitCode::kEnvironment, "SLURM_JOB_ID is \"", text,
         "\", want the number of a job; unset it outside of Slurm, or set log.run_dir");
  }
  return std::string(text);
}

}  // namespace bertha
