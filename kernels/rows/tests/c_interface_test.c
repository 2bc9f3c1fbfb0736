/* The C interface from C, on the CPU: every operation, values that are known, and sentences. */
#include <bertha_kernels.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>

static int failures = 0;

static void expect(int holds, const char* what) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "FAILED: %s\n", what);
}

static void expect_values(const float* found, const float* wanted, int count, const char* what) {
  for (int i = 0; i < count; ++i) {
    if (fabsf(found[i] - wanted[i]) <= 1e-6f) continue;
    ++failures;
    fprintf(stderr, "FAILED: %s[%d] = %g, want %g\n", what, i, (double)found[i], (double)wanted[i]);
  }
}

static BerthaTensor tensor(void* data, int dtype, int rank, int64_t a, int64_t b, int64_t c) {
  BerthaTensor made = {data, {a, b, c, 0}, {0, 0, 0, 0}, dtype, rank};
  return made;
}
static BerthaTensor matrix(float* data, int64_t rows, int64_t columns) {
  return tensor(data, BERTHA_F32, 2, rows, columns, 0);
}
static BerthaTensor vector(float* data, int64_t extent) {
  return tensor(data, BERTHA_F32, 1, extent, 0, 0);
}

static void test_softmax(BerthaKernels* kernels) {
  float x[4] = {0.0f, 0.0f, 0.0f, 1.0986123f}; /* ln 3 */
  float y[4], dx[4];
  float dy[4] = {1.0f, 0.0f, 0.0f, 1.0f};
  const float wanted[4] = {0.5f, 0.5f, 0.25f, 0.75f};
  const float gradient[4] = {0.25f, -0.25f, -0.1875f, 0.1875f};
  BerthaSoftmaxFwd forward = {.x = matrix(x, 2, 2), .y = matrix(y, 2, 2), .scale = 1.0f};
  expect(bertha_softmax_fwd(kernels, NULL, &forward) == BERTHA_OK, bertha_error(kernels));
  expect_values(y, wanted, 4, "softmax");
  BerthaSoftmaxBwd backward = {
      .dy = matrix(dy, 2, 2), .y = matrix(y, 2, 2), .dx = matrix(dx, 2, 2), .scale = 1.0f};
  expect(bertha_softmax_bwd(kernels, NULL, &backward) == BERTHA_OK, bertha_error(kernels));
  expect_values(dx, gradient, 4, "gradient of softmax");
  forward.is_log = 1;
  expect(bertha_softmax_fwd(kernels, NULL, &forward) == BERTHA_OK, bertha_error(kernels));
  expect(fabsf(expf(y[3]) - 0.75f) < 1e-6f, "log-softmax");
}

static void test_layer_norm(BerthaKernels* kernels) {
  float x[2] = {1.0f, 3.0f}, gamma[2] = {1.0f, 2.0f}, beta[2] = {0.0f, 1.0f};
  float y[2], mean[1], rstd[1], dx[2], dgamma[2], dbeta[2], dy[2] = {1.0f, 1.0f};
  const float wanted[2] = {-1.0f, 3.0f};
  const float of_gamma[2] = {-1.0f, 1.0f};
  BerthaLayerNormFwd forward = {.x = matrix(x, 1, 2),
                                .gamma = vector(gamma, 2),
                                .beta = vector(beta, 2),
                                .y = matrix(y, 1, 2),
                                .mean = vector(mean, 1),
                                .rstd = vector(rstd, 1),
                                .epsilon = 1e-12f};
  expect(bertha_layer_norm_fwd(kernels, NULL, &forward) == BERTHA_OK, bertha_error(kernels));
  expect_values(y, wanted, 2, "LayerNorm");
  BerthaLayerNormFwd alone = forward; /* without statistics */
  alone.mean = alone.rstd = (BerthaTensor){0};
  y[0] = y[1] = 0.0f;
  expect(bertha_layer_norm_fwd(kernels, NULL, &alone) == BERTHA_OK, bertha_error(kernels));
  expect_values(y, wanted, 2, "LayerNorm alone");
  BerthaLayerNormBwd backward = {.dy = matrix(dy, 1, 2),
                                 .x = forward.x,
                                 .mean = forward.mean,
                                 .rstd = forward.rstd,
                                 .gamma = forward.gamma,
                                 .dx = matrix(dx, 1, 2),
                                 .dgamma = vector(dgamma, 2),
                                 .dbeta = vector(dbeta, 2)};
  expect(bertha_layer_norm_bwd(kernels, NULL, &backward) == BERTHA_OK, bertha_error(kernels));
  expect_values(dgamma, of_gamma, 2, "gradient of gamma");
}

