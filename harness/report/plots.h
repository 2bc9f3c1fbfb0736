#pragma once

#include <string>

namespace bertha {

/// Whether accuracy is drawn over the published runs of the benchmark: automatically, when the run
/// is BERT-large with the benchmark's target.
enum class PublishedBand { kAuto, kAlways, kNever };

/// Draws what metrics.jsonl says: loss.svg, accuracy.svg, throughput.svg and learning_rate.svg in
/// `out_dir`, which is made when missing; and accuracy_by_samples.svg, over the band of the
/// published runs with the nearest batch size.
///
/// Errors    Error(kData) when the metrics cannot be read or a chart cannot be written.
void plot_metrics(const std::string& metrics_path, const std::string& out_dir,
                  PublishedBand published = PublishedBand::kAuto);

}  // namespace bertha
