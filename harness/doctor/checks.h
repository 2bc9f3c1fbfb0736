#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "harness/doctor/rank_facts.h"
#include "kernels/base/figures.h"

namespace bertha {

// Every bound of `bertha doctor`, and its reason.

/// Unit of a printed figure: the figure is divided by `size` and followed by `name`.
struct FigureUnit {
  double size = 1;
  const char* name = "";
};
inline constexpr FigureUnit kTeraFlops{1e12, "TFLOP/s"};
inline constexpr FigureUnit kGigaFlops{1e9, "GFLOP/s"};
inline constexpr FigureUnit kGigaBytes{1e9, "GB/s"};
inline constexpr FigureUnit kMegaBytes{1e6, "MB/s"};
inline constexpr FigureUnit kGibiBytes{0x1p30, "GiB"};
inline constexpr FigureUnit kMebiBytes{0x1p20, "MiB"};
inline constexpr FigureUnit kPercent{0.01, "%"};

/// A figure with a lower bound; the checks are in the order of the table's columns.
struct FigureCheck {
  const char* name;
  double RankFacts::*value;
  FigureUnit unit;
  double least_share;  // of the median over ranks; 0 = not compared
  double least;        // absolute bound; 0 = none
  const char* advice;
};

/// - Step times on H200s of different machines were within 4 % of each other: a GPU below 90 % of
///   the median has a fault, and every step waits for it.
/// - Rates of processors depend on other programs: only about half the rate of the other ranks is a
///   fault. The same applies to links that jobs share.
/// - Free space: a checkpoint of BERT-large has 4 GB, and a new one is complete before an old one
///   is removed; MPI puts 4 MiB per rank and more into /dev/shm.
/// - A context, NCCL and a rank's buffers use 1 to 4 GiB of a GPU before anything is measured;
///   another program uses more.
/// - A rank opens a few connections to each other rank and to shards.
inline constexpr std::array kFigureChecks{
    FigureCheck{"GPU GEMM", &RankFacts::gpu_gemm_flops, kTeraFlops, 0.9, 0,
                "look at power, cooling and clocks (nvidia-smi -q -d PERFORMANCE,POWER)"},
    FigureCheck{"GPU copy", &RankFacts::gpu_copy_bytes, kGigaBytes, 0.9, 0,
                "look at memory clocks and errors (nvidia-smi -q -d CLOCK,ECC)"},
    FigureCheck{"host to GPU", &RankFacts::host_to_gpu_bytes, kGigaBytes, 0.7, 0,
                "look at the PCIe link and at the NUMA node of the rank (nvidia-smi topo -m)"},
    FigureCheck{"GPU free", &RankFacts::gpu_free_share, kPercent, 0, 0.9,
                "end other programs on this GPU (nvidia-smi)"},
    FigureCheck{"CPU GEMM", &RankFacts::cpu_gemm_flops, kGigaFlops, 0.7, 0,
                "look for other programs (top), frequency limits and shared cores"},
    FigureCheck{"host copy", &RankFacts::host_copy_bytes, kGigaBytes, 0.6, 0,
                "look for other programs (top) and for a missing memory module (dmidecode)"},
    FigureCheck{"node reduce", &RankFacts::node_reduce_bytes, kGigaBytes, 0.7, 0,
                "look at the links between its GPUs (nvidia-smi nvlink -s, nvidia-smi topo -m)"},
    FigureCheck{"network", &RankFacts::neighbor_bytes, kGigaBytes, 0.6, 0,
                "look at its network adapter (ibstat, ethtool) and at UCX_NET_DEVICES"},
    FigureCheck{"/dev/shm", &RankFacts::shm_free_bytes, kMebiBytes, 0, 0x1p26,
                "remove files that ended programs left there, or enlarge it; in a container "
                "--shm-size=2g"},
    FigureCheck{"open files", &RankFacts::open_files, {}, 0, 1024, "raise it with ulimit -n 4096"},
    FigureCheck{"output free", &RankFacts::output_free_bytes, kGibiBytes, 0, 0x1p33,
                "free some space or give another --output-dir"},
    FigureCheck{"output write", &RankFacts::output_write_bytes, kMegaBytes, 0, 20e6,
                "give a faster --output-dir: a checkpoint of BERT-large has 4 GB"},
};

/// Least share of the data sheet's dense peak. An H200 reaches 80 % of it with cuBLASLt; other
/// models, with less power, reach less.
inline constexpr double kMinShareOfPeak = 0.6;

/// Reasons for low clocks. A power limit (bit 2) is normal under GEMMs.
struct ThrottleReason {
  uint64_t bit;
  const char* name;
  bool refuses;  // false: only reported; the measured rate decides
};
inline constexpr std::array kThrottleReasons{
    ThrottleReason{0x08, "hardware slowdown", true},
    ThrottleReason{0x20, "software thermal slowdown", false},
    ThrottleReason{0x40, "hardware thermal slowdown", true},
    ThrottleReason{0x80, "hardware power brake", true},
};

/// Three digits and the unit: "7.25 GB/s", "46.1 GiB", "648 TFLOP/s", "1048576".
inline std::string figure_text(double value, const FigureUnit& unit) {
  const double scaled = value / unit.size;
  const std::string number = fixed_text(scaled, scaled < 10 ? 2 : scaled < 100 ? 1 : 0);
  return *unit.name == '\0' ? number : number + " " + unit.name;
}

}  // namespace bertha
