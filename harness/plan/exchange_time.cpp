#include "harness/plan/exchange_time.h"

#include <algorithm>
#include <cmath>

#include "harness/plan/compute_time.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"
#include "kernels/base/parse_number.h"

namespace bertha {
namespace {

// GPUs of one node, 8 H200s or fewer: NCCL's reduce-scatters and all-gathers of 32 to 704 MiB take
// the latency and 262 (2 GPUs) to 340 GB/s (8), a copy runs at 300.
constexpr double kNodeBytesPerSecond = 300e9;
constexpr double kNodeLatencyMs = 0.03;

// NCCL's own tuning model, protocol LL128: 14 us for a start, 4.0 for a hop of a ring (a network's
// latency, which can be given), 8.5 for one of a tree, which in messages of some 10 MB has 0.6 of
// the bandwidth.
constexpr double kNetworkStartMs = 0.014;
constexpr double kTreeHops = 2;
constexpr double kTreeBandwidth = 0.6;

// Steps of 2 and 4 GPUs with NCCL took so much longer than with copies (kernels/measured/step.md):
// its kernels hold SMs.
constexpr double kNcclSlowdownMs = 1.75;
constexpr double kBytesOfThatStep = 672e6;

double hops_of_tree(int64_t nodes) { return std::ceil(std::log2(static_cast<double>(nodes))); }

/// What a bucket takes on each of the two levels.
struct LevelTimes {
  double in_node_ms = 0;
  double network_ms = 0;
};

/// Of the sum of a bucket or of its gathering. Shards on other nodes are summed by a reduce-scatter
/// and come back by a gather, each half of the all-reduce that shards within a node take.
LevelTimes times_of(const ExchangeRequest& request, const Bucket& bucket, bool is_sum) {
  const Cluster& cluster = request.cluster;
  const auto gpus = static_cast<double>(cluster.gpus_of_node());
  const auto bytes = static_cast<double>(bucket.elements * request.bytes_per_element);
  const bool are_apart = cluster.shards() > cluster.gpus_of_node();
  const double share = are_apart ? 0.5 : is_sum ? 1 : 0;
  return {.in_node_ms = in_node_ms(cluster, bytes),
          .network_ms = share * between_nodes_ms(cluster, bytes / gpus)};
}

/// The part of the flat buffer that backward finishes last of all: it holds the word table.
double late_elements(const ExchangeRequest& request) {
  return static_cast<double>(request.table->part_begins[1]);
}

void add_sums(const ExchangeRequest& request, ExchangeTime& time) {
  const std::vector<Bucket>& buckets = request.shards->buckets;
  const double late = late_elements(request);
  const double others = static_cast<double>(request.shards->flat_elements) - late;
  double in_node = 0;  // since the start of backward: the end of what was done so far
  double between = 0;
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    const double left = std::max(0.0, static_cast<double>(bucket->begin) - late) / others;
    const double done = request.sums_wait_for_backward ? 1 : 1 - left;
    const LevelTimes sum = times_of(request, *bucket, true);
    in_node = std::max(in_node, request.backward_ms * done) + sum.in_node_ms;
    between = std::max(between, in_node) + sum.network_ms;
    time.sums_ms += sum.in_node_ms + sum.network_ms;
  }
  const double exposed = std::max(0.0, between - request.backward_ms);
  time.hidden_sums_ms = std::max(0.0, time.sums_ms - exposed);
}

void add_gathers(const ExchangeRequest& request, ExchangeTime& time) {
  const double late = late_elements(request);
  const auto all = static_cast<double>(request.shards->flat_elements);
  double applied = 0;  // since the start of the first LambApply
  double gathered = 0;
  double forward = request.apply_ms;
  for (const Bucket& bucket : request.shards->buckets) {
    const auto elements = static_cast<double>(bucket.elements);
    const LevelTimes gather = times_of(request, bucket, false);
    const double ms = gather.in_node_ms + gather.network_ms;
    applied += request.apply_ms * elements / all;
    gathered = std::max(gathered, applied) + ms;
    time.gathers_ms += ms;
    forward = std::max(forward, gathered);
    if (static_cast<double>(bucket.begin) < late) continue;  // the word table is only looked up
    forward += request.forward_ms * elements / (all - late);
  }
  const double exposed = std::max(0.0, forward - request.apply_ms - request.forward_ms);
  time.hidden_gathers_ms = std::max(0.0, time.gathers_ms - exposed);
}

/// Part of the memory traffic and the SM time of an exchange that overlaps compute.
double slowdown_ms(const ExchangeRequest& request, const ExchangeTime& time) {
  const Cluster& cluster = request.cluster;
  const auto gpus = static_cast<double>(cluster.gpus_of_node());
  const auto bytes = static_cast<double>(request.shards->flat_elements * request.bytes_per_element);
  // Both ways a GPU reads what it sends and writes what arrives; the sum reads all and writes its
  // part.
  const double moved = bytes * (4 * (gpus - 1) / gpus + 1 + 1 / gpus);
  const double by_nccl = (cluster.copies ? 0 : bytes) + (cluster.nodes() > 1 ? bytes / gpus : 0);
  const double all =
      1e3 * moved / kMemoryBytesPerSecond + kNcclSlowdownMs * by_nccl / kBytesOfThatStep;
  const double hidden = time.hidden_sums_ms + time.hidden_gathers_ms;
  return all * hidden / (time.sums_ms + time.gathers_ms);
}

}  // namespace

