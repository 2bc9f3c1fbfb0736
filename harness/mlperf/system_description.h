#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/report/system_facts.h"

namespace bertha {

/// What a submission says of its system beside the machine itself.
struct SystemNames {
  std::string submitter;
  std::string division;  // closed | open
  std::string status;    // cloud | onprem | preview | research, as mlperf.status
  std::string system;
};

/// The system description of a submission: every field that the benchmark asks for, in its order,
/// as text. A field that no machine knows is "".
struct SystemDescription {
  std::vector<std::pair<std::string, std::string>> fields = {};

  /// Names of the fields that a person has to fill in.
  std::vector<std::string> empty_fields() const;
  std::string json() const;
};

/// Source    github.com/mlcommons/logging, system_desc_checker/system_desc_checker.py (fields).
SystemDescription describe_system(const SystemFacts& facts, const SystemNames& names);

/// Takes over what a person has written into an earlier description: every text of `path` that is
/// not empty, fields of its own included. Error(kData) when it is no such file.
void keep_written_fields(const std::string& path, SystemDescription& description);

}  // namespace bertha
