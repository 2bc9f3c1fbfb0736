#include "kernels/rows/c/bertha_kernels.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kernels/base/check.h"
#include "kernels/base/cpu/cpu_devices.h"
#include "kernels/base/failure.h"
#include "kernels/base/joined.h"
#include "kernels/rows/cpu/cpu_row_ops.h"
#ifdef BERTHA_ROWS_CUDA
#include "kernels/base/cuda/cuda_devices.h"
#include "kernels/rows/cuda/cuda_row_ops.h"
#endif

// Each function turns its struct into the arguments of the C++ operation, which checks them.
// Nothing is thrown across a function: run() and open() catch everything.

struct BerthaKernels {
  struct OnStream {
    std::unique_ptr<bertha::Stream> stream;
    std::unique_ptr<bertha::RowOps> ops;
  };
  std::mutex mutex;
  std::unique_ptr<bertha::Device> device;
  bool is_cuda = false;
  std::map<void*, OnStream> of_stream;
};

namespace bertha {
namespace {

static_assert(static_cast<int>(DType::kF64) == BERTHA_F64 &&
              static_cast<int>(DType::kF32) == BERTHA_F32 &&
              static_cast<int>(DType::kF16) == BERTHA_F16 &&
              static_cast<int>(DType::kBF16) == BERTHA_BF16 &&
              static_cast<int>(DType::kU64) == BERTHA_U64 &&
              static_cast<int>(DType::kU8) == BERTHA_U8);

/// Makes views of one operation's tensors.
struct ViewMaker {
  ArgumentCheck check;

  View operator()(const char* field, const BerthaTensor& tensor) const {
    if (tensor.data == nullptr && tensor.rank == 0) return {};
    if (tensor.rank < 0 || tensor.rank > View::kMaxRank) {
      check.refuse(field, "has rank ", tensor.rank, ", want 0 to ", View::kMaxRank);
    }
    if (tensor.dtype < BERTHA_F64 || tensor.dtype > BERTHA_U8) {
      check.refuse(field, "has dtype ", tensor.dtype, ", want a BerthaDType");
    }
    const std::span extents(tensor.extents, static_cast<size_t>(tensor.rank));
    for (const int64_t extent : extents) {
      if (extent < 0) check.refuse(field, "has the extent ", extent, ", want 0 or more");
    }
    const View view(tensor.data, static_cast<DType>(tensor.dtype), extents);
    check_countable(field, view);
    check_dense(field, tensor);
    return view;
  }

  // An extent of 0 excuses none of the others: operations also count rows and columns alone.
  void check_countable(const char* field, const View& view) const {
    int64_t bytes = size_bytes(view.dtype);
    for (int axis = 0; axis < view.rank; ++axis) {
      const int64_t factor = std::max<int64_t>(view.extent(axis), 1);
      if (__builtin_mul_overflow(bytes, factor, &bytes)) {
        check.refuse(field, "is ", view.shape_text(),
                     ", more than 2^63 - 1 bytes, want extents of a tensor that fits into memory");
      }
    }
  }

  void check_dense(const char* field, const BerthaTensor& tensor) const {
    bool is_dense = true;
    bool has_strides = false;
    int64_t wanted = 1;
    for (int axis = tensor.rank - 1; axis >= 0; --axis) {
      has_strides = has_strides || tensor.strides[axis] != 0;
      is_dense = is_dense && (tensor.strides[axis] == wanted || tensor.extents[axis] == 1);
      wanted *= tensor.extents[axis];
    }
    if (!has_strides || is_dense || wanted == 0) return;
    const std::span strides(tensor.strides, static_cast<size_t>(tensor.rank));
    check.refuse(field, "has the strides [", joined(strides, ","),
                 "], want dense rows; copy it first");
  }

