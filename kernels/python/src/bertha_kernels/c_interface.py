"""The C interface (bertha_kernels.h) by ctypes: plain pointers and extents, no tensors.

The structs are packed by `struct`, which is several times faster than ctypes structures: a call costs
about a microsecond before the kernel starts.
"""
import ctypes
import os
import pathlib
import struct

ABI_VERSION = 1
F64, F32, F16, BF16, U8 = 0, 1, 2, 3, 9  # BerthaDType
STATUS_INVALID, STATUS_MEMORY = 1, 6

_T = "P4q32x2i"  # BerthaTensor with strides 0: data, extents, dtype, rank
_NONE = "80x"
_SOFTMAX_FWD = struct.Struct(f"@{_T}{2 * _NONE}{_T}{2 * _NONE}88xfi")
_SOFTMAX_BWD = struct.Struct(f"@{2 * _T}{_NONE}{_T}88xfi")
_LAYER_NORM_FWD = struct.Struct(f"@{6 * _T}{2 * _NONE}fi")
_LAYER_NORM_BWD = struct.Struct(f"@{8 * _T}2i")
_PRELU_FWD = struct.Struct(f"@{3 * _T}")
_PRELU_BWD = struct.Struct(f"@{5 * _T}2i")
_BATCH_NORM_FWD = struct.Struct(f"@{10 * _T}iffi")
_BATCH_NORM_BWD = struct.Struct(f"@{10 * _T}2i")
_NO_TENSOR = (0, 0, 0, 0, 0, 0, 0)


def vector(data, count, dtype):
    return (data, count, 0, 0, 0, dtype, 1)


def _optional(data, count, dtype):
    return _NO_TENSOR if data is None else vector(data, count, dtype)


def _load():
    library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "libbertha_kernels.so"))
    found = library.bertha_abi_version()
    if found != ABI_VERSION:
        raise ImportError(f"libbertha_kernels.so has interface version {found}, want {ABI_VERSION}; "
                          "install bertha-kernels again")
    for open_name in ("bertha_open_cpu", "bertha_open_cuda"):
        getattr(library, open_name).argtypes = [ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)]
    library.bertha_error.argtypes = [ctypes.c_void_p]
    library.bertha_error.restype = ctypes.c_char_p
    for name in ("softmax", "layer_norm", "prelu", "batch_norm_relu"):
        for direction in ("fwd", "bwd"):
            function = getattr(library, f"bertha_{name}_{direction}")
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
    return library


_LIBRARY = _load()


