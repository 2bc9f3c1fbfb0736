#include "harness/comm/start_limit.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "harness/comm/rank_name.h"
#include "harness/comm/stops_within.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"
#include "kernels/base/log.h"
#include "kernels/base/parse_number.h"

namespace bertha {
namespace {

constexpr const char* kVariable = "BERTHA_START_TIMEOUT_S";
constexpr double kDefault_s = 600;
// The first rank that reports ends the others; they wait longer, so that only one message is
// printed.
constexpr double kBetweenRanks_s = 3;
constexpr int kMaxDelays = 5;

double limit_s(const EnvironmentLookup& lookup) {
  const char* text = lookup(kVariable);
  if (text == nullptr || *text == '\0') return kDefault_s;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !(value >= 0) || value > 1e9) {
    fail(ExitCode::kEnvironment, kVariable, "='", text,
         "', want the seconds that ranks wait for each other at the start, 0 = forever; correct it "
         "or unset it");
  }
  return value;
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::map<std::string, std::string> environment_of(const std::filesystem::path& process) {
  std::map<std::string, std::string> variables;
  std::istringstream text(read_all(process / "environ"));
  for (std::string word; std::getline(text, word, '\0');) {
    const size_t sign = word.find('=');
    if (sign != std::string::npos) variables[word.substr(0, sign)] = word.substr(sign + 1);
  }
  return variables;
}

/// The state in /proc/PID/stat: the letter after the name in parentheses.
char state_of(const std::filesystem::path& process) {
  const std::string stat = read_all(process / "stat");
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '?' : stat[name_end + 2];
}

/// The ranks of the PMIx job `job` on this machine: its processes without their children.
std::vector<StartedRank> started_ranks(const std::string& job) {
  std::map<int, StartedRank> ranks;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const int process = parse_number<int>(entry.path().filename().native()).value_or(0);
    if (process == 0) continue;
    const auto variables = environment_of(entry.path());
    const auto of_job = variables.find("PMIX_NAMESPACE");
    const auto rank = variables.find("PMIX_RANK");
    if (of_job == variables.end() || of_job->second != job || rank == variables.end()) continue;
    const int index = parse_number<int>(rank->second).value_or(-1);
    const char state = state_of(entry.path());
    const StartedRank found{
        .rank = index, .process = process, .is_stopped = state == 'T' || state == 't'};
    const auto [known, is_new] = ranks.try_emplace(index, found);
    if (!is_new && process < known->second.process) known->second = found;
  }
  std::vector<StartedRank> all;
  for (const auto& [index, rank] : ranks) all.push_back(rank);
  return all;
}

}  // namespace

std::string late_start_report(const std::vector<StartedRank>& here, int num_ranks,
                              const std::string& host, double waited_s, const std::string& what) {
  const std::string still =
      concat("after ", waited_s, " s not all of ", num_ranks, " ranks have ", what, ": ");
  const auto stopped = std::ranges::find_if(here, &StartedRank::is_stopped);
  if (stopped != here.end()) {
    return concat(still, rank_name(stopped->rank, num_ranks, host), " (process ", stopped->process,
                  ") is stopped by a signal or a debugger; continue it with SIGCONT");
  }
  return concat(still, host, " has rank ", joined(here, ", ", &StartedRank::rank),
                "; check the launcher's messages about the others, and whether their machines and "
                "this one can reach each other");
}

StartLimit::StartLimit(const EnvironmentLookup& lookup, int num_ranks, std::string what) {
  const double timeout_s = limit_s(lookup);
  if (timeout_s == 0 || num_ranks == 1) return;
  const char* job = lookup("PMIX_NAMESPACE");
  const char* const rank_text = lookup("PMIX_RANK");
  const int rank = rank_text == nullptr ? 0 : parse_number<int>(rank_text).value_or(0);
  const double own_s = timeout_s + kBetweenRanks_s * std::min(rank, kMaxDelays);
  thread_ =
      std::jthread([own_s, timeout_s, num_ranks, what = std::move(what),
                    job = std::string(job == nullptr ? "" : job)](const std::stop_token& started) {
        if (stops_within(started, std::chrono::duration<double>(own_s))) return;
        log_line(LogLevel::kError,
                 late_start_report(started_ranks(job), num_ranks, own_host(), timeout_s, what));
        std::_Exit(static_cast<int>(ExitCode::kHang));
      });
}

}  // namespace bertha