static void expect_double(double found, double wanted, const char* what) {
  if (fabs(found - wanted) <= 4e-16 * fabs(wanted)) return;
  ++failures;
  fprintf(stderr, "FAILED: %s: %.17g, want %.17g\n", what, found, wanted);
}

static BerthaTensor doubles(double* data, int64_t columns) {
  return tensor(data, BERTHA_F64, 2, 1, columns, 0);
}

/* Wanted: from 40 decimal digits. Numbers rounded to f32 on the way change the ninth. */
static void test_double_precision(BerthaKernels* kernels) {
  double x[2], y[2], dx[2], mean[1], rstd[1], dy[2] = {1.0, 0.0};
  const struct {
    double x, epsilon, y, rstd;
  } rows[] = {{0.001, 1e-5, 0.30151134457776363, 301.5113445777636},
              {1e-6, 1e-12, 0.7071067811865475, 707106.7811865476},
              {1.0, 0.0, 1.0, 1.0},
              {0.0, 1e-50, 0.0, 1e25}}; /* 1e-50 is 0 in f32 */
  for (int i = 0; i < 4; ++i) {
    x[1] = rows[i].x;
    x[0] = -x[1];
    const BerthaLayerNormFwd norm = {.x = doubles(x, 2),
                                     .y = doubles(y, 2),
                                     .mean = tensor(mean, BERTHA_F64, 1, 1, 0, 0),
                                     .rstd = tensor(rstd, BERTHA_F64, 1, 1, 0, 0),
                                     .epsilon = rows[i].epsilon};
    expect(bertha_layer_norm_fwd(kernels, NULL, &norm) == BERTHA_OK, bertha_error(kernels));
    expect_double(y[1], rows[i].y, "LayerNorm of doubles");
    expect_double(rstd[0], rows[i].rstd, "its rstd");
  }
  x[0] = x[1] = 2.0;
  const BerthaLayerNormFwd constant = {.x = doubles(x, 2), .y = doubles(y, 2), .epsilon = 0.0};
  expect(bertha_layer_norm_fwd(kernels, NULL, &constant) == BERTHA_OK, bertha_error(kernels));
  expect(isnan(y[0]) && isnan(y[1]), "a constant row without epsilon is NaN, as in PyTorch");

  x[0] = 0.0;
  x[1] = 10.0;
  const BerthaSoftmaxFwd softmax = {.x = doubles(x, 2), .y = doubles(y, 2), .scale = 0.1};
  expect(bertha_softmax_fwd(kernels, NULL, &softmax) == BERTHA_OK, bertha_error(kernels));
  expect_double(y[1], 0.7310585786300049, "softmax of doubles");
  const BerthaSoftmaxBwd backward = {
      .dy = doubles(dy, 2), .y = doubles(y, 2), .dx = doubles(dx, 2), .scale = 0.1};
  expect(bertha_softmax_bwd(kernels, NULL, &backward) == BERTHA_OK, bertha_error(kernels));
  expect_double(dx[1], -0.019661193324148184, "its gradient");
}

static void test_prelu(BerthaKernels* kernels) {
  float x[2] = {-2.0f, 4.0f}, slope[1] = {0.25f}, y[2], dx[2], dslope[1], dy[2] = {1.0f, 1.0f};
  const float wanted[2] = {-0.5f, 4.0f}, gradient[2] = {0.25f, 1.0f}, of_slope[1] = {-2.0f};
  BerthaPreluFwd forward = {tensor(x, BERTHA_F32, 3, 1, 1, 2), vector(slope, 1),
                            tensor(y, BERTHA_F32, 3, 1, 1, 2)};
  expect(bertha_prelu_fwd(kernels, NULL, &forward) == BERTHA_OK, bertha_error(kernels));
  expect_values(y, wanted, 2, "PReLU");
  BerthaPreluBwd backward = {.dy = tensor(dy, BERTHA_F32, 3, 1, 1, 2),
                             .x = forward.x,
                             .slope = forward.slope,
                             .dx = tensor(dx, BERTHA_F32, 3, 1, 1, 2),
                             .dslope = vector(dslope, 1)};
  expect(bertha_prelu_bwd(kernels, NULL, &backward) == BERTHA_OK, bertha_error(kernels));
  expect_values(dx, gradient, 2, "gradient of PReLU");
  expect_values(dslope, of_slope, 1, "gradient of the slope");
}

