"""Softmax and LayerNorm of Liger and QuACK, for row_peers.py, where they are installed."""
import row_c_api


def liger_call(operation, columns):
    """A function of row_case's operands, or None."""
    try:
        from liger_kernel.ops.layer_norm import layer_norm_backward, layer_norm_forward
        from liger_kernel.ops.softmax import _softmax_backward, _softmax_forward
        from liger_kernel.ops.utils import calculate_settings
    except ImportError:
        return None
    if operation == "softmax_fwd":
        return lambda x: _softmax_forward(x)[0]
    if operation == "softmax_bwd":
        def backward(dy, y):
            block, warps = calculate_settings(columns)  # as forward passes on
            return _softmax_backward(dy, y, block, warps, columns > block)
        return backward
    if operation == "layer_norm_fwd":
        def forward(x, gamma, beta):
            y, _, mean, rstd, *_ = layer_norm_forward(x, gamma, beta, row_c_api.EPSILON)
            return y, mean, rstd
        return forward
    return lambda dy, x, mean, rstd, gamma, beta: layer_norm_backward(
        dy, x, gamma, beta, mean, rstd)


def quack_call(operation, columns):
    """A function of row_case's operands, or None. QuACK's LayerNorm has no backward."""
    try:
        from quack.rmsnorm import layernorm_fwd
        from quack.softmax import softmax_bwd, softmax_fwd
    except ImportError:
        return None
    if operation == "softmax_fwd":
        return softmax_fwd
    if operation == "softmax_bwd":
        return softmax_bwd
    if operation == "layer_norm_fwd":
        parameters = {}  # in f32, as it requires, converted once

        def f32(tensor):
            return parameters.setdefault(tensor.data_ptr(), tensor.float())
        return lambda x, gamma, beta: layernorm_fwd(
            x, f32(gamma), f32(beta), row_c_api.EPSILON, return_rstd=True, return_mean=True)
    return None
