#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/gemm_shape.h"
#include "kernels/ops_fwd.h"

struct CUstream_st;  // what a cudaStream_t points to

namespace bertha {

/// The kernels of a device. Auto: those of sm_90a on a GPU of compute capability 9.0 (H100, H200),
/// where the program has code for it; portable ones on all others from 8.0 on. Portable: these
/// everywhere, with the shared memory of the smallest GPU that they serve.
enum class CudaKernels { kAuto, kPortable };

/// Choices between kernels that compute the same, but for fp8_fast_wgrad; all other defaults are
/// the measured best.
struct CudaOptions {
  /// Gradient of the word table: atomic adds of pairs, or f32 sums over positions sorted by id.
  enum class EmbeddingGradient { kAtomic, kSorted };
  EmbeddingGradient embedding_gradient = EmbeddingGradient::kSorted;
  /// Attention kernels. Grouped: a launch per length bucket, on side streams. Persistent: one
  /// launch over sequences and heads. Split: the same over parts of sequences. attention/choice.h
  /// has where these apply, and what auto means.
  enum class AttentionVariant { kAuto, kGrouped, kPersistent, kSplit };
  AttentionVariant attention = AttentionVariant::kAuto;
  /// Forward GEMMs with a GELU, and data gradients with its derivative: cuBLASLt's epilogues (with
  /// fp8 passes behind its GEMMs), or own kernels. gemm/gelu_choice.h has where own kernels apply,
  /// and what auto means.
  enum class GeluGemms { kAuto, kLibrary, kOwn };
  GeluGemms gelu_gemms = GeluGemms::kAuto;
  /// File of tuned GEMM algorithms, as tune_gemms writes it; "" = the library's heuristics. A file
  /// of another GPU model or library version, or a truncated one, is ignored with a warning.
  std::string gemm_plans_path = {};
  /// Times the algorithms of every GEMM without a tuned one, where it first occurs, and
  /// saves the choice to gemm_plans_path. Blocks for about three seconds and takes memory each
  /// time: run one step of the largest batch before anything is timed or captured.
  bool tune_gemms = false;
  /// SMs that GEMMs plan for while communication occupies the others; 0 = all.
  int gemm_sm_count = 0;
  /// Weight gradients of fp8 are summed in tensor cores alone, which keep 14 bits below the largest
  /// product; otherwise their sums pass into f32 ones every few products.
  bool fp8_fast_wgrad = false;
};

/// GPUs that this process sees; 0 where there is no driver.
/// Error(kEnvironment) when the driver is too old for this program.
int count_cuda_devices();

/// Where GPU `ordinal` sits, as /sys/bus/pci/devices names it: "0000:1b:00.0".
std::string cuda_bus_id(int ordinal);

/// GPU `ordinal` of those visible; its description ends with "sm_90a kernels" or "portable
/// kernels". Error(kEnvironment) with a sentence when it cannot be used.
std::unique_ptr<Device> make_cuda_device(int ordinal, CudaKernels kernels = CudaKernels::kAuto);

/// Whether `device` runs the kernels of sm_90a, without which there is no fp8.
bool runs_sm90a_kernels(Device& device);

/// `options` as they hold on `device`: with portable kernels auto is grouped attention and the
/// library's GEMMs with a GELU.
/// Error(kUsage) with a sentence where `options` name kernels that the device does not run.
CudaOptions options_on(Device& device, const CudaOptions& options);

/// A stream that the caller made (a cudaStream_t), for operations in order with the caller's own
/// work. It must outlive the Stream, which does not destroy it.
std::unique_ptr<Stream> borrow_cuda_stream(CUstream_st* stream);

/// Operations enqueued on `stream` of `device`; both must outlive them. Errors as options_on.
///
/// Random    dropout decisions equal those of the CPU backend bit for bit.
/// Exact     repeatable bit for bit, except EmbeddingGradient::kAtomic, and except that tune_gemms
///           may choose differently each time: repeat a run with the file that the first one wrote.
std::unique_ptr<Ops> make_cuda_ops(Device& device, Stream& stream, const CudaOptions& options);

/// The kernels that attention will take where `options` hold (those of options_on), for logs and
/// before any work:
/// "grouped", "persistent", "split", or "persistent forward, grouped backward". Under auto
/// persistent includes split, for batches of few tokens, and grouped kernels have their reason:
/// "grouped (slower: a head size of 32, want 64)", "grouped without tensor cores (many times
/// slower: a head size of 96, want 64)".
/// Error(kUsage) with a sentence where options.attention names kernels that cannot serve it.
std::string attention_kernels(const CudaOptions& options, const AttentionCall& call);

/// Whether the same launches serve batches of the same sizes, whatever the lengths of their
/// sequences, so that a graph of them can be launched again. Errors as attention_kernels.
bool launches_ignore_lengths(const CudaOptions& options, const AttentionCall& call);

/// The kernels that feed-forward blocks will take on `device` where `options` hold, for logs and
/// before any work: "library", "own", "own from 1921 tokens", or "library forward, own backward".
/// Under auto the library has its reason: "library (slower: sums over 312 indices, want ...)".
/// Error(kUsage) with a sentence where options.gelu_gemms names kernels that cannot serve.
std::string gelu_gemms(Device& device, const CudaOptions& options, const FeedForward& model);

/// Times the library's algorithms for each shape on random data, checks what each computes, and
/// writes the fastest to the file `path` (what else the file has of this GPU model and library
/// version stays). `progress` is called after each shape.
///
/// Blocks    about three seconds per shape; nothing else should use the device.
/// Errors    Error(kMemory); Error(kEnvironment) when the file cannot be written.
void tune_gemms(Device& device, Stream& stream, std::span<const GemmShape> shapes,
                const std::string& path,
                const std::function<void(const GemmShape&, const GemmTuning&)>& progress);

}  // namespace bertha
