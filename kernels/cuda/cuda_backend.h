#pragma once

#include <memory>
#include <string>

#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/cuda/cuda_options.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/linear.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// `options` resolved for `device`: with portable kernels auto is grouped attention and the
/// library's GEMMs with a GELU.
/// Error(kUsage) if `options` select kernels that the device does not run.
CudaOptions options_on(Device& device, const CudaOptions& options);

/// Operations enqueued on `stream` of `device`; both must outlive them. Errors as options_on.
///
/// Random    dropout decisions are bit for bit the same as on the CPU backend.
/// Exact     repeatable bit for bit, except EmbeddingGradient::kAtomic, and except that tune_gemms
///           may choose differently each time: repeat a run with the file that the first one wrote.
std::unique_ptr<Ops> make_cuda_ops(Device& device, Stream& stream, const CudaOptions& options);

/// The kernels that attention will use with `options` (as for options_on), for logs and before any
/// work: "grouped", "persistent", "split", or "persistent forward, grouped backward". Under auto
/// persistent includes split, for batches of few tokens, and grouped kernels have their reason:
/// "grouped (slower: a head size of 96, want at most 64)", "grouped (without tensor cores, many
/// times slower, without graphs: f32, want f16 or bf16)". Copied heads are named: "persistent
/// (slower: heads of 26 are copied to heads of 32)".
/// Error(kUsage) if options.attention selects kernels that do not support it.
std::string attention_kernels(const CudaOptions& options, const AttentionCall& call);

/// Whether batches of the same sizes use the same launches, whatever the lengths of their
/// sequences, so that a graph of them can be launched again. Errors as attention_kernels.
bool launches_ignore_lengths(const CudaOptions& options, const AttentionCall& call);

/// The kernels that feed-forward blocks will use on `device` with `options`, for logs and before
/// any work: "library", "own", "own from 1921 tokens", or "library forward, own backward". Under
/// auto the library has its reason: "library (slower: sums over 312 indices, want ...)".
/// Error(kUsage) if options.gelu_gemms selects kernels that do not support it.
std::string gelu_gemms(Device& device, const CudaOptions& options, const FeedForward& model);

}  // namespace bertha
