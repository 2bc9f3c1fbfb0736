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
        if dim not in (-1, 0):
            raise IndexError(f"softmax: dim is {dim}, want -1 or 0 for x without axes")
        return torch_ops.softmax(x.reshape(1), is_log).reshape(())
    if dim in (-1, x.dim() - 1):
        return torch_ops.softmax(x, is_log)
    y = torch_ops.softmax(x.movedim(dim, -1), is_log).movedim(-1, dim)
    return y.contiguous() if x.is_contiguous() else y  # PyTorch's can be viewed in another shape


def softmax(input, dim=-1, dtype=None):
    """As torch.softmax of an input [..] over axis `dim`, of float64, float32, float16 or bfloat16; but
    a row of minus infinities gives zeros, not NaN."""
    y = None
    if not _is_compiling():
        y = c.direct_softmax(input, dim, dtype, False, torch_ops.record_softmax)
    return _softmax(input, dim, dtype, False) if y is None else y


def log_softmax(input, dim=-1, dtype=None):
    """As torch.log_softmax, with the inputs of softmax; but a row of minus infinities gives minus
    infinities, not NaN, and where the result is minus infinity backward takes dy as zero and gives a
    gradient of zero."""
    y = None
    if not _is_compiling():
        y = c.direct_softmax(input, dim, dtype, True, torch_ops.record_softmax)
    return _softmax(input, dim, dtype, True) if y is None else y


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """As torch.nn.functional.layer_norm of an input [.., *normalized_shape], of the dtypes of softmax.
    Parameters of another dtype are rounded to the input's, and so are their gradients. eps has to be
    0 or more."""
    if not _is_compiling():
        y = c.direct_layer_norm(input, weight, bias, normalized_shape, eps,
                                torch_ops.record_layer_norm)
        if y is not None:
            return y
    shape = tuple(normalized_shape)
    if len(shape) == 0 or input.shape[-len(shape):] != shape:
        raise ValueError(f"layer_norm: normalized_shape is {shape}, want the last axes of x "
                         f"{tuple(input.shape)}")
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != shape:
            raise ValueError(f"layer_norm: {name} is {tuple(parameter.shape)}, want {shape}")
    columns = shape[0] if len(shape) == 1 else math.prod(shape)
    return torch_ops.layer_norm(input, _vector(weight, input), _vector(bias, input), columns, eps)[0]


def _vector(parameter, x):
    """All elements of a parameter in x's dtype. Conversions that change nothing cost time, too."""
    if parameter is None:
        return None
    if parameter.dtype != x.dtype:
        parameter = parameter.to(x.dtype)
    return parameter if parameter.dim() == 1 else parameter.reshape(parameter.numel())


def prelu(input, weight):
    """As torch.nn.functional.prelu of an input [N, C, ..] and weight [C] or [1], for float32, float16
    and bfloat16. A weight of another dtype is rounded to the input's, and so is its gradient."""
    if not _is_compiling():
        y = c.direct_prelu(input, weight, torch_ops.record_prelu)
        if y is not None:
            return y
    channels = input.shape[1] if input.dim() >= 2 else 1
    if weight.dim() > 1 or weight.numel() not in (1, channels):
        wanted = "1 element" if channels == 1 else f"1 or {channels} elements"
        raise ValueError(f"prelu: weight is {tuple(weight.shape)}, want {wanted} for x "
                         f"{tuple(input.shape)}")
    return torch_ops.prelu(input, _vector(weight, input))


def batch_norm_add_relu(input, running_mean, running_var, weight, bias, training=False, momentum=0.1,
                        eps=1e-5, *, addend=None):
    """relu(torch.nn.functional.batch_norm(input, ...) + addend) of an input [N, C, ..] and an addend
    like it, of float32, float16 or bfloat16; parameters and statistics are float32 [C]. In training
    the running statistics are updated in place."""
    shape = tuple(input.shape)
    if len(shape) < 2:
        raise ValueError(f"batch_norm_add_relu: x is {shape}, want [N, C, ...]")
    parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight,
                  "bias": bias}
    for name, parameter in parameters.items():
        if parameter is None or parameter.dtype != torch.float32 or parameter.shape != shape[1:2]:
            found = "None" if parameter is None else f"{parameter.dtype} {list(parameter.shape)}"
            raise ValueError(f"batch_norm_add_relu: {name} is {found}, want torch.float32 [{shape[1]}]")
    if addend is not None and (addend.shape != input.shape or addend.dtype != input.dtype):
        raise ValueError(f"batch_norm_add_relu: addend is {addend.dtype} {tuple(addend.shape)}, "
                         f"want {input.dtype} {shape}")
    if training and input.numel() == shape[1]:
        raise ValueError(f"batch_norm_add_relu: x is {shape}, want more than one value of each channel "
                         "in training")
    y, _, _, _, new_mean, new_var = torch_ops.batch_norm_add_relu(
        input, addend, weight, bias, running_mean, running_var, not training,
        momentum if training else 0.0, eps)
    if training:
        with torch.no_grad():
            running_mean.copy_(new_mean)
            running_var.copy_(new_var)
    return y


NAMES = ("softmax", "log_softmax", "layer_norm", "prelu", "batch_norm_add_relu")
for _name in NAMES:
    torch.fx.wrap(_name)  # modules' calls are nodes of a graph that torch.fx traces
