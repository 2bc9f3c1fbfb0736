#include "harness/mlperf/submission_package.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <tuple>

#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "harness/mlperf/log_parser.h"
#include "harness/report/files.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLogOfARun = "mllog/result_0.txt";
constexpr const char* kSystemOfARun = "system.json";
constexpr const char* kConfigOfARun = "resolved.yaml";

/// A folder under a name of its own, which is gone with the object, as are folders above it that
/// were made for it and are empty then.
class Staging {
 public:
  explicit Staging(fs::path path) : path_(std::move(path)) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    for (fs::path above = path_.parent_path(); !above.empty() && !fs::exists(above, ignored);
         above = above.parent_path()) {
      made_above_.push_back(above);
    }
    make(path_);
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    for (const fs::path& above : made_above_) fs::remove(above, ignored);  // where it is empty
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  fs::path operator/(const fs::path& name) const { return path_ / name; }

  static void make(const fs::path& folder) {
    make_folder(folder.string(), "choose another with --output");
  }
  static void move(const fs::path& from, const fs::path& to) {
    make(to.parent_path());
    std::error_code error;
    fs::rename(from, to, error);
    if (error) fail(ExitCode::kData, to.string(), ": cannot be put there: ", error.message());
  }

 private:
  fs::path path_;
  std::vector<fs::path> made_above_;  // the lowest first
};

void copy_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) {
    fail(ExitCode::kData, from.string(), ": cannot copy to ", to.string(), ": ", error.message());
  }
}

SystemNames names_in_log(const std::string& path, const std::string& system) {
  SystemNames names{.submitter = "", .division = "", .status = "", .system = system};
  for (const MlperfRecord& record : parse_mlperf_text(read_text_file(path)).records) {
    if (!record.value.is_string()) continue;
    const auto value = record.value.get<std::string>();
    if (record.key == "submission_org") names.submitter = value;
    if (record.key == "submission_division") names.division = value;
    if (record.key == "submission_status") names.status = value;
  }
  return names;
}

/// The commit that all runs were made by; "" and a sentence when there is no such one.
std::string common_commit(const std::vector<SystemFacts>& runs, std::string& why_not) {
  std::set<std::string> commits;
  for (const SystemFacts& run : runs) commits.insert(run.git_hash);
  if (commits.size() != 1) {
    why_not = concat("the runs were made by ", commits.size(), " different commits");
    return "";
  }
  std::string commit = *commits.begin();
  if (commit.empty() || commit.find_first_not_of("0123456789abcdef") != std::string::npos) {
    why_not = concat("the runs were made by \"", commit, "\", not by a commit without changes");
    return "";
  }
  return commit;
}

void extract_sources(const std::string& checkout, const std::string& commit, const fs::path& to) {
  Staging::make(to);
  const fs::path archive = to / "sources.tar";
  const std::string command = concat(
      "git -C ", shell_word(checkout),
      " archive --format=tar --output=", shell_word(fs::absolute(archive).string()), " ", commit,
      " 2> /dev/null && tar -xf ", shell_word(archive.string()), " -C ", shell_word(to.string()));
  if (std::system(command.c_str()) != 0) {
    fail(ExitCode::kData, checkout, ": no git checkout with commit ", commit,
         ", by which the runs were made; name one with --sources");
  }
  fs::remove(archive);
}

std::string implementation_readme(const PackageRequest& request, const std::string& commit) {
  std::string text = concat(
      "# Bertha on ", request.system, "\n\nCommit ", commit, ".\n\n## To reproduce\n\n",
      "    ./launch/install_deps.sh\n    cmake --preset release && cmake --build build/release\n",
      "    NEXP=", request.run_dirs.size(), " LOGDIR=results launch/run_and_time.sh configs/",
      request.system,
      ".yaml\n\nThat file has every key of the runs with its value: the seed there is the first "
      "run's, and the\n",
      "paths of data and weights are theirs; README.md of the sources says how to make those.\n");
  return text;
}

void check_name(const std::string& system) {
  const bool is_plain = !system.empty() && system.front() != '.' &&
                        system.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789._-") == std::string::npos;
  if (!is_plain) {
    fail(ExitCode::kUsage, "--system is \"", system,
         "\", want letters, digits, '.', '_' and '-' alone: it names a folder");
  }
}

std::vector<SystemFacts> facts_of(const PackageRequest& request) {
  std::vector<SystemFacts> facts;
  for (const std::string& run : request.run_dirs) {
    facts.push_back(read_system_facts(concat(run, "/", kSystemOfARun)));
  }
  return facts;
}

