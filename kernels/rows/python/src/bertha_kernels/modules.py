"""Modules that replace those of torch.nn: the same arguments, parameters and state_dict."""
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import functional


def _dim_of(module: torch.nn.Softmax | torch.nn.LogSoftmax, input: Tensor) -> int:
    """The last axis unless the module has a dim. Where torch.nn would choose another axis, results
    would differ without a word."""
    if module.dim is not None:
        return module.dim
    if input.dim() > 2:
        axis = 0 if input.dim() == 3 else 1
        raise ValueError(f"{type(module).__name__}: dim is None and x is {tuple(input.shape)}; torch.nn "
                         f"normalizes over axis {axis} and this module over the last one: give a dim")
    return -1


class Softmax(torch.nn.Softmax):
    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, _dim_of(self, input))


class LogSoftmax(torch.nn.LogSoftmax):
    def forward(self, input: Tensor) -> Tensor:
        return functional.log_softmax(input, _dim_of(self, input))


class LayerNorm(torch.nn.LayerNorm):
    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class PReLU(torch.nn.PReLU):
    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)


class BatchNormAddReLU(torch.nn.modules.batchnorm._NormBase):
    """relu(batch_norm(input) + addend) of an input [N, C, ...]; parameters and buffers are those of
    torch.nn.BatchNorm2d, float32 whatever the input is. Tools that look for that class do not see it:
    torch.nn.SyncBatchNorm.convert_sync_batchnorm, torch.optim.swa_utils.update_bn."""

    # The base class may leave these None; this class always has them.
    running_mean: Tensor  # type: ignore[assignment]
    running_var: Tensor  # type: ignore[assignment]
    num_batches_tracked: Tensor  # type: ignore[assignment]
    momentum: float  # type: ignore[assignment]

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, *,
                 device: torch.device | str | None = None) -> None:
        if momentum is None:
            raise ValueError("BatchNormAddReLU: momentum is None, want a number: an average over all "
                             "batches is not computed")
        super().__init__(num_features, eps, momentum, device=device, dtype=torch.float32)

    def _apply(self, fn: Callable[[Tensor], Tensor], *arguments: Any, **keywords: Any) -> Any:
        """Models that are converted to 16 bits have float32 parameters and statistics here."""
        def keep_dtype(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)
        return super()._apply(keep_dtype, *arguments, **keywords)

    def forward(self, input: Tensor, addend: Tensor | None = None) -> Tensor:
        if self.training:
            self.num_batches_tracked.add_(1)
        return functional.batch_norm_add_relu(
            input, self.running_mean, self.running_var, self.weight, self.bias, self.training,
            self.momentum, self.eps, addend=addend)