static void test_batch_norm(BerthaKernels* kernels) {
  float x[2] = {1.0f, 3.0f}, addend[2] = {0.5f, 0.5f}, gamma[1] = {1.0f}, beta[1] = {0.0f};
  float running_mean[1] = {0.0f}, running_var[1] = {1.0f}, y[2], mean[1], rstd[1];
  float dy[2] = {1.0f, 1.0f}, dx[2], daddend[2], dgamma[1], dbeta[1];
  unsigned char mask[1];
  const float wanted[2] = {0.0f, 1.5f}, of_addend[2] = {0.0f, 1.0f};
  const BerthaTensor x_view = tensor(x, BERTHA_F32, 3, 2, 1, 1);
  BerthaBatchNormReluFwd forward = {.x = x_view,
                                    .addend = tensor(addend, BERTHA_F32, 3, 2, 1, 1),
                                    .gamma = vector(gamma, 1),
                                    .beta = vector(beta, 1),
                                    .running_mean = vector(running_mean, 1),
                                    .running_var = vector(running_var, 1),
                                    .y = tensor(y, BERTHA_F32, 3, 2, 1, 1),
                                    .mask = tensor(mask, BERTHA_U8, 1, 1, 0, 0),
                                    .mean = vector(mean, 1),
                                    .rstd = vector(rstd, 1),
                                    .momentum = 0.5f};
  forward.epsilon = 1e-12f;
  expect(bertha_batch_norm_relu_fwd(kernels, NULL, &forward) == BERTHA_OK, bertha_error(kernels));
  expect_values(y, wanted, 2, "BatchNorm + Add + ReLU");
  expect(running_mean[0] == 1.0f && mask[0] == 2, "running mean and mask");
  BerthaBatchNormReluBwd backward = {.dy = tensor(dy, BERTHA_F32, 3, 2, 1, 1),
                                     .x = x_view,
                                     .mask = forward.mask,
                                     .mean = forward.mean,
                                     .rstd = forward.rstd,
                                     .gamma = forward.gamma,
                                     .dx = tensor(dx, BERTHA_F32, 3, 2, 1, 1),
                                     .daddend = tensor(daddend, BERTHA_F32, 3, 2, 1, 1),
                                     .dgamma = vector(dgamma, 1),
                                     .dbeta = vector(dbeta, 1)};
  expect(bertha_batch_norm_relu_bwd(kernels, NULL, &backward) == BERTHA_OK, bertha_error(kernels));
  expect_values(daddend, of_addend, 2, "gradient of the addend");
}

static void expect_refusal(BerthaKernels* kernels, const BerthaSoftmaxFwd* args, const char* text) {
  expect(bertha_softmax_fwd(kernels, NULL, args) == BERTHA_INVALID, text);
  if (strstr(bertha_error(kernels), text) == NULL) {
    ++failures;
    fprintf(stderr, "FAILED: '%s' lacks '%s'\n", bertha_error(kernels), text);
  }
}

static int fails_here(void* kernels) {
  return bertha_prelu_fwd(kernels, NULL, NULL) == BERTHA_INVALID &&
         strstr(bertha_error(kernels), "prelu_fwd: the arguments are NULL") != NULL;
}