void warn_of_mixed_systems(const std::vector<SystemFacts>& runs,
                           std::vector<std::string>& warnings) {
  std::set<std::tuple<int64_t, int64_t, std::string, std::string>> systems;
  for (const SystemFacts& run : runs) {
    systems.emplace(run.nodes, run.ranks_per_node, run.accelerator, run.host.cpu_model);
  }
  if (systems.size() > 1) {
    warnings.push_back(concat("the runs were made on ", systems.size(),
                              " kinds of systems; the description is that of the first run"));
  }
}

}  // namespace

std::vector<std::string> run_folders(const std::string& path) {
  const auto is_run = [](const fs::path& folder) { return fs::exists(folder / kLogOfARun); };
  if (is_run(path)) return {path};
  std::vector<std::string> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (!entry.is_symlink() && is_run(entry.path())) runs.push_back(entry.path().string());
  }
  if (runs.empty()) {
    fail(ExitCode::kData, path, ": neither a run folder nor a folder of run folders (no ",
         kLogOfARun, " in it); name the LOGDIR of launch/run_and_time.sh, or each run");
  }
  std::ranges::sort(runs, [](const std::string& a, const std::string& b) {
    return std::tuple(a.size(), a) < std::tuple(b.size(), b);
  });
  return runs;
}

SubmissionPackage build_package(const PackageRequest& request) {
  check_name(request.system);
  const fs::path output = request.output;
  const fs::path results = output / "results" / request.system / "bert";
  if (fs::exists(results)) {
    fail(ExitCode::kData, results.string(),
         " is there already; remove it to build it again, or choose another --system");
  }
  SubmissionPackage package;
  std::vector<std::string> logs;
  for (const std::string& run : request.run_dirs) logs.push_back(concat(run, "/", kLogOfARun));
  package.submission = check_submission(logs, request.options);
  const std::vector<SystemFacts> facts = facts_of(request);
  warn_of_mixed_systems(facts, package.warnings);

  package.system = describe_system(facts.front(), names_in_log(logs.front(), request.system));
  const fs::path description = output / "systems" / (request.system + ".json");
  if (fs::exists(description)) keep_written_fields(description.string(), package.system);
  package.system_path = description.string();
  if (!package.submission.passed() && !request.draft) return package;

  std::string why_not;
  const std::string commit = common_commit(facts, why_not);
  if (commit.empty() && !request.draft) {
    fail(ExitCode::kData, why_not,
         "; a submission hands in the sources of its runs. Make the runs by "
         "one committed version, or build a --draft without sources");
  }
  if (commit.empty()) package.warnings.push_back(why_not + ": no sources in this draft");

  Staging staging(output / concat(".submit-", request.system));
  Staging::make(staging / "results");
  for (size_t run = 0; run < logs.size(); ++run) {
    copy_to(logs[run], staging / "results" / concat("result_", run, ".txt"));
  }
  const fs::path code = output / "benchmarks/bert/implementations" / ("bertha-" + commit);
  if (!commit.empty() && !fs::exists(code))
    extract_sources(request.sources, commit, staging / "code");
  if (!commit.empty()) {
    if (!fs::exists(code)) Staging::move(staging / "code", code);
    package.code_path = code.string();
    write_new_file((code / concat("README-", request.system, ".md")).string(),
                   implementation_readme(request, commit));
    Staging::make(code / "configs");
    write_new_file((code / "configs" / (request.system + ".yaml")).string(),
                   read_text_file(concat(request.run_dirs.front(), "/", kConfigOfARun)));
  }
  Staging::make(description.parent_path());
  write_new_file(description.string(), package.system.json());
  Staging::move(staging / "results", results);
  package.results_path = results.string();
  return package;
}

std::string package_report(const SubmissionPackage& package) {
  std::string text;
  for (const std::string& warning : package.warnings) text += concat("warning: ", warning, "\n");
  if (package.results_path.empty()) {
    return text + "nothing written: a rule is broken; --draft builds it nevertheless\n";
  }
  text += concat("results  ", package.results_path, "\nsystem   ", package.system_path, "\n");
  if (!package.code_path.empty()) text += concat("sources  ", package.code_path, "\n");
  const std::vector<std::string> empty = package.system.empty_fields();
  if (empty.empty()) return text;
  text += concat("\nto fill in by hand in ", package.system_path, ":\n");
  for (const std::string& name : empty) text += concat("  ", name, "\n");
  return text;
}

}  // namespace bertha
