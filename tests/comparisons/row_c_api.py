"""Bertha's kernels on PyTorch's tensors, by the C interface (kernels/rows/c/bertha_kernels.h)."""
import ctypes

import torch

EPSILON = 1e-5
MOMENTUM = 0.1
DTYPES = {torch.float32: 1, torch.float16: 2, torch.uint8: 9}


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("extents", ctypes.c_int64 * 4), ("strides", ctypes.c_int64 * 4),
                ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32)]


class Dropout(ctypes.Structure):
    _fields_ = [("random", Tensor), ("probability", ctypes.c_float), ("site", ctypes.c_uint32)]


def structure(tensors, **others):
    """A struct of these tensors, with what follows them."""
    fields = [(name, Tensor) for name in tensors.split()] + list(others.items())
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


ARGUMENTS = {
    "softmax_fwd": structure("x bias mask y dropped kept_mask", dropout=Dropout, scale=ctypes.c_double,
                             is_log=ctypes.c_int32, unused=ctypes.c_int32),
    "softmax_bwd": structure("dy y kept_mask dx", dropout=Dropout, scale=ctypes.c_double,
                             is_log=ctypes.c_int32, unused=ctypes.c_int32),
    "layer_norm_fwd": structure("x gamma beta y mean rstd residual sum", epsilon=ctypes.c_double),
    "layer_norm_bwd": structure("dy x mean rstd gamma dx dgamma dbeta", accumulate=ctypes.c_int32,
                                unused=ctypes.c_int32),
    "prelu_fwd": structure("x slope y"),
    "prelu_bwd": structure("dy x slope dx dslope", accumulate=ctypes.c_int32, unused=ctypes.c_int32),
    "batch_norm_relu_fwd": structure("x addend gamma beta running_mean running_var y mask mean rstd",
                                     uses_running=ctypes.c_int32, momentum=ctypes.c_float,
                                     epsilon=ctypes.c_float, unused=ctypes.c_int32),
    "batch_norm_relu_bwd": structure("dy x mask mean rstd gamma dx daddend dgamma dbeta",
                                     uses_running=ctypes.c_int32, accumulate=ctypes.c_int32),
}


def described(tensor, extents=None):
    """Tensor of PyTorch's memory: in order of memory, as these extents or as its own."""
    extents = extents or tensor.shape
    return Tensor(data=tensor.data_ptr(), extents=(*extents, *[0] * (4 - len(extents))),
                  dtype=DTYPES[tensor.dtype], rank=len(extents))


class RowLibrary:
    """Results are allocated by each call, as PyTorch's own functions do. Errors: RuntimeError."""

    def __init__(self, library):
        """Enqueues on the stream that is current now."""
        self.library = ctypes.CDLL(str(library))
        self.library.bertha_error.restype = ctypes.c_char_p
        self.stream = torch.cuda.current_stream()
        self.handle = ctypes.c_void_p()
        self.check(self.library.bertha_open_cuda(torch.cuda.current_device(), ctypes.byref(self.handle)))

    def close(self):
        self.library.bertha_close(self.handle)

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.library.bertha_error(None).decode())

    def run(self, name, shape=None, **fields):
        """Enqueues an operation. Tensors of more than two axes are seen as of `shape`."""
        arguments = ARGUMENTS[name]()
        for field, value in fields.items():
            if isinstance(value, torch.Tensor):
                value = described(value, shape if value.dim() > 2 else None)
            if value is not None:
                setattr(arguments, field, value)
        self.check(getattr(self.library, f"bertha_{name}")(
            self.handle, ctypes.c_void_p(self.stream.cuda_stream), ctypes.byref(arguments)))

    def softmax(self, log):
        """(forward(x), backward(dy, y))"""
        def forward(x):
            y = torch.empty_like(x)
            self.run("softmax_fwd", x=x, y=y, scale=1, is_log=log)
            return y

        def backward(dy, y):
            dx = torch.empty_like(dy)
            self.run("softmax_bwd", dy=dy, y=y, dx=dx, scale=1, is_log=log)
            return dx

        return forward, backward

    def layer_norm(self):
        """(forward(x, gamma, beta), backward(dy, x, mean, rstd, gamma, beta))"""
        def forward(x, gamma, beta):
            y = torch.empty_like(x)
            mean, rstd = (torch.empty(len(x), device="cuda") for _ in range(2))
            self.run("layer_norm_fwd", x=x, gamma=gamma, beta=beta, y=y, mean=mean, rstd=rstd, epsilon=EPSILON)
            return y, mean, rstd

        def backward(dy, x, mean, rstd, gamma, beta):
            dx, dgamma, dbeta = map(torch.empty_like, (x, gamma, beta))
            self.run("layer_norm_bwd", dy=dy, x=x, mean=mean.view(-1), rstd=rstd.view(-1), gamma=gamma, dx=dx,
                     dgamma=dgamma, dbeta=dbeta)
            return dx, dgamma, dbeta

        return forward, backward

    @staticmethod
    def shape(n, c, side, last):
        """N, C and S of kernels/rows/ops/prelu.h."""
        return (n * side * side, c, 1) if last else (n, c, side * side)

    def prelu(self, *image):
        """(forward(x, slope), backward(dy, x, slope))"""
        shape = self.shape(*image)

        def forward(x, slope):
            y = torch.empty_like(x)
            self.run("prelu_fwd", shape, x=x, slope=slope, y=y)
            return y

        def backward(dy, x, slope):
            dx, dslope = map(torch.empty_like, (x, slope))
            self.run("prelu_bwd", shape, dy=dy, x=x, slope=slope, dx=dx, dslope=dslope)
            return dx, dslope

        return forward, backward

    def norm_relu(self, *image):
        """(forward(x, gamma, beta, running_mean, running_var, *addend) -> (y, mask, mean, rstd),
        backward(dy, x, mask, mean, rstd, gamma, add) -> (dx, dgamma, dbeta, *daddend))
        """
        shape = self.shape(*image)

        def forward(x, gamma, beta, running_mean, running_var, addend=None):
            y, mean, rstd = map(torch.empty_like, (x, gamma, gamma))
            mask = torch.empty((x.numel() + 7) // 8, device="cuda", dtype=torch.uint8)
            self.run("batch_norm_relu_fwd", shape, x=x, addend=addend, gamma=gamma, beta=beta,
                     running_mean=running_mean, running_var=running_var, y=y, mask=mask, mean=mean,
                     rstd=rstd, momentum=MOMENTUM, epsilon=EPSILON)
            return y, mask, mean, rstd

        def backward(dy, x, mask, mean, rstd, gamma, add):
            dx, dgamma, dbeta = map(torch.empty_like, (x, gamma, gamma))
            daddend = torch.empty_like(x) if add else None
            self.run("batch_norm_relu_bwd", shape, dy=dy, x=x, mask=mask, mean=mean, rstd=rstd, gamma=gamma,
                     dx=dx, daddend=daddend, dgamma=dgamma, dbeta=dbeta)
            return (dx, dgamma, dbeta, daddend) if add else (dx, dgamma, dbeta)

        return forward, backward


def bits_of(y):
    """u8 [elements / 8]: what Bertha saves of y, in the order of memory: it is not zero."""
    in_order = y.permute(0, 2, 3, 1) if not y.is_contiguous() else y
    places = torch.tensor([1 << bit for bit in range(8)], device="cuda", dtype=torch.uint8)
    return ((in_order.reshape(-1, 8) != 0).to(torch.uint8) * places).sum(1, dtype=torch.uint8)
