#pragma once

// Makes one source compile with the host compiler and nvcc.
#ifdef __CUDACC__
#define BERTHA_HOST_DEVICE __host__ __device__
#else
#define BERTHA_HOST_DEVICE
#endif
