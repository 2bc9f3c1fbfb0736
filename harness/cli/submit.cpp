#include <iostream>
#include <string>
#include <vector>

#include "harness/cli/command.h"
#include "harness/cli/rule_options.h"
#include "harness/mlperf/submission_package.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct SubmitOptions {
  std::vector<std::string> paths;
  PackageRequest request;
};

int run_submit(const SubmitOptions& options) {
  PackageRequest request = options.request;
  for (const std::string& path : options.paths) {
    const std::vector<std::string> found = run_folders(path);
    request.run_dirs.insert(request.run_dirs.end(), found.begin(), found.end());
  }
  const SubmissionPackage package = build_package(request);
  std::cout << submission_report(package.submission, request.options.rules.rule_set) << '\n'
            << package_report(package);
  const bool passed = package.submission.passed();
  return static_cast<int>(passed ? ExitCode::kSuccess : ExitCode::kCompliance);
}

}  // namespace

void add_submit_command(CLI::App& program, Chosen& chosen) {
  CLI::App& submit = add_command(
      program, chosen,
      {.name = "submit",
       .description =
           "Builds the folders of an MLPerf submission from ten runs: results, system description "
           "and sources. Says what a person has to fill in; exit code 8, and nothing written, when "
           "a rule is broken.",
       .examples = {"bertha submit results --system my_8xH200 --output submission/my_org",
                    "bertha submit runs/seed_* --system my_8xH200 --output submission/my_org "
                    "--sources ~/bertha",
                    "bertha submit results --system test --output /tmp/test --draft"}});
  SubmitOptions& options = set_action<SubmitOptions>(submit, chosen, run_submit);
  PackageRequest& request = options.request;
  add_text(submit, "path", options.paths, "PATH",
           "Run folders, or the folder of them (LOGDIR of launch/run_and_time.sh)")
      .required();
  add_text(submit, "--system", request.system, "NAME",
           "Name of the system: letters, digits, '.', '_', '-'")
      .required();
  add_text(submit, "-o,--output", request.output, "DIR",
           "Folder of the submitter; may hold other systems")
      .required();
  add_text(submit, "--sources", request.sources, "DIR",
           "Git checkout that has the commit of the runs (default: this folder)");
  add_rule_options(submit, request.options.rules);
  add_flag(submit, "--draft", request.draft,
           "Build it although a rule is broken or the sources are unknown");
}

}  // namespace bertha