  Dropout operator()(const BerthaDropout& dropout) const {
    return {.random = (*this)("dropout.random", dropout.random),
            .probability = dropout.probability,
            .site = dropout.site};
  }
};

SoftmaxKind kind_of(int32_t is_log) {
  return is_log != 0 ? SoftmaxKind::kLogSoftmax : SoftmaxKind::kSoftmax;
}
Accumulate accumulate_of(int32_t flag) { return flag != 0 ? Accumulate::kYes : Accumulate::kNo; }
NormStatistics statistics_of(int32_t uses_running) {
  return uses_running != 0 ? NormStatistics::kRunning : NormStatistics::kBatch;
}

/// One per thread: another thread may fail while this one reads.
thread_local std::string last_error;

int32_t record_failure() noexcept {
  try {
    const Failure failure = failure_of(std::current_exception());
    last_error = failure.what;
    return static_cast<int32_t>(failure.code);
  } catch (...) {  // no memory for the sentence
    last_error.clear();
    return BERTHA_MEMORY;
  }
}

RowOps& ops_on(BerthaKernels& kernels, void* stream) {
  if (kernels.device == nullptr) {
    fail(ExitCode::kInternal, "the handle has no device: opening it failed");
  }
  if (!kernels.is_cuda && stream != nullptr) {
    fail(ExitCode::kInternal, "a stream was given to operations of the CPU, want NULL");
  }
  auto& on = kernels.of_stream[stream];
  if (on.ops != nullptr) return *on.ops;
#ifdef BERTHA_ROWS_CUDA
  if (kernels.is_cuda) {
    on.stream = borrow_cuda_stream(static_cast<CUstream_st*>(stream));
    on.ops = make_cuda_row_ops(*kernels.device, *on.stream);
    return *on.ops;
  }
#endif
  on.stream = kernels.device->make_stream();
  on.ops = make_cpu_row_ops(*kernels.device, *on.stream);
  return *on.ops;
}

/// Runs what make_args(view) returns.
template <class CArgs, class MakeArgs>
int32_t run(BerthaKernels* kernels, void* stream, const CArgs* args,
            const MakeArgs& make_args) noexcept {
  using Args = std::invoke_result_t<MakeArgs, ViewMaker>;
  try {
    if (kernels == nullptr) fail(ExitCode::kInternal, Args::kName, ": the handle is NULL");
    const std::lock_guard lock(kernels->mutex);
    if (args == nullptr) fail(ExitCode::kInternal, Args::kName, ": the arguments are NULL");
    ops_on(*kernels, stream).run(make_args(ViewMaker{ArgumentCheck(Args::kName)}));
    return BERTHA_OK;
  } catch (...) {
    return record_failure();
  }
}

int32_t open(BerthaKernels** kernels, const auto& open_device) noexcept {
  try {
    if (kernels == nullptr) fail(ExitCode::kInternal, "the address of the handle is NULL");
    *kernels = nullptr;
    *kernels = new BerthaKernels();
    (*kernels)->device = open_device();
    return BERTHA_OK;
  } catch (...) {
    return record_failure();
  }
}

}  // namespace
}  // namespace bertha

using bertha::ViewMaker;

int32_t bertha_abi_version(void) { return BERTHA_ABI_VERSION; }

int32_t bertha_open_cpu(int32_t threads, BerthaKernels** kernels) {
  return bertha::open(kernels, [&] { return bertha::make_cpu_device(threads); });
}

int32_t bertha_open_cuda([[maybe_unused]] int32_t ordinal, BerthaKernels** kernels) {
  return bertha::open(kernels, [&]() -> std::unique_ptr<bertha::Device> {
#ifdef BERTHA_ROWS_CUDA
    (*kernels)->is_cuda = true;
    return bertha::make_cuda_device(ordinal);
#else
    bertha::fail(bertha::ExitCode::kEnvironment,
                 "this library was built without CUDA; build it where nvcc 12.5 or newer is on PATH");
#endif
  });
}

void bertha_close(BerthaKernels* kernels) { delete kernels; }

const char* bertha_error(const BerthaKernels*) { return bertha::last_error.c_str(); }

// A field of the C struct as the view of the same name.
#define BERTHA_VIEW(field) .field = view(#field, c->field)

int32_t bertha_softmax_fwd(BerthaKernels* kernels, void* stream, const BerthaSoftmaxFwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    bertha::SoftmaxFwd args{BERTHA_VIEW(x), BERTHA_VIEW(bias),    BERTHA_VIEW(mask),
                            BERTHA_VIEW(y), BERTHA_VIEW(dropped), BERTHA_VIEW(kept_mask)};
    args.kind = bertha::kind_of(c->is_log);
    args.scale = c->scale;
    args.dropout = view(c->dropout);
    return args;
  });
}