class Kernels:
    """The operations of one device. Pointers are addresses in its memory; `stream` is a cudaStream_t,
    0 on the CPU. Errors: ValueError with the library's sentence where an argument is wrong,
    MemoryError, RuntimeError."""

    def __init__(self, is_cuda, number):
        """`number`: of the GPU, or of CPU threads."""
        handle = ctypes.c_void_p()
        open_device = _LIBRARY.bertha_open_cuda if is_cuda else _LIBRARY.bertha_open_cpu
        status = open_device(number, ctypes.byref(handle))
        self._handle = handle.value
        self._check(status)

    def _check(self, status):
        if status == 0:
            return
        sentence = _LIBRARY.bertha_error(self._handle).decode()
        kind = {STATUS_INVALID: ValueError, STATUS_MEMORY: MemoryError}.get(status, RuntimeError)
        raise kind(sentence)

    def softmax(self, stream, x, y, rows, columns, dtype, is_log):
        shape = (rows, columns, 0, 0, dtype, 2)
        self._check(_LIBRARY.bertha_softmax_fwd(
            self._handle, stream, _SOFTMAX_FWD.pack(x, *shape, y, *shape, 1.0, is_log)))

    def softmax_backward(self, stream, dy, y, dx, rows, columns, dtype, is_log):
        shape = (rows, columns, 0, 0, dtype, 2)
        self._check(_LIBRARY.bertha_softmax_bwd(
            self._handle, stream,
            _SOFTMAX_BWD.pack(dy, *shape, y, *shape, dx, *shape, 1.0, is_log)))

    def layer_norm(self, stream, x, gamma, beta, y, mean, rstd, rows, columns, dtype, epsilon):
        """gamma and beta may be None."""
        shape = (rows, columns, 0, 0, dtype, 2)
        statistic = F64 if dtype == F64 else F32
        self._check(_LIBRARY.bertha_layer_norm_fwd(self._handle, stream, _LAYER_NORM_FWD.pack(
            x, *shape, *_optional(gamma, columns, dtype), *_optional(beta, columns, dtype),
            y, *shape, *vector(mean, rows, statistic), *vector(rstd, rows, statistic),
            epsilon, 0)))

    def layer_norm_backward(self, stream, dy, x, mean, rstd, gamma, dx, dgamma, dbeta, rows,
                            columns, dtype):
        """gamma, dgamma and dbeta may be None."""
        shape = (rows, columns, 0, 0, dtype, 2)
        statistic = F64 if dtype == F64 else F32
        self._check(_LIBRARY.bertha_layer_norm_bwd(self._handle, stream, _LAYER_NORM_BWD.pack(
            dy, *shape, x, *shape, *vector(mean, rows, statistic), *vector(rstd, rows, statistic),
            *_optional(gamma, columns, dtype), dx, *shape, *_optional(dgamma, columns, dtype),
            *_optional(dbeta, columns, dtype), 0, 0)))

    def prelu(self, stream, x, slope, y, extents, dtype):
        """extents: (N, C, S) of kernels/ops/prelu.h."""
        shape = (*extents, 0, dtype, 3)
        self._check(_LIBRARY.bertha_prelu_fwd(self._handle, stream, _PRELU_FWD.pack(
            x, *shape, *vector(slope, extents[1], dtype), y, *shape)))

    def prelu_backward(self, stream, dy, x, slope, dx, dslope, extents, dtype):
        shape = (*extents, 0, dtype, 3)
        self._check(_LIBRARY.bertha_prelu_bwd(self._handle, stream, _PRELU_BWD.pack(
            dy, *shape, x, *shape, *vector(slope, extents[1], dtype), dx, *shape,
            *vector(dslope, extents[1], dtype), 0, 0)))

    def batch_norm_relu(self, stream, x, addend, gamma, beta, running_mean, running_var, y, mask,
                        mean, rstd, extents, dtype, uses_running, momentum, epsilon):
        """addend, running_mean and running_var may be None."""
        shape = (*extents, 0, dtype, 3)
        channels = extents[1]
        bits = (extents[0] * channels * extents[2] + 7) // 8
        added = _NO_TENSOR if addend is None else (addend, *shape)
        self._check(_LIBRARY.bertha_batch_norm_relu_fwd(self._handle, stream, _BATCH_NORM_FWD.pack(
            x, *shape, *added, *vector(gamma, channels, F32), *vector(beta, channels, F32),
            *_optional(running_mean, channels, F32), *_optional(running_var, channels, F32),
            y, *shape, *vector(mask, bits, U8), *vector(mean, channels, F32),
            *vector(rstd, channels, F32), uses_running, momentum, epsilon, 0)))

    def batch_norm_relu_backward(self, stream, dy, x, mask, mean, rstd, gamma, dx, daddend, dgamma,
                                 dbeta, extents, dtype, uses_running):
        """daddend may be None."""
        shape = (*extents, 0, dtype, 3)
        channels = extents[1]
        bits = (extents[0] * channels * extents[2] + 7) // 8
        added = _NO_TENSOR if daddend is None else (daddend, *shape)
        self._check(_LIBRARY.bertha_batch_norm_relu_bwd(self._handle, stream, _BATCH_NORM_BWD.pack(
            dy, *shape, x, *shape, *vector(mask, bits, U8), *vector(mean, channels, F32),
            *vector(rstd, channels, F32), *vector(gamma, channels, F32), dx, *shape, *added,
            *vector(dgamma, channels, F32), *vector(dbeta, channels, F32), uses_running, 0)))


_opened = {}


def kernels_of(is_cuda, number):
    """The operations of a device, opened at their first use."""
    found = _opened.get((is_cuda, number))
    if found is None:
        found = _opened[is_cuda, number] = Kernels(is_cuda, number)
    return found


# The threads of a CPU device do not live on in a child; the handle is left as it is.
os.register_at_fork(after_in_child=_opened.clear)
