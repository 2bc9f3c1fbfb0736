"""The operations for arrays of other libraries (NumPy, CuPy, JAX), by DLPack: no copy, unless a stride
is negative, no PyTorch types at the call. Results are arrays of the library that the first argument is
from, on its device; the current stream of PyTorch is the one that is waited for.

    y = bertha_kernels.dlpack.softmax(x)
"""
import torch

from . import functional


def _array_of(result, like):
    """`result` as an array of the library of `like`."""
    module = type(like).__module__.split(".")[0]
    if module.startswith("jax"):
        import jax.dlpack
        return jax.dlpack.from_dlpack(result)
    if module == "torch":
        return result
    namespace = __import__(module)
    return namespace.from_dlpack(result)


def _tensor(array):
    if isinstance(array, torch.Tensor):
        return array
    if any(stride < 0 for stride in getattr(array, "strides", None) or ()):
        array = array.copy()  # PyTorch has no such tensors
    return torch.from_dlpack(array)


def softmax(x, axis=-1):
    return _array_of(functional.softmax(_tensor(x), axis), x)


def log_softmax(x, axis=-1):
    return _array_of(functional.log_softmax(_tensor(x), axis), x)


def layer_norm(x, weight=None, bias=None, eps=1e-5):
    """Over the last axis."""
    x_tensor = _tensor(x)
    parameters = [None if p is None else _tensor(p) for p in (weight, bias)]
    return _array_of(functional.layer_norm(x_tensor, x_tensor.shape[-1:], *parameters, eps), x)


def prelu(x, weight):
    return _array_of(functional.prelu(_tensor(x), _tensor(weight)), x)
