"""Functions with the arguments of torch.nn.functional."""
import math

import torch

from . import c_interface as c
from . import torch_ops

_is_compiling = torch.compiler.is_dynamo_compiling  # True where torch.compile reads a function


def _softmax(x, dim, dtype, is_log):
    if dtype is not None:
        x = x.to(dtype)
    if x.dim() == 0:
        return torch_ops.softmax(x.reshape(1), is_log).reshape(())
    if dim in (-1, x.dim() - 1):
        return torch_ops.softmax(x, is_log)
    y = torch_ops.softmax(x.movedim(dim, -1), is_log).movedim(-1, dim)
    return y.contiguous() if x.is_contiguous() else y  # PyTorch's can be viewed in another shape


def softmax(x, dim=-1, dtype=None):
    """As torch.softmax, but a row of minus infinities gives zeros, not NaN."""
    y = None if _is_compiling() else c.direct_softmax(x, dim, dtype, False, torch_ops.record_softmax)
    return _softmax(x, dim, dtype, False) if y is None else y


def log_softmax(x, dim=-1, dtype=None):
    """As torch.log_softmax, but a row of minus infinities gives minus infinities, not NaN."""
    y = None if _is_compiling() else c.direct_softmax(x, dim, dtype, True, torch_ops.record_softmax)
    return _softmax(x, dim, dtype, True) if y is None else y


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """As torch.nn.functional.layer_norm; parameters of another dtype are converted to x's."""
    if not _is_compiling():
        y = c.direct_layer_norm(x, weight, bias, normalized_shape, eps,
                                torch_ops.record_layer_norm)
        if y is not None:
            return y
    shape = tuple(normalized_shape)
    if len(shape) == 0 or x.shape[-len(shape):] != shape:
        raise ValueError(f"layer_norm: normalized_shape is {shape}, want the last axes of x "
                         f"{tuple(x.shape)}")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != shape:
            raise ValueError(f"layer_norm: {name} is {tuple(parameter.shape)}, want {shape}")
    columns = shape[0] if len(shape) == 1 else math.prod(shape)
    return torch_ops.layer_norm(x, _vector(weight, x), _vector(bias, x), columns, eps)[0]


def _vector(parameter, x):
    """All elements of a parameter in x's dtype. Conversions that change nothing cost time, too."""
    if parameter is None:
        return None
    if parameter.dtype != x.dtype:
        parameter = parameter.to(x.dtype)
    return parameter if parameter.dim() == 1 else parameter.reshape(parameter.numel())


def prelu(x, weight):
    """As torch.nn.functional.prelu, for float32, float16 and bfloat16."""
    if not _is_compiling():
        y = c.direct_prelu(x, weight, torch_ops.record_prelu)
        if y is not None:
            return y
    channels = x.shape[1] if x.dim() >= 2 else 1
    if weight.dim() > 1 or weight.numel() not in (1, channels):
        raise ValueError(f"prelu: weight is {tuple(weight.shape)}, want 1 or {channels} elements "
                         f"for x {tuple(x.shape)}")
    return torch_ops.prelu(x, _vector(weight, x))


def batch_norm_add_relu(x, running_mean, running_var, weight, bias, addend=None, training=False,
                        momentum=0.1, eps=1e-5):
    """relu(torch.nn.functional.batch_norm(x, ...) + addend), for float32, float16 and bfloat16 x and
    float32 parameters and statistics. In training the running statistics are updated in place."""
    if x.dim() < 2:
        raise ValueError(f"batch_norm_add_relu: x is {tuple(x.shape)}, want [N, C, ...]")
    parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight,
                  "bias": bias}
    for name, parameter in parameters.items():
        found = None if parameter is None else (parameter.dtype, tuple(parameter.shape))
        if found != (torch.float32, (x.shape[1],)):
            raise ValueError(f"batch_norm_add_relu: {name} is {found}, want torch.float32 "
                             f"[{x.shape[1]}]")
    if addend is not None and (addend.shape != x.shape or addend.dtype != x.dtype):
        raise ValueError(f"batch_norm_add_relu: addend is {addend.dtype} {tuple(addend.shape)}, "
                         f"want {x.dtype} {tuple(x.shape)}")
    y, _, _, _, new_mean, new_var = torch_ops.batch_norm_add_relu(
        x, addend, weight, bias, running_mean, running_var, not training, momentum, eps)
    if training:
        with torch.no_grad():
            running_mean.copy_(new_mean)
            running_var.copy_(new_var)
    return y


NAMES = ("softmax", "log_softmax", "layer_norm", "prelu", "batch_norm_add_relu")
for _name in NAMES:
    torch.fx.wrap(_name)  # modules' calls are nodes of a graph that torch.fx traces
