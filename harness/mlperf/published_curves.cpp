#include "harness/mlperf/published_curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"

namespace bertha {

const std::vector<PublishedCurves>& all_published_curves() {
  static const std::vector<PublishedCurves> curves = {
      {"NVIDIA v4.0, 8 H200",
       "eval_accuracy of github.com/mlcommons/training_results_v4.0, "
       "NVIDIA/results/h200_ngc23.09_pytorch/bert/result_{0..9}.txt",
       768,
       {
           {0.3799, 0.4013, 0.4677, 0.6340, 0.6994, 0.7081, 0.7116, 0.7132, 0.7148, 0.7159, 0.7168,
            0.7180, 0.7183, 0.7191, 0.7199, 0.7201},
           {0.3797, 0.4034, 0.5085, 0.6678, 0.7038, 0.7094, 0.7119, 0.7137, 0.7149, 0.7160, 0.7169,
            0.7181, 0.7186, 0.7193, 0.7196, 0.7205},
           {0.3779, 0.4028, 0.4875, 0.6390, 0.6996, 0.7078, 0.7114, 0.7133, 0.7145, 0.7161, 0.7168,
            0.7174, 0.7181, 0.7185, 0.7192, 0.7196, 0.7201},
           {0.3789, 0.4028, 0.5076, 0.6610, 0.7025, 0.7091, 0.7122, 0.7140, 0.7151, 0.7163, 0.7168,
            0.7177, 0.7188, 0.7195, 0.7203},
           {0.3734, 0.4048, 0.5084, 0.6429, 0.6964, 0.7071, 0.7106, 0.7124, 0.7139, 0.7150, 0.7163,
            0.7175, 0.7175, 0.7184, 0.7192, 0.7200},
           {0.3780, 0.4008, 0.4801, 0.6309, 0.6979, 0.7077, 0.7105, 0.7126, 0.7140, 0.7150, 0.7161,
            0.7170, 0.7177, 0.7181, 0.7190, 0.7191, 0.7201},
           {0.3791, 0.4075, 0.4988, 0.6524, 0.7007, 0.7083, 0.7110, 0.7130, 0.7139, 0.7154, 0.7165,
            0.7171, 0.7180, 0.7182, 0.7188, 0.7195, 0.7203},
           {0.3789, 0.3986, 0.4838, 0.6416, 0.6979, 0.7064, 0.7103, 0.7123, 0.7134, 0.7151, 0.7157,
            0.7168, 0.7177, 0.7182, 0.7189, 0.7194, 0.7198, 0.7202},
           {0.3800, 0.4056, 0.4910, 0.6272, 0.6980, 0.7074, 0.7111, 0.7127, 0.7143, 0.7154, 0.7167,
            0.7172, 0.7178, 0.7185, 0.7193, 0.7197, 0.7202},
           {0.3779, 0.4033, 0.4851, 0.6336, 0.6983, 0.7076, 0.7106, 0.7129, 0.7144, 0.7158, 0.7167,
            0.7174, 0.7180, 0.7189, 0.7190, 0.7197, 0.7203},
       }},
      {"Baidu v2.0, 8 A100",
       "eval_accuracy of github.com/mlcommons/training_results_v2.0, "
       "Baidu/results/XMan4.0_1_node_8_A100_PaddlePaddle/bert/result_{0..9}.txt",
       448,
       {
           {0.3730, 0.4013, 0.4558, 0.5898, 0.6942, 0.7071, 0.7105, 0.7126, 0.7144, 0.7160, 0.7168,
            0.7178, 0.7180, 0.7192, 0.7197, 0.7202},
           {0.3780, 0.3968, 0.5097, 0.6292, 0.7018, 0.7083, 0.7107, 0.7133, 0.7144, 0.7156, 0.7173,
            0.7184, 0.7186, 0.7194, 0.7205},
           {0.3715, 0.4008, 0.4505, 0.5286, 0.6575, 0.7014, 0.7089, 0.7111, 0.7130, 0.7144, 0.7156,
            0.7159, 0.7174, 0.7179, 0.7191, 0.7192, 0.7201},
           {0.3773, 0.4167, 0.5305, 0.6708, 0.7052, 0.7098, 0.7124, 0.7140, 0.7152, 0.7166, 0.7171,
            0.7180, 0.7188, 0.7201},
           {0.3766, 0.3945, 0.4764, 0.6003, 0.6865, 0.7056, 0.7102, 0.7127, 0.7142, 0.7154, 0.7166,
            0.7178, 0.7189, 0.7193, 0.7206},
           {0.3727, 0.4023, 0.4457, 0.5120, 0.6125, 0.6994, 0.7073, 0.7109, 0.7131, 0.7142, 0.7154,
            0.7160, 0.7171, 0.7178, 0.7186, 0.7191, 0.7197, 0.7201},
           {0.3733, 0.4021, 0.4342, 0.4931, 0.5902, 0.6958, 0.7076, 0.7108, 0.7127, 0.7142,
            0.7147, 0.7156, 0.7165, 0.7174, 0.7181, 0.7186, 0.7188, 0.7197, 0.7199, 0.7199},
           {0.3780, 0.4008, 0.4902, 0.6704, 0.7050, 0.7100, 0.7116, 0.7133, 0.7144, 0.7159, 0.7163,
            0.7174, 0.7181, 0.7185, 0.7195, 0.7200},
           {0.3732, 0.4005, 0.4475, 0.5099, 0.6433, 0.7010, 0.7080, 0.7107, 0.7119, 0.7139, 0.7153,
            0.7162, 0.7171, 0.7179, 0.7183, 0.7194, 0.7198, 0.7205},
           {0.3744, 0.4150, 0.5707, 0.6864, 0.7072, 0.7108, 0.7125, 0.7143, 0.7159, 0.7170, 0.7173,
            0.7182, 0.7188, 0.7194, 0.7202},
       }},
  };
  return curves;
}

const PublishedCurves& published_curves_near(int64_t batch_seqs) {
  const auto distance = [&](const PublishedCurves& curves) {
    return std::abs(std::log(static_cast<double>(std::max<int64_t>(batch_seqs, 1)) /
                             static_cast<double>(curves.batch_seqs)));
  };
  const auto& all = all_published_curves();
  return *std::ranges::min_element(
      all, [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
}

ChartBand accuracy_band(const PublishedCurves& curves) {
  size_t longest = 0;
  for (const auto& run : curves.runs) longest = std::max(longest, run.size());
  ChartBand band{.label = concat(curves.name, ", batch ", curves.batch_seqs),
                 .x = {0},
                 .low = {kUntrainedAccuracy},
                 .high = {kUntrainedAccuracy}};
  for (size_t i = 0; i < longest; ++i) {
    double low = std::numeric_limits<double>::infinity();
    double high = 0;
    for (const auto& run : curves.runs) {
      const double accuracy = run[std::min(i, run.size() - 1)];
      low = std::min(low, accuracy);
      high = std::max(high, accuracy);
    }
    band.x.push_back(static_cast<double>(kPublishedSamplesPerEval) * static_cast<double>(i + 1));
    band.low.push_back(low);
    band.high.push_back(high);
  }
  return band;
}

bool is_benchmark_run(const RunIdentity& run) {
  // 336,226,108 with the vocabulary of the published checkpoint, and a few more with its padding.
  constexpr int64_t kLeast = 336'000'000, kMost = 336'500'000;
  constexpr double kLeastTarget = 0.70;
  return run.parameters >= kLeast && run.parameters <= kMost && run.target_accuracy >= kLeastTarget;
}

std::optional<ChartBand> published_band(const RunIdentity& run, PublishedBand wanted) {
  const bool comparable = wanted == PublishedBand::kAuto && is_benchmark_run(run);
  if (wanted != PublishedBand::kAlways && !comparable) return std::nullopt;
  return accuracy_band(published_curves_near(run.global_batch_seqs));
}

}  // namespace bertha
