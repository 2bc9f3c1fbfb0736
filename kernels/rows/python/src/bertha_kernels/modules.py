"""Modules that replace those of torch.nn: the same arguments, parameters and state_dict."""
import torch

from . import functional


def _dim_of(module, input):
    """Where none was given, the one that PyTorch takes."""
    return module.dim if module.dim is not None else 0 if input.dim() in (0, 1, 3) else 1


class Softmax(torch.nn.Softmax):
    def forward(self, input):
        return functional.softmax(input, _dim_of(self, input))


class LogSoftmax(torch.nn.LogSoftmax):
    def forward(self, input):
        return functional.log_softmax(input, _dim_of(self, input))


class LayerNorm(torch.nn.LayerNorm):
    def forward(self, input):
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class PReLU(torch.nn.PReLU):
    def forward(self, input):
        return functional.prelu(input, self.weight)


class BatchNormAddReLU(torch.nn.modules.batchnorm._NormBase):
    """relu(batch_norm(input) + addend) of an input [N, C, ...]; parameters and buffers are those of
    torch.nn.BatchNorm2d, float32 whatever the input is. Tools that look for that class do not see it:
    torch.nn.SyncBatchNorm.convert_sync_batchnorm, torch.optim.swa_utils.update_bn."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, *, device=None):
        if momentum is None:
            raise ValueError("BatchNormAddReLU: momentum is None, want a number: an average over all "
                             "batches is not computed")
        super().__init__(num_features, eps, momentum, device=device, dtype=torch.float32)

    def _apply(self, fn, *arguments, **keywords):
        """Models that are converted to 16 bits have float32 parameters and statistics here."""
        def keep_dtype(tensor):
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)
        return super()._apply(keep_dtype, *arguments, **keywords)

    def forward(self, input, addend=None):
        if self.training:
            self.num_batches_tracked.add_(1)
        return functional.batch_norm_add_relu(
            input, self.running_mean, self.running_var, self.weight, self.bias, self.training,
            self.momentum, self.eps, addend=addend)
