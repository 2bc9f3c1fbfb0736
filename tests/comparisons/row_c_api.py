"""Bertha's kernels on PyTorch's tensors, through tests/comparisons/row_c_api.cpp (target bertha_row_c_api)."""
import ctypes

import torch

EPSILON = 1e-5


class RowLibrary:
    """Results are allocated by each call, as PyTorch's own functions do. Errors: RuntimeError."""

    def __init__(self, library):
        """Enqueues on the stream that is current now."""
        self.library = ctypes.CDLL(str(library))
        self.library.bertha_rows_open.restype = ctypes.c_void_p
        self.library.bertha_rows_error.restype = ctypes.c_char_p
        self.stream = torch.cuda.current_stream()
        self.handle = ctypes.c_void_p(self.library.bertha_rows_open(
            ctypes.c_int64(torch.cuda.current_device()),
            ctypes.c_void_p(self.stream.cuda_stream)))
        error = self.library.bertha_rows_error(self.handle)
        if error:
            raise RuntimeError(error.decode())

    def close(self):
        self.library.bertha_rows_close(self.handle)

    def operation(self, name):
        """Function of tensors (None: null), integers and floats."""
        function = getattr(self.library, f"bertha_rows_{name}")
        function.restype = ctypes.c_char_p

        def of(value):
            if isinstance(value, torch.Tensor):
                return ctypes.c_void_p(value.data_ptr())
            return {type(None): ctypes.c_void_p, float: ctypes.c_float}.get(
                type(value), ctypes.c_int64)(value)

        def call(*arguments):
            error = function(self.handle, *map(of, arguments))
            if error:
                raise RuntimeError(f"{name}: {error.decode()}")

        return call

    def softmax(self, rows, columns, log):
        """(forward(x), backward(dy, y))"""
        extents = (rows, columns, int(log))
        enqueue_forward, enqueue_backward = map(self.operation, ("softmax_fwd", "softmax_bwd"))

        def forward(x):
            y = torch.empty_like(x)
            enqueue_forward(x, y, *extents)
            return y

        def backward(dy, y):
            dx = torch.empty_like(dy)
            enqueue_backward(dy, y, dx, *extents)
            return dx

        return forward, backward

    def layer_norm(self, rows, columns):
        """(forward(x, gamma, beta), backward(dy, x, mean, rstd, gamma, beta))"""
        enqueue_forward, enqueue_backward = map(self.operation,
                                                ("layer_norm_fwd", "layer_norm_bwd"))

        def forward(x, gamma, beta):
            y = torch.empty_like(x)
            mean, rstd = (torch.empty((rows, 1), device="cuda") for _ in range(2))
            enqueue_forward(x, gamma, beta, y, mean, rstd, rows, columns, EPSILON)
            return y, mean, rstd

        def backward(dy, x, mean, rstd, gamma, beta):
            dx, dgamma, dbeta = map(torch.empty_like, (x, gamma, beta))
            enqueue_backward(dy, x, mean, rstd, gamma, dx, dgamma, dbeta, rows, columns)
            return dx, dgamma, dbeta

        return forward, backward

    @staticmethod
    def extents(n, c, side, last):
        """N, C and S of kernels/rows/ops/prelu.h."""
        return (n * side * side, c, 1) if last else (n, c, side * side)

    def prelu(self, n, c, side, last):
        """(forward(x, slope), backward(dy, x, slope))"""
        extents = self.extents(n, c, side, last)
        enqueue_forward, enqueue_backward = map(self.operation, ("prelu_fwd", "prelu_bwd"))

        def forward(x, slope):
            y = torch.empty_like(x)
            enqueue_forward(x, slope, y, *extents)
            return y

        def backward(dy, x, slope):
            dx, dslope = map(torch.empty_like, (x, slope))
            enqueue_backward(dy, x, slope, dx, dslope, *extents)
            return dx, dslope

        return forward, backward

    def norm_relu(self, n, c, side, last):
        """(forward(x, gamma, beta, running_mean, running_var, *addend) -> (y, mask, mean, rstd),
        backward(dy, x, mask, mean, rstd, gamma, add) -> (dx, dgamma, dbeta, *daddend))
        """
        extents = self.extents(n, c, side, last)
        enqueue_forward, enqueue_backward = map(self.operation,
                                                ("batch_norm_relu_fwd", "batch_norm_relu_bwd"))

        def forward(x, gamma, beta, running_mean, running_var, *addend):
            y, mean, rstd = map(torch.empty_like, (x, gamma, gamma))
            mask = torch.empty((x.numel() + 7) // 8, device="cuda", dtype=torch.uint8)
            enqueue_forward(x, addend[0] if addend else None, gamma, beta, running_mean,
                            running_var, y, mask, mean, rstd, *extents, EPSILON)
            return y, mask, mean, rstd

        def backward(dy, x, mask, mean, rstd, gamma, add):
            dx, dgamma, dbeta = map(torch.empty_like, (x, gamma, gamma))
            daddend = torch.empty_like(x) if add else None
            enqueue_backward(dy, x, mask, mean, rstd, gamma, dx, daddend, dgamma, dbeta, *extents)
            return (dx, dgamma, dbeta, daddend) if add else (dx, dgamma, dbeta)

        return forward, backward


def bits_of(y):
    """u8 [elements / 8]: what Bertha saves of y, in the order of memory: it is not zero."""
    in_order = y.permute(0, 2, 3, 1) if not y.is_contiguous() else y
    places = torch.tensor([1 << bit for bit in range(8)], device="cuda", dtype=torch.uint8)
    return ((in_order.reshape(-1, 8) != 0).to(torch.uint8) * places).sum(1, dtype=torch.uint8)
