#include "harness/doctor/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/comm/rank_name.h"
#include "harness/doctor/checks.h"
#include "harness/report/device_peak.h"
#include "harness/report/text_format.h"
#include "kernels/base/figures.h"

namespace bertha {
namespace {

using Ranks = std::vector<const RankFacts*>;

std::vector<Ranks> nodes_of(std::span<const RankFacts> ranks) {
  std::vector<Ranks> nodes;
  for (const RankFacts& facts : ranks) {
    const auto node = std::ranges::find_if(
        nodes, [&](const Ranks& ranks_there) { return ranks_there[0]->machine == facts.machine; });
    if (node == nodes.end()) {
      nodes.push_back({&facts});
    } else {
      node->push_back(&facts);
    }
  }
  return nodes;
}

/// "rank 3 (GPU 0000:1b:00.0)", "ranks 0-3,6".
std::string names_of(const Ranks& ranks) {
  if (ranks.size() == 1) {
    const RankFacts& one = *ranks.front();
    return one.gpu.empty() ? fmt::format("rank {}", one.rank)
                           : fmt::format("rank {} (GPU {})", one.rank, one.gpu_bus_id);
  }
  std::vector<int> numbers;
  for (const RankFacts* facts : ranks) numbers.push_back(facts->rank);
  return "ranks " + rank_list(numbers);
}

/// The most frequent value; among equally frequent ones, the lowest rank's.
template <class Value>
Value most_common(std::span<const RankFacts> ranks, Value RankFacts::*value) {
  std::map<Value, int> counts;
  for (const RankFacts& facts : ranks) ++counts[facts.*value];
  return std::ranges::max(ranks, {}, [&](const RankFacts& facts) { return counts[facts.*value]; }).*
         value;
}

std::string first_other_line(const std::string& found, const std::string& wanted) {
  const auto differ = std::ranges::mismatch(found, wanted);
  const auto at = static_cast<size_t>(differ.in1 - found.begin());
  const size_t begin = at == 0 ? 0 : found.rfind('\n', at - 1) + 1;
  return found.substr(begin, found.find('\n', at) - begin);
}

struct Bound {
  double least = 0;
  std::string reason = "";
};

/// The highest bound of a figure.
Bound bound_of(const FigureCheck& check, const RankFacts& facts, double median) {
  Bound bound{.least = check.least};
  if (check.least_share * median > bound.least) {
    bound = {.least = check.least_share * median,
             .reason = fmt::format(", {:g} % of the median", 100 * check.least_share)};
  }
  if (check.value == &RankFacts::gpu_gemm_flops) {
    const double least = kMinShareOfPeak * peak_flops(facts.gpu, DType::kBF16);
    if (least > bound.least) {
      bound = {.least = least,
               .reason = fmt::format(", {:g} % of the data sheet's peak", 100 * kMinShareOfPeak)};
    }
  }
  return bound;
}

std::string clock_text(const FigureCheck& check, const RankFacts& facts) {
  const GpuState& gpu = facts.gpu_state;
  if (check.value != &RankFacts::gpu_gemm_flops || gpu.sm_mhz == 0) return "";
  return fmt::format(" at {} of {} MHz", gpu.sm_mhz, gpu.max_sm_mhz);
}

class Doctor {
 public:
  explicit Doctor(std::span<const RankFacts> ranks)
      : version_(most_common(ranks, &RankFacts::version)),
        cores_(most_common(ranks, &RankFacts::cores)) {
    for (const FigureCheck& check : kFigureChecks) {
      std::vector<double> values;
      for (const RankFacts& facts : ranks) {
        if (facts.*check.value >= 0) values.push_back(facts.*check.value);
      }
      medians_.push_back(values.size() > 1 ? percentile(values, 0.5) : 0);
    }
  }

  std::vector<Trouble> examine(const Ranks& node) {
    troubles_.clear();
    host_ = node.front()->host;
    compare_builds(node);
    compare_cores(node);
    count_gpus(node);
    for (size_t i = 0; i < kFigureChecks.size(); ++i) compare(kFigureChecks[i], medians_[i], node);
    for (const RankFacts* facts : node) {
      if (!facts->gpu.empty()) examine_gpu(*facts);
      if (!facts->output_trouble.empty()) refuse(facts->output_trouble);
    }
    return troubles_;
  }

 private:
  void refuse(const std::string& sentence) { troubles_.push_back({host_, sentence}); }
  void remark(const std::string& sentence) { troubles_.push_back({host_, sentence, false}); }

