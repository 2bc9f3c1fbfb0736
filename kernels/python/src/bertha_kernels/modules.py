"""Modules that replace those of torch.nn: the same arguments, parameters and state_dict."""
import torch

from . import functional


def _dim_of(module, x):
    """Where none was given, the one that PyTorch takes."""
    return module.dim if module.dim is not None else 0 if x.dim() in (0, 1, 3) else 1


class Softmax(torch.nn.Softmax):
    def forward(self, x):
        return functional.softmax(x, _dim_of(self, x))


class LogSoftmax(torch.nn.LogSoftmax):
    def forward(self, x):
        return functional.log_softmax(x, _dim_of(self, x))


class LayerNorm(torch.nn.LayerNorm):
    def forward(self, x):
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class PReLU(torch.nn.PReLU):
    def forward(self, x):
        return functional.prelu(x, self.weight)


class BatchNormAddReLU(torch.nn.Module):
    """relu(batch_norm(x) + addend) of x [N, C, ...]; parameters and buffers are those of
    torch.nn.BatchNorm2d, float32 whatever x is."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, device=None):
        super().__init__()
        if momentum is None:
            raise ValueError("BatchNormAddReLU: momentum is None, want a number: an average over all "
                             "batches is not computed")
        self.eps = eps
        self.momentum = momentum
        zeros, ones = (torch.full((num_features,), value, dtype=torch.float32, device=device)
                       for value in (0.0, 1.0))
        self.weight, self.bias = torch.nn.Parameter(ones), torch.nn.Parameter(zeros)
        self.register_buffer("running_mean", zeros.clone())
        self.register_buffer("running_var", ones.clone())
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long, device=device))

    def _apply(self, fn, *arguments, **keywords):
        """Models that are converted to 16 bits have float32 parameters and statistics here."""
        def keep_dtype(tensor):
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)
        return super()._apply(keep_dtype, *arguments, **keywords)

    def forward(self, x, addend=None):
        if self.training:
            self.num_batches_tracked.add_(1)
        return functional.batch_norm_add_relu(x, self.running_mean, self.running_var, self.weight,
                                              self.bias, addend, self.training, self.momentum,
                                              self.eps)
