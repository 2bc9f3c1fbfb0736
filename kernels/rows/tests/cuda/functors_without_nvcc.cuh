#pragma once

// Functions that nvcc declares by itself, for another compiler that reads row_functors.cuh.
float __uint_as_float(unsigned bits);
template <class T>
T __ldcs(const T* from);

#include "kernels/rows/cuda/norm_softmax/row_functors.cuh"
