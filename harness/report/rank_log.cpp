#include "harness/report/rank_log.h"

#include <array>
#include <cstdio>
#include <memory>

#include "harness/report/files.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

constexpr std::array kNames = {"debug", "info", "warning", "error"};  // of LogLevel

}  // namespace

std::string rank_log_path(const std::string& run_dir, int64_t rank) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "/logs/rank_%04lld.log", static_cast<long long>(rank));
  return run_dir + name.data();
}

void start_rank_log(const std::string& run_dir, int64_t rank) {
  const auto file = std::make_shared<AppendFile>(rank_log_path(run_dir, rank));
  set_log_record([file](LogLevel level, const std::string& text) {
    try {
      file->append_line(
          concat(local_time_text(now_ms()), " ", kNames[static_cast<size_t>(level)], ": ", text));
    } catch (const Error&) {
      // The line is on the console; what else is written to the full disk reports it.
    }
  });
}

}  // namespace bertha
