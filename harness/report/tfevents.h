#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/files.h"

namespace bertha {

/// Scalars for TensorBoard: an event file of framed, checksummed protobuf records.
///
/// Writes    events.out.tfevents.<unixtime>.<host> in `folder`, a new one per process start;
///           one write() per event.
/// Errors    Error(kData) if the file cannot be written.
/// Source    data/files/tensorflow.proto; tensorflow/core/lib/io/record_writer.cc.
class TensorBoardFile {
 public:
  /// A tag and its value; none is dropped.
  using Scalars = std::vector<std::pair<std::string, std::optional<double>>>;

  explicit TensorBoardFile(const std::string& folder);

  /// Makes TensorBoard ignore records of earlier files for `first_step` and later steps.
  void session_start(int64_t first_step);
  void scalars(int64_t step, const Scalars& scalars);

  const std::string& path() const { return file_.path(); }

 private:
  void append_record(const std::string& event);

  AppendFile file_;
};

}  // namespace bertha