  void compare_builds(const Ranks& node) {
    Ranks other;
    std::ranges::copy_if(node, std::back_inserter(other),
                         [&](const RankFacts* facts) { return facts->version != version_; });
    if (other.empty()) return;
    const std::string& found = other.front()->version;
    refuse(fmt::format(
        "{}: found the build \"{}\", want \"{}\" as on the other ranks; install one "
        "build on every node",
        names_of(other), first_other_line(found, version_), first_other_line(version_, found)));
  }

  void compare_cores(const Ranks& node) {
    Ranks other;
    std::ranges::copy_if(node, std::back_inserter(other),
                         [&](const RankFacts* facts) { return facts->cores != cores_; });
    if (other.empty()) return;
    remark(
        fmt::format("{}: {}, want {} as on the other ranks; start as many ranks per node, on as "
                    "many cores",
                    names_of(other), counted_text(other.front()->cores, "core"), cores_));
  }

  void count_gpus(const Ranks& node) {
    const RankFacts& first = *node.front();
    const auto ranks = std::ssize(node);
    if (first.gpu.empty() || first.gpus_seen <= ranks) return;
    remark(
        fmt::format("{} GPUs for {}, want a rank per GPU; start more ranks, or hide the other GPUs "
                    "with CUDA_VISIBLE_DEVICES",
                    first.gpus_seen, counted_text(ranks, "rank")));
  }

  void compare(const FigureCheck& check, double median, const Ranks& node) {
    Ranks low;
    for (const RankFacts* facts : node) {
      const double value = facts->*check.value;
      if (value >= 0 && value < bound_of(check, *facts, median).least) low.push_back(facts);
    }
    if (low.empty()) return;
    const RankFacts& worst =
        *std::ranges::min(low, {}, [&](const RankFacts* facts) { return facts->*check.value; });
    const Bound bound = bound_of(check, worst, median);
    refuse(fmt::format("{}: {} {}{}, want at least {}{}; {}", names_of(low), check.name,
                       figure_text(worst.*check.value, check.unit), clock_text(check, worst),
                       figure_text(bound.least, check.unit), bound.reason, check.advice));
  }

  void examine_gpu(const RankFacts& facts) {
    const GpuState& gpu = facts.gpu_state;
    const std::string name = names_of({&facts});
    if (!gpu.unread.empty()) {
      remark(
          fmt::format("{}: link, clocks and memory errors are unknown: {}; in a container set "
                      "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
                      name, gpu.unread));
    }
    const bool is_known = gpu.pcie_generation > 0 && gpu.pcie_lanes > 0;
    if (is_known &&
        (gpu.pcie_generation < gpu.max_pcie_generation || gpu.pcie_lanes < gpu.max_pcie_lanes)) {
      refuse(fmt::format(
          "{}: PCIe generation {} x{}, want {} x{}; restart the node, then reseat the "
          "GPU",
          name, gpu.pcie_generation, gpu.pcie_lanes, gpu.max_pcie_generation, gpu.max_pcie_lanes));
    }
    if (gpu.uncorrected_errors > 0) {
      refuse(fmt::format(
          "{}: {} (ECC), want 0; reset the GPU (nvidia-smi -r) and have it replaced if they "
          "return",
          name,
          counted_text(static_cast<int64_t>(gpu.uncorrected_errors), "uncorrected memory error")));
    }
    for (const ThrottleReason& reason : kThrottleReasons) {
      if ((gpu.throttle_reasons & reason.bit) == 0) continue;
      troubles_.push_back({host_,
                           fmt::format("{}: {} at {} of {} MHz, want none; look at cooling and "
                                       "power",
                                       name, reason.name, gpu.sm_mhz, gpu.max_sm_mhz),
                           reason.refuses});
    }
  }

  std::string version_;
  int cores_;
  std::vector<double> medians_;  // one per kFigureChecks; 0 = nothing to compare
  std::string host_;
  std::vector<Trouble> troubles_;
};

}  // namespace

bool Diagnosis::is_healthy() const {
  return std::ranges::all_of(nodes, [](const NodeVerdict& node) { return node.is_healthy; });
}

Diagnosis diagnose(std::span<const RankFacts> ranks) {
  Diagnosis diagnosis;
  Doctor doctor(ranks);
  for (const Ranks& node : nodes_of(ranks)) {
    const std::vector<Trouble> found = doctor.examine(node);
    NodeVerdict& verdict = diagnosis.nodes.emplace_back(NodeVerdict{node.front()->host, {}});
    for (const RankFacts* facts : node) verdict.ranks.push_back(facts->rank);
    verdict.is_healthy = std::ranges::none_of(found, &Trouble::refuses);
    diagnosis.troubles.insert(diagnosis.troubles.end(), found.begin(), found.end());
  }
  return diagnosis;
}

}  // namespace bertha
