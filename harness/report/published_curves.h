#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// Between the worst and the best run at each number of samples. A run that has ended keeps its
/// last accuracy.
struct AccuracyBand {
  std::vector<double> samples;
  std::vector<double> low;   // as many as samples
  std::vector<double> high;  // as many as samples
};
AccuracyBand accuracy_band(const PublishedCurves& curves);

}  // namespace bertha
