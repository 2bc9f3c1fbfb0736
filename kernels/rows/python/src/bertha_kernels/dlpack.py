"""The operations for arrays of other libraries (NumPy, CuPy, JAX), by DLPack, without PyTorch types at
the call. Dense arrays are not copied. Results are arrays of the library that the first argument is
from, on its device. Work on that array is waited for on the current stream of PyTorch, where the
operation runs. Dtypes are those of bertha_kernels.functional.

    y = bertha_kernels.dlpack.softmax(x)
"""
import importlib
import sys
from typing import Any

import torch

from . import functional


def _array_of(result: torch.Tensor, like: Any) -> Any:
    """`result` as an array of the library of `like`, or of its nearest base class."""
    if isinstance(like, torch.Tensor):
        return result
    for kind in type(like).__mro__:
        name = kind.__module__.split(".")[0]
        if name.startswith("jax"):
            return importlib.import_module("jax.dlpack").from_dlpack(result)
        if hasattr(sys.modules.get(name), "from_dlpack"):
            return sys.modules[name].from_dlpack(result)
    raise TypeError(f"{type(like)} is of no library that has from_dlpack")


def _tensor(array: Any) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        return array
    if type(array).__name__.endswith("Tracer"):
        raise TypeError(f"{type(array)} has no data: call the operation outside jax.jit, jax.grad and "
                        "jax.vmap")
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"{type(array)} is not an array: it has no __dlpack__")
    if hasattr(array, "mask"):
        raise TypeError(f"{type(array)} has a mask, which the operations do not take; give its filled()")
    if any(stride < 0 for stride in getattr(array, "strides", None) or ()):
        array = array.copy()  # PyTorch has no such tensors
    return torch.from_dlpack(array)


def softmax(x: Any, axis: int = -1) -> Any:
    """As functional.softmax."""
    return _array_of(functional.softmax(_tensor(x), axis), x)


def log_softmax(x: Any, axis: int = -1) -> Any:
    """As functional.log_softmax."""
    return _array_of(functional.log_softmax(_tensor(x), axis), x)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """As functional.layer_norm over the last axis: x [.., C], weight and bias [C]."""
    x_tensor = _tensor(x)
    gamma, beta = (None if p is None else _tensor(p) for p in (weight, bias))
    return _array_of(functional.layer_norm(x_tensor, x_tensor.shape[-1:], gamma, beta, eps), x)


def prelu(x: Any, weight: Any) -> Any:
    """As functional.prelu."""
    return _array_of(functional.prelu(_tensor(x), _tensor(weight)), x)
