/* The C interface on a GPU: softmax of rows on a stream of the program's own. */
#include <bertha_kernels.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>

enum { ROWS = 3, COLUMNS = 1000 };

int main(void) {
  static float host[ROWS * COLUMNS];
  float* on_gpu = NULL;
  cudaStream_t stream = NULL;
  BerthaKernels* kernels = NULL;
  if (bertha_open_cuda(0, &kernels) != BERTHA_OK) {
    fprintf(stderr, "FAILED: %s\n", bertha_error(kernels));
    return 1;
  }
  for (int i = 0; i < ROWS * COLUMNS; ++i) host[i] = (float)(i % 7);
  if (cudaStreamCreate(&stream) != cudaSuccess ||
      cudaMalloc((void**)&on_gpu, sizeof host) != cudaSuccess ||
      cudaMemcpyAsync(on_gpu, host, sizeof host, cudaMemcpyHostToDevice, stream) != cudaSuccess) {
    fprintf(stderr, "FAILED: memory of the GPU\n");
    return 1;
  }
  BerthaSoftmaxFwd args = {.scale = 1.0f};
  args.x = (BerthaTensor){on_gpu, {ROWS, COLUMNS, 0, 0}, {COLUMNS, 1, 0, 0}, BERTHA_F32, 2};
  args.y = args.x;
  if (bertha_softmax_fwd(kernels, stream, &args) != BERTHA_OK ||
      bertha_softmax_fwd(kernels, NULL, &(BerthaSoftmaxFwd){.x = args.x}) == BERTHA_OK) {
    fprintf(stderr, "FAILED: %s\n", bertha_error(kernels));
    return 1;
  }
  if (cudaMemcpyAsync(host, on_gpu, sizeof host, cudaMemcpyDeviceToHost, stream) != cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess) {
    fprintf(stderr, "FAILED: copy of the result\n");
    return 1;
  }
  int failures = 0;
  for (int row = 0; row < ROWS; ++row) {
    double sum = 0;
    for (int column = 0; column < COLUMNS; ++column) sum += (double)host[row * COLUMNS + column];
    if (fabs(sum - 1.0) > 1e-5) ++failures;
  }
  printf("%d of %d rows do not sum to 1\n", failures, ROWS);
  bertha_close(kernels);
  cudaFree(on_gpu);
  cudaStreamDestroy(stream);
  return failures == 0 ? 0 : 1;
}
