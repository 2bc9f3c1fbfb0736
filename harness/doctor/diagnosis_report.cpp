#include "harness/doctor/diagnosis_report.h"

#include <algorithm>
#include <vector>

#include "data/files/json_file.h"
#include "harness/comm/rank_name.h"
#include "harness/doctor/checks.h"
#include "harness/report/text_format.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

/// The lowest figure of a node; -1 = not measured.
double lowest(const NodeVerdict& node, std::span<const RankFacts> ranks, double RankFacts::*value) {
  double least = -1;
  for (const int rank : node.ranks) {
    const double here = ranks[static_cast<size_t>(rank)].*value;
    if (here >= 0 && (least < 0 || here < least)) least = here;
  }
  return least;
}

int64_t gpus_of(const NodeVerdict& node, std::span<const RankFacts> ranks) {
  return std::ranges::count_if(
      node.ranks, [&](int rank) { return !ranks[static_cast<size_t>(rank)].gpu.empty(); });
}

/// Omits columns for which no rank has figures.
TextTable rows_of(const Diagnosis& diagnosis, std::span<const RankFacts> ranks) {
  TextTable rows{{"node", "ranks", "GPUs"}};
  for (const NodeVerdict& node : diagnosis.nodes) {
    rows.push_back({node.host, rank_list(node.ranks), std::to_string(gpus_of(node, ranks))});
  }
  for (const FigureCheck& check : kFigureChecks) {
    if (std::ranges::all_of(ranks, [&](const auto& rank) { return rank.*check.value < 0; })) {
      continue;
    }
    rows[0].emplace_back(check.name);
    for (size_t i = 0; i < diagnosis.nodes.size(); ++i) {
      const double value = lowest(diagnosis.nodes[i], ranks, check.value);
      rows[i + 1].push_back(value < 0 ? "-" : figure_text(value, check.unit));
    }
  }
  rows[0].emplace_back("verdict");
  for (size_t i = 0; i < diagnosis.nodes.size(); ++i) {
    rows[i + 1].emplace_back(diagnosis.nodes[i].is_healthy ? "healthy" : "SICK");
  }
  return rows;
}

void add_reductions(const RankFacts& first, size_t ranks, Report& report) {
  if (first.host_reduce_bytes < 0) return;
  const std::string between_gpus =
      first.job_reduce_bytes < 0
          ? ""
          : fmt::format(", {} between GPUs", figure_text(first.job_reduce_bytes, kGigaBytes));
  report.line("all-reduce of {} ranks: {} and {:.0f} us over MPI{}", ranks,
              figure_text(first.host_reduce_bytes, kGigaBytes), 1e6 * first.host_reduce_latency_s,
              between_gpus);
}

std::string next_text(const Diagnosis& diagnosis, size_t ranks) {
  const size_t nodes = diagnosis.nodes.size();
  if (diagnosis.is_healthy()) {
    return fmt::format("{} of {} healthy{}; start the job with the same launcher", nodes,
                       counted_text(std::ssize(diagnosis.nodes), "node"),
                       ranks == 1 ? " (one rank: there are no other rates to compare with)" : "");
  }
  std::vector<NodeVerdict> sick = diagnosis.nodes;
  std::erase_if(sick, [](const NodeVerdict& node) { return node.is_healthy; });
  const std::string hosts = joined(sick, ",", &NodeVerdict::host);
  return fmt::format("not started: repair {}{}, then run this again", hosts,
                     nodes == 1 ? ""
                                : fmt::format(" or leave it out (sbatch --exclude={}, or another "
                                              "list of hosts)",
                                              hosts));
}

}  // namespace

Report report_of(const Diagnosis& diagnosis, std::span<const RankFacts> ranks) {
  Report report;
  report.put("healthy", diagnosis.is_healthy());
  for (const char* list : {"nodes", "troubles", "ranks"}) report.put(list, ReportJson::array());
  for (const NodeVerdict& node : diagnosis.nodes) {
    report.put("nodes/-",
               {{"host", node.host}, {"ranks", node.ranks}, {"healthy", node.is_healthy}});
  }
  for (const RankFacts& facts : ranks) {
    report.put("ranks/-", ReportJson(parse_json(to_json_text(facts))));
  }
  report.table(aligned_text(rows_of(diagnosis, ranks), CellAlignment::kRight));
  add_reductions(ranks.front(), ranks.size(), report);
  for (size_t i = 0; i < diagnosis.troubles.size(); ++i) {
    const Trouble& trouble = diagnosis.troubles[i];
    const auto part = [i](const char* name, const auto& value) {
      return figure(fmt::format("troubles/{}/{}", i, name), value);
    };
    report.line("{}{}: {}", trouble.refuses ? "" : "note: ", part("host", trouble.host),
                part("sentence", trouble.sentence));
    report.put(fmt::format("troubles/{}/refuses", i), trouble.refuses);
  }
  report.line("{}", next_text(diagnosis, ranks.size()));
  return report;
}

}  // namespace bertha
