#pragma once

#include <string>

#include "harness/report/metrics.h"

namespace bertha {

/// Whether accuracy is drawn over the published runs of the benchmark: automatically, when the run
/// is BERT-large with the benchmark's target.
enum class PublishedBand { kAuto, kAlways, kNever };

/// Draws what a run's metrics say: loss.svg, accuracy.svg, throughput.svg and learning_rate.svg in
/// `out_dir`, which is made when missing; and accuracy_by_samples.svg, over the band of the
/// published runs with the nearest batch size.
///
/// Errors    Error(kData) when a chart cannot be written.
void plot_metrics(const Metrics& metrics, const std::string& out_dir,
                  PublishedBand published = PublishedBand::kAuto);

}  // namespace bertha
