#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/metrics.h"
#include "harness/report/svg_chart.h"

namespace bertha {

/// Of training and evaluations, by steps.
Chart accuracy_chart(const Metrics& metrics);
Chart masked_loss_chart(const Metrics& metrics);

/// Draws what a run's metrics say: loss.svg, accuracy.svg, throughput.svg and learning_rate.svg in
/// `out_dir`, which is made when missing; with `published` also accuracy_by_samples.svg, over that
/// band of other runs' accuracy by samples.
///
/// Errors    Error(kData) when a chart cannot be written.
void plot_metrics(const Metrics& metrics, const std::string& out_dir,
                  const std::optional<ChartBand>& published = {});

/// Draws the accuracy of runs on their evaluation sets by samples, a curve each, with the label of
/// `names`. Errors as above.
void plot_accuracies(const std::vector<Metrics>& runs, const std::vector<std::string>& names,
                     const std::string& path);

}  // namespace bertha