const std::vector<Network>& known_networks() {
  // 92 % of the line rate, as good networks reach; no figure of Bertha's own stands behind them.
  static const std::vector<Network> networks{
      {.name = "ib-ndr400x8", .bytes_per_second = 46e9, .latency_us = 4},   // a 400 Gb/s port each
      {.name = "ib-hdr200x8", .bytes_per_second = 23e9, .latency_us = 4},   // a 200 Gb/s port each
      {.name = "ib-ndr400x1", .bytes_per_second = 5.8e9, .latency_us = 4},  // one port for 8 GPUs
      {.name = "eth-100x1", .bytes_per_second = 1.4e9, .latency_us = 25},   // TCP, one for 8 GPUs
  };
  return networks;
}

Network parse_network(const std::string& text) {
  const std::vector<Network>& known = known_networks();
  const auto named = std::ranges::find(known, text, &Network::name);
  if (named != known.end()) return *named;
  const size_t colon = std::min(text.find(':'), text.size());
  const auto rate = parse_number<double>(text.substr(0, colon));
  const auto latency = colon < text.size() ? parse_number<double>(text.substr(colon + 1)) : 4;
  if (!rate || !(*rate > 0 && *rate <= 1e6) || !latency || !(*latency >= 0 && *latency <= 1e6)) {
    fail(ExitCode::kUsage, "--network: found \"", text, "\", want ",
         joined(known, ", ", &Network::name),
         ", or GB/s per GPU and the latency of a hop in us, such as 46:4");
  }
  return {.name = text, .bytes_per_second = 1e9 * *rate, .latency_us = *latency};
}

double in_node_ms(const Cluster& cluster, double bytes) {
  const auto gpus = static_cast<double>(cluster.gpus_of_node());
  if (gpus == 1) return 0;
  return kNodeLatencyMs + 1e3 * bytes * (gpus - 1) / gpus / kNodeBytesPerSecond;
}

double between_nodes_ms(const Cluster& cluster, double bytes) {
  const int64_t nodes = cluster.nodes();
  if (nodes == 1) return 0;
  const auto hops = static_cast<double>(nodes - 1);
  const double hop_ms = 1e-3 * cluster.network.latency_us;
  const double transfer_ms =  // there and back
      2e3 * bytes * hops / static_cast<double>(nodes) / cluster.network.bytes_per_second;
  const double ring = 2 * hops * hop_ms + transfer_ms;
  const double tree = 2 * hops_of_tree(nodes) * kTreeHops * hop_ms + transfer_ms / kTreeBandwidth;
  return kNetworkStartMs + std::min(ring, tree);
}

double small_sum_ms(const Cluster& cluster) {
  return in_node_ms(cluster, 0) + between_nodes_ms(cluster, 0);
}

ExchangeTime exchange_time(const ExchangeRequest& request) {
  ExchangeTime time;
  if (request.cluster.ranks == 1) return time;
  add_sums(request, time);
  add_gathers(request, time);
  time.slowdown_ms = slowdown_ms(request, time);
  return time;
}

}  // namespace bertha
