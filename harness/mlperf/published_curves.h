#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/metrics.h"
#include "harness/report/svg_chart.h"

namespace bertha {

/// Masked-token accuracy of a published submission of ten runs that reached the benchmark's target
/// or ran out of steps, evaluated every 150,000 samples.
struct PublishedCurves {
  std::string name;
  std::string source;
  int64_t batch_seqs;
  std::vector<std::vector<double>> runs;  // accuracy at 150,000, 300,000, ... samples
};

constexpr int64_t kPublishedSamplesPerEval = 150'000;
/// What the start checkpoint scores before any training.
constexpr double kUntrainedAccuracy = 0.34085;

const std::vector<PublishedCurves>& all_published_curves();
/// The submission with the nearest batch size, as a ratio.
const PublishedCurves& published_curves_near(int64_t batch_seqs);

/// Accuracy over samples between the worst and the best run. A run that has ended keeps its last
/// accuracy.
ChartBand accuracy_band(const PublishedCurves& curves);

/// Whether it is BERT-large trained to a target near the benchmark's, so that published runs
/// compare.
bool is_benchmark_run(const RunIdentity& run);

/// Whether accuracy is drawn over the published runs; automatically when is_benchmark_run().
enum class PublishedBand { kAuto, kAlways, kNever };

/// The band to draw a run over: that of the nearest batch size, or none.
std::optional<ChartBand> published_band(const RunIdentity& run, PublishedBand wanted);

}  // namespace bertha
