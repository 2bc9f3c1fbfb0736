"""Functions with the arguments of torch.nn.functional. softmax and log_softmax work on the last axis,
unless they are given a dim."""
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from . import torch_ops

_CHANNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_DTYPES = (*_CHANNEL_DTYPES, torch.float64)


def _refuse_input(name: str, x: Any, wanted: Sequence[torch.dtype]) -> NoReturn:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: x is of {type(x)}, want a torch.Tensor")
    dtypes = [str(dtype).removeprefix("torch.") for dtype in wanted]
    raise TypeError(f"{name}: x is {x.dtype}, want {', '.join(dtypes[:-1])} or {dtypes[-1]}")


def _softmax(name: str, x: Tensor, dim: int, dtype: torch.dtype | None, is_log: bool) -> Tensor:
    if dtype is not None:
        x = x.to(dtype)
    if getattr(x, "dtype", None) not in _DTYPES:
        _refuse_input(name, x, _DTYPES)
    if dim == -1 and dim is not True:
        return torch_ops.softmax(x, is_log)
    if type(dim) is not int:
        raise TypeError(f"{name}: dim is {dim!r}, want an int")
    rank = max(x.dim(), 1)
    if not -rank <= dim < rank:
        raise IndexError(f"{name}: dim is {dim}, want {-rank} to {rank - 1} for x with {x.dim()} axes")
    if dim in (-1, rank - 1):
        return torch_ops.softmax(x, is_log)
    y = torch_ops.softmax(x.movedim(dim, -1), is_log).movedim(-1, dim)
    return y.contiguous() if x.is_contiguous() else y  # PyTorch's can be viewed in another shape


def softmax(input: Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> Tensor:
    """As torch.softmax of an input [..] over axis `dim`, of float64, float32, float16 or bfloat16; but
    a row of minus infinities gives zeros, not NaN."""
    return _softmax("softmax", input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> Tensor:
    """As torch.log_softmax, with the inputs of softmax; but a row of minus infinities gives minus
    infinities, not NaN, and where the result is minus infinity backward ignores dy and gives a
    gradient of zero."""
    return _softmax("log_softmax", input, dim, dtype, True)


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
               bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """As torch.nn.functional.layer_norm of an input [.., *normalized_shape], of the dtypes of softmax.
    Next to an input of 16 bits, parameters may be float32, and their gradients are, too; parameters of
    any other dtype are converted to the input's. eps has to be 0 or more."""
    dtype = getattr(input, "dtype", None)
    if dtype not in _DTYPES:
        _refuse_input("layer_norm", input, _DTYPES)
    shape = tuple(normalized_shape)
    if (len(shape) != 1 or (input.shape or (None,))[-1] != shape[0]
            or weight is not None and weight.dtype is not dtype
            or bias is not None and bias.dtype is not dtype):
        weight, bias = _layer_norm_rows(input, shape, weight=weight, bias=bias)
    if not eps >= 0:
        raise ValueError(f"layer_norm: eps is {eps}, want 0 or more")
    columns = shape[0] if len(shape) == 1 else math.prod(shape)
    return torch_ops.layer_norm(input, weight, bias, columns, eps)


def _layer_norm_rows(input: Tensor, shape: tuple[int, ...],
                     **parameters: Tensor | None) -> list[Tensor | None]:
    """As rows of one dtype: the input's, or float32 if the input has 16 bits and one of them has others."""
    if len(shape) == 0 or input.shape[-len(shape):] != shape:
        raise ValueError(f"layer_norm: normalized_shape is {shape}, want the last axes of x "
                         f"{tuple(input.shape)}")
    dtype = input.dtype
    given = {name: parameter for name, parameter in parameters.items() if parameter is not None}
    if dtype.itemsize == 2 and any(parameter.dtype != dtype for parameter in given.values()):
        dtype = torch.float32
    for name, parameter in given.items():
        if parameter.shape != shape:
            raise ValueError(f"layer_norm: {name} is {tuple(parameter.shape)}, want {shape}")
    return [None if parameter is None else parameter.to(dtype).reshape(-1)
            for parameter in parameters.values()]


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """As torch.nn.functional.prelu of an input [N, C, ..] and weight [C] or [1], for float32, float16
    and bfloat16. A weight of another dtype is rounded to the input's, and so is its gradient."""
    if getattr(input, "dtype", None) not in _CHANNEL_DTYPES:
        _refuse_input("prelu", input, _CHANNEL_DTYPES)
    channels = input.shape[1] if input.dim() >= 2 else 1
    if weight.dim() > 1 or weight.numel() not in (1, channels):
        wanted = "1 element" if channels == 1 else f"1 or {channels} elements"
        raise ValueError(f"prelu: weight is {tuple(weight.shape)}, want {wanted} for x "
                         f"{tuple(input.shape)}")
    return torch_ops.prelu(input, weight if weight.dtype == input.dtype else weight.to(input.dtype))


def batch_norm_add_relu(input: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor,
                        bias: Tensor, training: bool = False, momentum: float = 0.1,
                        eps: float = 1e-5, *, addend: Tensor | None = None) -> Tensor:
    """relu(torch.nn.functional.batch_norm(input, ...) + addend) of an input [N, C, ..] and an addend
    like it, of float32, float16 or bfloat16; parameters and statistics are float32 [C]. In training
    the running statistics are updated in place."""
    if getattr(input, "dtype", None) not in _CHANNEL_DTYPES:
        _refuse_input("batch_norm_add_relu", input, _CHANNEL_DTYPES)
    shape = input.shape
    if len(shape) < 2:
        raise ValueError(f"batch_norm_add_relu: x is {tuple(shape)}, want [N, C, ...]")
    parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight,
                  "bias": bias}
    for name, parameter in parameters.items():
        if parameter is None or parameter.dtype != torch.float32 or parameter.shape != shape[1:2]:
            found = "None" if parameter is None else f"{parameter.dtype} {list(parameter.shape)}"
            raise ValueError(f"batch_norm_add_relu: {name} is {found}, want torch.float32 [{shape[1]}]")
    if addend is not None and (addend.shape != shape or addend.dtype != input.dtype):
        raise ValueError(f"batch_norm_add_relu: addend is {addend.dtype} {tuple(addend.shape)}, "
                         f"want {input.dtype} {tuple(shape)}")
    if addend is input:
        addend = addend.view_as(addend)  # torch.compile refuses one tensor in two places
    tensors = (input, addend, weight, bias, running_mean, running_var)
    if not training:
        return torch_ops.batch_norm_add_relu_inference(*tensors, eps)[0]
    if input.numel() == shape[1]:
        raise ValueError(f"batch_norm_add_relu: x is {tuple(shape)}, want more than one value of each "
                         "channel in training")
    if not 0 <= momentum <= 1:
        raise ValueError(f"batch_norm_add_relu: momentum is {momentum}, want a value in [0, 1]")
    return torch_ops.batch_norm_add_relu(*tensors, momentum, eps)[0]


NAMES = ("softmax", "log_softmax", "layer_norm", "prelu", "batch_norm_add_relu")
for _name in NAMES:
    torch.fx.wrap(_name)  # modules' calls are nodes of a graph that torch.fx traces
