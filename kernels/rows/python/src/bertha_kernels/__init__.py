"""Softmax, LayerNorm, PReLU and BatchNorm + Add + ReLU for PyTorch, on the CPU and on GPUs from compute
capability 8.0 on.

Functions here mirror torch.nn.functional, modules torch.nn; both work with autograd and
torch.compile. bertha_kernels.dlpack takes arrays of NumPy, CuPy and JAX.
"""
from importlib.metadata import version as _version

import torch

from . import dlpack, functional
from .functional import batch_norm_add_relu, layer_norm, log_softmax, prelu, softmax
from .modules import BatchNormAddReLU, LayerNorm, LogSoftmax, PReLU, Softmax

__all__ = ["BatchNormAddReLU", "LayerNorm", "LogSoftmax", "PReLU", "Softmax",
           "__version__", "batch_norm_add_relu", "dlpack", "layer_norm", "log_softmax", "prelu",
           "softmax"]

__version__: str = _version("bertha-kernels")

for _name in functional.NAMES:
    torch.fx.wrap(_name)
