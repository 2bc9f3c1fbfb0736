#pragma once

#include <optional>
#include <string>

#include "harness/report/metrics.h"
#include "harness/report/svg_chart.h"

namespace bertha {

/// Draws what a run's metrics say: loss.svg, accuracy.svg, throughput.svg and learning_rate.svg in
/// `out_dir`, which is made when missing; with `published` also accuracy_by_samples.svg, over that
/// band of other runs' accuracy by samples.
///
/// Errors    Error(kData) when a chart cannot be written.
void plot_metrics(const Metrics& metrics, const std::string& out_dir,
                  const std::optional<ChartBand>& published = {});

}  // namespace bertha
