#pragma once

#include <array>
#include <cstdint>

namespace bertha {

/// How many sequences the benchmark's reference needed to reach 0.720 at one batch size.
struct MeasuredPoint {
  int64_t batch_seqs;
  int64_t runs;
  double mean_samples;  // without the fastest and the slowest run
  double std_samples;   // of all runs, divided by their number
};

/// The reference convergence points of BERT that count, in order of batch size. Points that are
/// slower than the line between their neighbours, and those below the fastest, are left out as the
/// package checker leaves them out (256, 1536, 3072, 4096, 8192, 8704).
///
/// Source    computed from the samples of each run in github.com/mlcommons/logging,
///           rcp_checker/training_{4,5}.0.0/rcps_bert.json, which agree.
inline constexpr std::array<MeasuredPoint, 7> kReferencePoints = {{
    {448, 23, 2414421.3333333335, 197392.47653603306},
    {4608, 20, 2798080.0, 130963.70526218323},
    {6144, 20, 3319125.3333333335, 146691.13630155026},
    {6912, 20, 3601920.0, 121792.77701013308},
    {12288, 20, 4465066.666666667, 88564.04543605717},
    {13056, 20, 4645333.333333333, 179017.32403317842},
    {16384, 20, 5505422.222222222, 144642.70949674584},
}};

}  // namespace bertha
