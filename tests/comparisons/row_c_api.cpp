#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "kernels/base/device.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/rows/cuda/cuda_row_ops.h"
#include "kernels/rows/ops/batch_norm_relu.h"
#include "kernels/rows/ops/layer_norm.h"
#include "kernels/rows/ops/prelu.h"
#include "kernels/rows/ops/softmax.h"

// The kernels of bertha_bench_rows for a program that has its own memory and its own stream, in
// C: row_peers.py calls them through ctypes on PyTorch's tensors. io is f16 throughout; pointers
// are of device memory; letters, shapes and what may be null are those of kernels/ops/*.h.
//
// Errors    no exception leaves: every operation returns null, or a sentence that the handle keeps
//           until its next call.
// Streams   operations are enqueued and not waited for.

/// What a caller holds: the backend, bound to its stream.
struct BerthaRows {
  std::unique_ptr<bertha::Device> device;
  std::unique_ptr<bertha::Stream> stream;
  std::unique_ptr<bertha::RowOps> ops;
  std::string error;
};

namespace {

using bertha::DType;
using bertha::View;

/// Does `work`: null, or what went wrong.
template <class Work>
const char* sentence_of(BerthaRows& handle, const Work& work) {
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    handle.error = error.what();
  } catch (...) {
    handle.error = "an exception without words";
  }
  return handle.error.c_str();
}

View io(void* data, int64_t rows, int64_t columns) {
  return View(data, DType::kF16, {rows, columns});
}
View io(void* data, int64_t elements) { return View(data, DType::kF16, {elements}); }
View f32(void* data, int64_t elements) { return View(data, DType::kF32, {elements}); }

/// N, C and S of kernels/rows/ops/prelu.h.
struct Images {
  int64_t outer;
  int64_t channels;
  int64_t neighbors;

  View io(void* data) const { return View(data, DType::kF16, {outer, channels, neighbors}); }
  View bits(void* data) const {
    return View(data, DType::kU8, {(outer * channels * neighbors + 7) / 8});
  }
};

bertha::SoftmaxKind kind(int64_t is_log) {
  return is_log != 0 ? bertha::SoftmaxKind::kLogSoftmax : bertha::SoftmaxKind::kSoftmax;
}

}  // namespace

