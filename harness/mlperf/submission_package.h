#pragma once

#include <string>
#include <vector>

#include "harness/mlperf/submission.h"
#include "harness/mlperf/system_description.h"

namespace bertha {

struct PackageRequest {
  std::vector<std::string> run_dirs = {};  // in the order of result_0.txt, result_1.txt, ...
  std::string output = {};                 // the submitter's folder; may hold other systems
  std::string system = {};                 // name of the system, as a folder can have it
  std::string sources = ".";               // git checkout that has the commit the runs were made by
  SubmissionOptions options = {};
  bool draft = false;  // build it although a rule is broken, or the sources are unknown
};

struct SubmissionPackage {
  Submission submission = {};
  SystemDescription system = {};
  std::string system_path = {};
  std::string results_path = {};  // "" = nothing was written, because a rule is broken
  std::string code_path = {};     // "" in a draft whose sources are unknown
  std::vector<std::string> warnings = {};
};

/// The runs of a path: itself if it is a run folder, else the run folders in it, run_2 before
/// run_10. Error(kData) when there are none.
std::vector<std::string> run_folders(const std::string& path);

/// Builds what a submitter hands in from runs of one system:
///   results/SYSTEM/bert/result_K.txt   systems/SYSTEM.json
///   benchmarks/bert/implementations/bertha-HASH/   sources of that commit, README, configs
/// A system description that is there keeps what a person wrote into it.
///
/// Errors    Error(kData) with the path: no log in a run folder, results of this system that are
///           there already, sources without the commit, no space; what was begun is removed.
/// Source    github.com/mlcommons/logging, package_checker/package_checker.py (layout).
SubmissionPackage build_package(const PackageRequest& request);

/// Where everything is, and what is left to do; ends in a newline.
std::string package_report(const SubmissionPackage& package);

}  // namespace bertha