static void test_refusals(BerthaKernels* kernels) {
  float x[6] = {0};
  BerthaSoftmaxFwd args = {.x = matrix(x, 2, 2), .y = matrix(x, 2, 3), .scale = 1.0f};
  expect_refusal(kernels, &args, "softmax_fwd: y is f32 [2,3], want f32 [2,2]");
  args.y = matrix(x, 2, 2);
  args.x.strides[0] = 3;
  args.x.strides[1] = 1;
  expect_refusal(kernels, &args, "softmax_fwd: x has the strides [3,1], want dense rows");
  args.x.strides[0] = 2;
  expect(bertha_softmax_fwd(kernels, NULL, &args) == BERTHA_OK, bertha_error(kernels));
  args.x.dtype = 77;
  expect_refusal(kernels, &args, "softmax_fwd: x has dtype 77");
  args.x = tensor(NULL, BERTHA_F32, 5, 0, 0, 0);
  expect_refusal(kernels, &args, "softmax_fwd: x has rank 5");
  args.x = tensor(x, BERTHA_F32, 2, -1, 2, 0);
  expect_refusal(kernels, &args, "softmax_fwd: x has the extent -1");
  args.x = args.y = matrix(x, (int64_t)1 << 40, (int64_t)1 << 40); /* 2^80 elements */
  expect_refusal(kernels, &args,
                 "softmax_fwd: x is f32 [1099511627776,1099511627776], more than 2^63 - 1 bytes");
  args.x = args.y = matrix(x, (int64_t)1 << 30, (int64_t)1 << 31); /* 2^61 elements, 2^63 bytes */
  expect_refusal(kernels, &args, "softmax_fwd: x is f32 [1073741824,2147483648], more than");
  args.x = args.y = tensor(x, BERTHA_F32, 3, (int64_t)1 << 40, (int64_t)1 << 40, 0);
  expect_refusal(kernels, &args,
                 "softmax_fwd: x is f32 [1099511627776,1099511627776,0], more than");
  expect_refusal(kernels, NULL, "softmax_fwd: the arguments are NULL");
  thrd_t other;
  int failed = 0;
  expect(thrd_create(&other, fails_here, kernels) == thrd_success &&
             thrd_join(other, &failed) == thrd_success && failed,
         "a failure in another thread");
  expect(strstr(bertha_error(kernels), "softmax_fwd:") != NULL, "each thread has its sentence");
  args.x = matrix(x, 2, 2);
  expect(bertha_softmax_fwd(kernels, x, &args) == BERTHA_INVALID, "a stream for the CPU");
  expect_refusal(NULL, &args, "softmax_fwd: the handle is NULL");
  args.y = (BerthaTensor){.data = NULL, .dtype = BERTHA_F32};
  expect_refusal(kernels, &args, "softmax_fwd: y has no data, want f32 [2,2]");
  args.x = args.y = matrix(NULL, 0, 2); /* no rows: nothing to do */
  expect(bertha_softmax_fwd(kernels, NULL, &args) == BERTHA_OK, bertha_error(kernels));
}

static int threads_of_this_process(void) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (tasks != NULL && readdir(tasks) != NULL) ++count;
  if (tasks != NULL) closedir(tasks);
  return count - 2; /* . and .. */
}

static void test_threads(void) {
  BerthaKernels* kernels = NULL;
  const int counts[] = {0, -1, 4097, 1 << 30};
  for (int i = 0; i < 4; ++i) {
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "CPU threads = %d, want 1 to 4096", counts[i]);
    expect(bertha_open_cpu(counts[i], &kernels) == BERTHA_USAGE, wanted);
    expect(strcmp(bertha_error(kernels), wanted) == 0, bertha_error(kernels));
    bertha_close(kernels);
  }
  BerthaKernels* opened[12];
  const int before = threads_of_this_process();
  for (int i = 0; i < 12; ++i) expect(bertha_open_cpu(i + 1, &opened[i]) == BERTHA_OK, "opens");
  expect(threads_of_this_process() == before + 66, "0 to 11 threads in addition to the caller's");
  for (int i = 0; i < 12; ++i) bertha_close(opened[i]);
  /* A thread that has been joined is listed a moment longer. */
  const struct timespec moment = {.tv_sec = 0, .tv_nsec = 1000000};
  for (int i = 0; i < 10000 && threads_of_this_process() > before; ++i) thrd_sleep(&moment, NULL);
  expect(threads_of_this_process() == before, "bertha_close ends the threads");
}

int main(void) {
  BerthaKernels* kernels = NULL;
  expect(bertha_abi_version() == BERTHA_ABI_VERSION, "version");
  expect(bertha_open_cpu(1, NULL) == BERTHA_INVALID, "nowhere to write the handle");
  expect(strstr(bertha_error(NULL), "the address of the handle is NULL") != NULL, "its sentence");
  test_threads();
  expect(bertha_open_cpu(2, &kernels) == BERTHA_OK, "CPU");
  test_softmax(kernels);
  test_layer_norm(kernels);
  test_double_precision(kernels);
  test_prelu(kernels);
  test_batch_norm(kernels);
  test_refusals(kernels);
  bertha_close(kernels);
  bertha_close(NULL);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