extern "C" {

/// A handle to GPU `gpu` whose operations are enqueued on the caller's cudaStream_t `stream`, which
/// must outlive it. Never null: what went wrong is in bertha_rows_error().
BerthaRows* bertha_rows_open(int64_t gpu, void* stream) {
  auto handle = std::make_unique<BerthaRows>();
  sentence_of(*handle, [&] {
    handle->device = bertha::make_cuda_device(static_cast<int>(gpu));
    handle->stream = bertha::borrow_cuda_stream(static_cast<CUstream_st*>(stream));
    handle->ops = bertha::make_cuda_row_ops(*handle->device, *handle->stream);
  });
  return handle.release();
}

/// The last sentence, "" where nothing went wrong yet.
const char* bertha_rows_error(const BerthaRows* handle) { return handle->error.c_str(); }

void bertha_rows_close(BerthaRows* handle) { delete handle; }

/// x, y: f16 [R, C].
const char* bertha_rows_softmax_fwd(BerthaRows* handle, void* x, void* y, int64_t rows,
                                    int64_t columns, int64_t is_log) {
  return sentence_of(*handle, [&] {
    handle->ops->run(bertha::SoftmaxFwd{.x = io(x, rows, columns),
                                        .bias = View(),
                                        .mask = View(),
                                        .y = io(y, rows, columns),
                                        .dropped = View(),
                                        .kept_mask = View(),
                                        .kind = kind(is_log)});
  });
}

/// dy, y, dx: f16 [R, C].
const char* bertha_rows_softmax_bwd(BerthaRows* handle, void* dy, void* y, void* dx, int64_t rows,
                                    int64_t columns, int64_t is_log) {
  return sentence_of(*handle, [&] {
    handle->ops->run(bertha::SoftmaxBwd{.dy = io(dy, rows, columns),
                                        .y = io(y, rows, columns),
                                        .kept_mask = View(),
                                        .dx = io(dx, rows, columns),
                                        .kind = kind(is_log)});
  });
}

/// x, y: f16 [R, C]; gamma, beta: f16 [C]; mean, rstd: f32 [R].
const char* bertha_rows_layer_norm_fwd(BerthaRows* handle, void* x, void* gamma, void* beta,
                                       void* y, void* mean, void* rstd, int64_t rows,
                                       int64_t columns, float epsilon) {
  return sentence_of(*handle, [&] {
    handle->ops->run(bertha::LayerNormFwd{.x = io(x, rows, columns),
                                          .gamma = io(gamma, columns),
                                          .beta = io(beta, columns),
                                          .y = io(y, rows, columns),
                                          .mean = f32(mean, rows),
                                          .rstd = f32(rstd, rows),
                                          .epsilon = epsilon});
  });
}

/// dy, x, dx: f16 [R, C]; gamma, dgamma, dbeta: f16 [C]; mean, rstd: f32 [R]. Overwrites.
const char* bertha_rows_layer_norm_bwd(BerthaRows* handle, void* dy, void* x, void* mean,
                                       void* rstd, void* gamma, void* dx, void* dgamma, void* dbeta,
                                       int64_t rows, int64_t columns) {
  return sentence_of(*handle, [&] {
    handle->ops->run(bertha::LayerNormBwd{.dy = io(dy, rows, columns),
                                          .x = io(x, rows, columns),
                                          .mean = f32(mean, rows),
                                          .rstd = f32(rstd, rows),
                                          .gamma = io(gamma, columns),
                                          .dx = io(dx, rows, columns),
                                          .dgamma = io(dgamma, columns),
                                          .dbeta = io(dbeta, columns)});
  });
}

/// x, y: f16 [N, C, S]; slope: f16 [C].
const char* bertha_rows_prelu_fwd(BerthaRows* handle, void* x, void* slope, void* y, int64_t outer,
                                  int64_t channels, int64_t neighbors) {
  const Images images{.outer = outer, .channels = channels, .neighbors = neighbors};
  return sentence_of(*handle, [&] {
    handle->ops->run(
        bertha::PreluFwd{.x = images.io(x), .slope = io(slope, channels), .y = images.io(y)});
  });
}

/// dy, x, dx: f16 [N, C, S]; slope, dslope: f16 [C]. Overwrites.
const char* bertha_rows_prelu_bwd(BerthaRows* handle, void* dy, void* x, void* slope, void* dx,
                                  void* dslope, int64_t outer, int64_t channels,
                                  int64_t neighbors) {
  const Images images{.outer = outer, .channels = channels, .neighbors = neighbors};
  return sentence_of(*handle, [&] {
    handle->ops->run(bertha::PreluBwd{.dy = images.io(dy),
                                      .x = images.io(x),
                                      .slope = io(slope, channels),
                                      .dx = images.io(dx),
                                      .dslope = io(dslope, channels)});
  });
}

/// x, y, addend (or null): f16 [N, C, S]; gamma, beta, mean, rstd, and running_mean and
/// running_var, which move: f32 [C]; mask: u8 [ceil(N C S / 8)].
const char* bertha_rows_batch_norm_relu_fwd(BerthaRows* handle, void* x, void* addend, void* gamma,
                                            void* beta, void* running_mean, void* running_var,
                                            void* y, void* mask, void* mean, void* rstd,
                                            int64_t outer, int64_t channels, int64_t neighbors,
                                            float epsilon) {
  const Images images{.outer = outer, .channels = channels, .neighbors = neighbors};
  return sentence_of(*handle, [&] {
    handle->ops->run(
        bertha::BatchNormReluFwd{.x = images.io(x),
                                 .addend = addend != nullptr ? images.io(addend) : View(),
                                 .gamma = f32(gamma, channels),
                                 .beta = f32(beta, channels),
                                 .running_mean = f32(running_mean, channels),
                                 .running_var = f32(running_var, channels),
                                 .y = images.io(y),
                                 .mask = images.bits(mask),
                                 .mean = f32(mean, channels),
                                 .rstd = f32(rstd, channels),
                                 .epsilon = epsilon});
  });
}

/// dy, x, dx, daddend (or null): f16 [N, C, S]; mask: u8 [ceil(N C S / 8)]; mean, rstd, gamma,
/// dgamma, dbeta: f32 [C]. Overwrites.
const char* bertha_rows_batch_norm_relu_bwd(BerthaRows* handle, void* dy, void* x, void* mask,
                                            void* mean, void* rstd, void* gamma, void* dx,
                                            void* daddend, void* dgamma, void* dbeta, int64_t outer,
                                            int64_t channels, int64_t neighbors) {
  const Images images{.outer = outer, .channels = channels, .neighbors = neighbors};
  return sentence_of(*handle, [&] {
    handle->ops->run(
        bertha::BatchNormReluBwd{.dy = images.io(dy),
                                 .x = images.io(x),
                                 .mask = images.bits(mask),
                                 .mean = f32(mean, channels),
                                 .rstd = f32(rstd, channels),
                                 .gamma = f32(gamma, channels),
                                 .dx = images.io(dx),
                                 .daddend = daddend != nullptr ? images.io(daddend) : View(),
                                 .dgamma = f32(dgamma, channels),
                                 .dbeta = f32(dbeta, channels)});
  });
}

}  // extern "C"
