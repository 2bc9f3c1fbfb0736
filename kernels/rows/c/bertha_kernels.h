#pragma once

#include <stdint.h>

/* The row operations for programs in any language: softmax, LayerNorm, PReLU, BatchNorm + ReLU.
 *
 * What an operation computes, and every field's dtype and shape, is in kernels/ops/: the structs here
 * have the fields of softmax.h, layer_norm.h, prelu.h and batch_norm_relu.h under the same names. A
 * tensor that may be without data, or is not read, has data NULL.
 *
 * Errors    functions return 0, or a code of BerthaStatus; then bertha_error says in a sentence which
 *           field is wrong, what was found and what is wanted. No exception leaves a function.
 * Threads   any; calls with one handle run one after the other. A child of fork() makes its own
 *           handle: the threads of its parent's are not there.
 * Stable    values and fields keep their meaning as long as bertha_abi_version does: it grows when a
 *           program must be compiled again. */

#ifdef __cplusplus
extern "C" {
#endif

enum { BERTHA_ABI_VERSION = 2 }; /* of this header */

typedef enum BerthaStatus {
  BERTHA_OK = 0,
  BERTHA_INVALID = 1,     /* an argument is wrong, or a launch failed */
  BERTHA_USAGE = 2,       /* not with this device: a dtype that the CPU does not take, no threads */
  BERTHA_ENVIRONMENT = 5, /* no such device, driver too old, built without CUDA */
  BERTHA_MEMORY = 6
} BerthaStatus;

typedef enum BerthaDType {
  BERTHA_F64 = 0,
  BERTHA_F32 = 1,
  BERTHA_F16 = 2,
  BERTHA_BF16 = 3,
  BERTHA_U64 = 8,
  BERTHA_U8 = 9
} BerthaDType;

/* Row-major memory of the caller, on the device of the handle. Strides are in elements, and all 0
 * for dense tensors; the kernels take no others, which are refused. A tensor that is expanded along
 * all of its axes looks dense: copy it before. */
typedef struct BerthaTensor {
  void* data;
  int64_t extents[4];
  int64_t strides[4];
  int32_t dtype; /* BerthaDType */
  int32_t rank;  /* axes, 0 to 4 */
} BerthaTensor;

/* Which elements are dropped, see Dropout in kernels/base/arguments.h. */
typedef struct BerthaDropout {
  BerthaTensor random; /* u64 [2]: {seed, step} */
  float probability;   /* in [0, 1); 0: nothing is dropped */
  uint32_t site;
} BerthaDropout;

typedef struct BerthaSoftmaxFwd {
  BerthaTensor x, bias, mask, y, dropped, kept_mask;
  BerthaDropout dropout;
  double scale;   /* 1: x as it is; 0 makes rows uniform */
  int32_t is_log; /* 1: log-softmax */
  int32_t unused; /* 0 */
} BerthaSoftmaxFwd;

typedef struct BerthaSoftmaxBwd {
  BerthaTensor dy, y, kept_mask, dx;
  BerthaDropout dropout;
  double scale;
  int32_t is_log;
  int32_t unused;
} BerthaSoftmaxBwd;

typedef struct BerthaLayerNormFwd {
  BerthaTensor x, gamma, beta, y, mean, rstd, residual, sum;
  double epsilon; /* 0 or more */
} BerthaLayerNormFwd;

typedef struct BerthaLayerNormBwd {
  BerthaTensor dy, x, mean, rstd, gamma, dx, dgamma, dbeta;
  int32_t accumulate; /* 1: add to dgamma and dbeta */
  int32_t unused;
} BerthaLayerNormBwd;

typedef struct BerthaPreluFwd {
  BerthaTensor x, slope, y;
} BerthaPreluFwd;

typedef struct BerthaPreluBwd {
  BerthaTensor dy, x, slope, dx, dslope;
  int32_t accumulate;
  int32_t unused;
} BerthaPreluBwd;

typedef struct BerthaBatchNormReluFwd {
  BerthaTensor x, addend, gamma, beta, running_mean, running_var, y, mask, mean, rstd;
  int32_t uses_running; /* 1: normalise by the running statistics */
  float momentum;
  float epsilon;
  int32_t unused;
} BerthaBatchNormReluFwd;

typedef struct BerthaBatchNormReluBwd {
  BerthaTensor dy, x, mask, mean, rstd, gamma, dx, daddend, dgamma, dbeta;
  int32_t uses_running;
  int32_t accumulate;
} BerthaBatchNormReluBwd;

/* A device with what its operations keep between calls. */
typedef struct BerthaKernels BerthaKernels;

/* Of the library that is loaded. */
int32_t bertha_abi_version(void);

/* CPU with 1 to 4096 threads, which bertha_close ends; operations have run when they return, and
 * streams are NULL. The handle is made also where the call fails, unless memory is short: close it then, too. */
int32_t bertha_open_cpu(int32_t threads, BerthaKernels** kernels);
/* GPU `ordinal` of those visible, which becomes the calling thread's current one. */
int32_t bertha_open_cuda(int32_t ordinal, BerthaKernels** kernels);
/* Waits for nothing: work on streams must have finished. NULL is allowed. */
void bertha_close(BerthaKernels* kernels);

/* The sentence of the calling thread's last call that failed, until its next one fails. It is the
 * same for every handle, and NULL. */
const char* bertha_error(const BerthaKernels* kernels);

/* Enqueued on `stream`, a cudaStream_t (NULL: the default stream) of the handle's device, which is
 * the calling thread's current one. */
int32_t bertha_softmax_fwd(BerthaKernels*, void* stream, const BerthaSoftmaxFwd*);
int32_t bertha_softmax_bwd(BerthaKernels*, void* stream, const BerthaSoftmaxBwd*);
int32_t bertha_layer_norm_fwd(BerthaKernels*, void* stream, const BerthaLayerNormFwd*);
int32_t bertha_layer_norm_bwd(BerthaKernels*, void* stream, const BerthaLayerNormBwd*);
int32_t bertha_prelu_fwd(BerthaKernels*, void* stream, const BerthaPreluFwd*);
int32_t bertha_prelu_bwd(BerthaKernels*, void* stream, const BerthaPreluBwd*);
int32_t bertha_batch_norm_relu_fwd(BerthaKernels*, void* stream, const BerthaBatchNormReluFwd*);
int32_t bertha_batch_norm_relu_bwd(BerthaKernels*, void* stream, const BerthaBatchNormReluBwd*);

#ifdef __cplusplus
}
#endif
