#include "harness/doctor/diagnosis_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "data/files/json_file.h"
#include "harness/comm/rank_name.h"
#include "harness/doctor/checks.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// The lowest of a node; -1 = not measured.
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

/// Only columns that some rank has figures for.
std::vector<FigureCheck> columns_of(std::span<const RankFacts> ranks) {
  std::vector<FigureCheck> columns;
  std::ranges::copy_if(kFigureChecks, std::back_inserter(columns), [&](const FigureCheck& check) {
    return std::ranges::any_of(ranks,
                               [&](const RankFacts& rank) { return rank.*check.value >= 0; });
  });
  return columns;
}

TextTable rows_of(const Diagnosis& diagnosis, std::span<const RankFacts> ranks) {
  const std::vector<FigureCheck> columns = columns_of(ranks);
  TextTable rows{{"node", "ranks", "GPUs"}};
  for (const FigureCheck& column : columns) rows[0].emplace_back(column.name);
  rows[0].emplace_back("verdict");
  for (const NodeVerdict& node : diagnosis.nodes) {
    std::vector<std::string>& row = rows.emplace_back(std::vector<std::string>{
        node.host, rank_list(node.ranks), std::to_string(gpus_of(node, ranks))});
    for (const FigureCheck& column : columns) {
      const double value = lowest(node, ranks, column.value);
      row.push_back(value < 0 ? "-" : figure_text(value, column.unit));
    }
    row.emplace_back(node.is_healthy ? "healthy" : "SICK");
  }
  return rows;
}

std::string job_text(std::span<const RankFacts> ranks) {
  const RankFacts& first = ranks.front();
  if (first.host_reduce_bytes < 0) return "";
  std::string text = concat("all-reduce of ", ranks.size(),
                            " ranks: ", figure_text(first.host_reduce_bytes, kGigaBytes), " and ",
                            fixed_text(1e6 * first.host_reduce_latency_s, 0), " us over MPI");
  if (first.job_reduce_bytes >= 0) {
    text += concat(", ", figure_text(first.job_reduce_bytes, kGigaBytes), " between GPUs");
  }
  return text + "\n";
}

std::string next_text(const Diagnosis& diagnosis, size_t ranks) {
  if (diagnosis.is_healthy()) {
    return concat(diagnosis.nodes.size(), " of ", counted_text(std::ssize(diagnosis.nodes), "node"),
                  " healthy",
                  ranks == 1 ? " (one rank: its rates have nothing to be compared with)" : "",
                  "; start the job with the same launcher\n");
  }
  std::string sick;
  for (const NodeVerdict& node : diagnosis.nodes) {
    if (!node.is_healthy) sick += (sick.empty() ? "" : ",") + node.host;
  }
  if (diagnosis.nodes.size() == 1) {
    return concat("not started: repair ", sick, ", then run this again\n");
  }
  return concat("not started: repair ", sick, " or leave it out (sbatch --exclude=", sick,
                ", or another list of hosts), then run this again\n");
}

}  // namespace

std::string diagnosis_text(const Diagnosis& diagnosis, std::span<const RankFacts> ranks) {
  std::string text =
      aligned_text(rows_of(diagnosis, ranks), CellAlignment::kRight) + job_text(ranks);
  for (const Trouble& trouble : diagnosis.troubles) {
    text += concat(trouble.refuses ? "" : "note: ", trouble.host, ": ", trouble.sentence, "\n");
  }
  return text + next_text(diagnosis, ranks.size());
}

ReportJson diagnosis_json(const Diagnosis& diagnosis, std::span<const RankFacts> ranks) {
  using Json = ReportJson;
  Json json{{"healthy", diagnosis.is_healthy()},
            {"nodes", Json::array()},
            {"troubles", Json::array()},
            {"ranks", Json::array()}};
  for (const NodeVerdict& node : diagnosis.nodes) {
    json["nodes"].push_back(
        {{"host", node.host}, {"ranks", node.ranks}, {"healthy", node.is_healthy}});
  }
  for (const Trouble& trouble : diagnosis.troubles) {
    json["troubles"].push_back(
        {{"host", trouble.host}, {"sentence", trouble.sentence}, {"refuses", trouble.refuses}});
  }
  for (const RankFacts& facts : ranks) {
    json["ranks"].push_back(Json(parse_json(to_json_text(facts))));
  }
  return json;
}

}  // namespace bertha