int32_t bertha_softmax_bwd(BerthaKernels* kernels, void* stream, const BerthaSoftmaxBwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    bertha::SoftmaxBwd args{BERTHA_VIEW(dy), BERTHA_VIEW(y), BERTHA_VIEW(kept_mask),
                            BERTHA_VIEW(dx)};
    args.kind = bertha::kind_of(c->is_log);
    args.scale = c->scale;
    args.dropout = view(c->dropout);
    return args;
  });
}

int32_t bertha_layer_norm_fwd(BerthaKernels* kernels, void* stream, const BerthaLayerNormFwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    bertha::LayerNormFwd args{BERTHA_VIEW(x),        BERTHA_VIEW(gamma), BERTHA_VIEW(beta),
                              BERTHA_VIEW(y),        BERTHA_VIEW(mean),  BERTHA_VIEW(rstd),
                              BERTHA_VIEW(residual), BERTHA_VIEW(sum)};
    args.epsilon = c->epsilon;
    return args;
  });
}

int32_t bertha_layer_norm_bwd(BerthaKernels* kernels, void* stream, const BerthaLayerNormBwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    bertha::LayerNormBwd args{BERTHA_VIEW(dy),     BERTHA_VIEW(x),     BERTHA_VIEW(mean),
                              BERTHA_VIEW(rstd),   BERTHA_VIEW(gamma), BERTHA_VIEW(dx),
                              BERTHA_VIEW(dgamma), BERTHA_VIEW(dbeta)};
    args.accumulate = bertha::accumulate_of(c->accumulate);
    return args;
  });
}

int32_t bertha_prelu_fwd(BerthaKernels* kernels, void* stream, const BerthaPreluFwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    return bertha::PreluFwd{BERTHA_VIEW(x), BERTHA_VIEW(slope), BERTHA_VIEW(y)};
  });
}

int32_t bertha_prelu_bwd(BerthaKernels* kernels, void* stream, const BerthaPreluBwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    bertha::PreluBwd args{BERTHA_VIEW(dy), BERTHA_VIEW(x), BERTHA_VIEW(slope), BERTHA_VIEW(dx),
                          BERTHA_VIEW(dslope)};
    args.accumulate = bertha::accumulate_of(c->accumulate);
    return args;
  });
}

int32_t bertha_batch_norm_relu_fwd(BerthaKernels* kernels, void* stream,
                                   const BerthaBatchNormReluFwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    bertha::BatchNormReluFwd args{
        BERTHA_VIEW(x),    BERTHA_VIEW(addend),       BERTHA_VIEW(gamma),
        BERTHA_VIEW(beta), BERTHA_VIEW(running_mean), BERTHA_VIEW(running_var),
        BERTHA_VIEW(y),    BERTHA_VIEW(mask),         BERTHA_VIEW(mean),
        BERTHA_VIEW(rstd)};
    args.statistics = bertha::statistics_of(c->uses_running);
    args.momentum = c->momentum;
    args.epsilon = c->epsilon;
    return args;
  });
}

int32_t bertha_batch_norm_relu_bwd(BerthaKernels* kernels, void* stream,
                                   const BerthaBatchNormReluBwd* c) {
  return bertha::run(kernels, stream, c, [&](const ViewMaker& view) {
    bertha::BatchNormReluBwd args{BERTHA_VIEW(dy),   BERTHA_VIEW(x),       BERTHA_VIEW(mask),
                                  BERTHA_VIEW(mean), BERTHA_VIEW(rstd),    BERTHA_VIEW(gamma),
                                  BERTHA_VIEW(dx),   BERTHA_VIEW(daddend), BERTHA_VIEW(dgamma),
                                  BERTHA_VIEW(dbeta)};
    args.statistics = bertha::statistics_of(c->uses_running);
    args.accumulate = bertha::accumulate_of(c->accumulate);
    return args;
  });
}
