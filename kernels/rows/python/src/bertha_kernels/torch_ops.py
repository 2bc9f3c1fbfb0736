"""torch.ops.bertha_kernels.*: the operations with fake kernels and autograd.

Rows are the last axis, or the last axes that the parameters of LayerNorm span; channels are axis 1.
Results are dense; of dense channels-last x those of PReLU and BatchNorm are channels-last too. On the
CPU all but softmax compute 16 bits through f32. A second derivative is an error. Backward operations
check their tensors when they are called by name; what autograd saved is as large as it has to be.
"""
import os

import torch
from torch._C import _functorch as functorch
from torch.autograd import forward_ad

from . import c_interface as c

os.register_at_fork(after_in_child=c.forget_devices)
_LIBRARY = torch.library.Library("bertha_kernels", "DEF")
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def _check_dtype(name, x):
    if x.dtype not in _DTYPES:
        raise TypeError(f"{name}: x is {x.dtype}, want float64, float32, float16 or bfloat16")


def _check_channel_dtype(name, x):
    if x.dtype not in _DTYPES or x.dtype == torch.float64:
        raise TypeError(f"{name}: x is {x.dtype}, want float32, float16 or bfloat16")


def _check_columns(name, x, columns):
    size = 1
    for extent in reversed(x.shape):
        size *= extent
        if size == columns:
            return
    raise ValueError(f"{name}: columns is {columns}, want the size of the last axes of x "
                     f"{tuple(x.shape)}")


def _check(name, x, dtype, elements, **others):
    """Kernels take addresses: what lies behind them is checked here."""
    index = x.get_device()
    for field, other in others.items():
        if other is None:
            continue
        if other.get_device() != index:
            raise ValueError(f"{name}: {field} is on {other.device}, want {x.device}, where x is")
        if other.dtype != dtype or other.numel() != elements:
            raise ValueError(f"{name}: {field} is {other.dtype} of {other.numel()} elements, want "
                             f"{dtype} of {elements}")


def _as_computed(x):
    """16 bits on the CPU as f32: there the kernels of all but softmax take no others."""
    return x.float() if x.is_cpu and x.dtype.itemsize == 2 else x


def _computed_rows(tensor):
    return None if tensor is None else _as_computed(tensor.contiguous())


def _in(dtype, tensor):
    """Calls that convert nothing cost most of a microsecond."""
    return tensor if tensor is None or tensor.dtype == dtype else tensor.to(dtype)


def _define(schema, run, fake):
    """One operation with its implementation and what its results look like."""
    _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    name = schema.split("(")[0]

    def checked_fake(*inputs):
        """One tensor on the meta device is enough for PyTorch to call this in place of `run`."""
        devices = {t.device for t in inputs if isinstance(t, torch.Tensor)}
        if len(devices) > 1:
            raise ValueError(f"{name}: tensors are on {' and '.join(sorted(map(str, devices)))}, want "
                             "one device")
        return fake(*inputs)
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, run, key)
    torch.library.register_fake(f"bertha_kernels::{name}", checked_fake, lib=_LIBRARY)


def _differentiate(name, backward, setup_context):
    torch.library.register_autograd(f"bertha_kernels::{name}", backward,
                                    setup_context=setup_context, lib=_LIBRARY)


def _recorder(name, run, backward, save):
    """`run` as autograd records it; anomaly mode and profilers know it by name. `save` keeps what
    backward wants, and may return what is left of the output."""
    def forward(ctx, *inputs):
        output = run(*inputs)
        rest = save(ctx, inputs, output)
        return output if rest is None else rest
    return type(f"bertha_kernels_{name}", (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward)}).apply


def _caller(name, run, backward, setup):
    """The operation as Python calls it. Where nothing but autograd looks at it, no compiler, mode,
    subclass or transform, at once, which saves the dispatcher's trips through Python; otherwise as
    torch.ops.bertha_kernels.<name>, whose derivative transforms and forward mode do not find."""
    op, record = getattr(torch.ops.bertha_kernels, name), _recorder(name, run, backward, setup)

    class Transformed(torch.autograd.Function):
        generate_vmap_rule = True
        forward = staticmethod(lambda *inputs: op(*inputs))
        setup_context = staticmethod(setup)

    Transformed.backward = staticmethod(backward)

    def call(*inputs):
        is_forward_mode = forward_ad._current_level >= 0
        if torch.compiler.is_compiling():
            if is_forward_mode:  # where tangents would be zeros
                raise NotImplementedError(f"bertha_kernels::{name} has no derivative in forward mode")
            return op(*inputs)
        route = c.route(*inputs)
        if route == c.DIRECT:
            return run(*inputs)
        if route == c.AUTOGRAD:
            return record(*inputs)
        transform = functorch.peek_interpreter_stack()
        if is_forward_mode or (transform is not None
                               and transform.key() != functorch.TransformType.Functionalize):
            return Transformed.apply(*inputs)
        return op(*inputs)
    return call


def _once_differentiable(name, run):
    """The caller of an operation without a derivative of its own."""
    def refuse(context, *_):
        raise NotImplementedError(f"bertha_kernels::{name} has no derivative of its own: a second "
                                  "derivative was asked for")

    def setup(ctx, inputs, output):
        pass
    _differentiate(name, refuse, setup)
    return _caller(name, run, refuse, setup)


# --- softmax and log-softmax over the last axis ------------------------------------------------------

def _softmax(x, is_log):
    _check_dtype("softmax", x)
    return c.softmax(x.contiguous(), is_log)


def _softmax_gradient(dy, y, is_log):
    return c.softmax_backward(y.contiguous(), dy.contiguous(), is_log)


def _softmax_backward(dy, y, is_log):
    _check_dtype("softmax_backward", y)
    _check("softmax_backward", y, y.dtype, y.numel(), dy=dy)
    return _softmax_gradient(dy, y, is_log)


def _dense_like(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _setup_softmax(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.is_log = inputs[1]


def _backward_softmax(context, dy):
    (y,) = context.saved_tensors
    return softmax_backward(dy, y, context.is_log), None


_define("softmax(Tensor x, bool is_log) -> Tensor", _softmax, lambda x, is_log: _dense_like(x))
_define("softmax_backward(Tensor dy, Tensor y, bool is_log) -> Tensor", _softmax_backward,
        lambda dy, y, is_log: _dense_like(y))
_differentiate("softmax", _backward_softmax, _setup_softmax)
softmax = _caller("softmax", _softmax, _backward_softmax, _setup_softmax)
record_softmax = _recorder("softmax", c.softmax, _backward_softmax, _setup_softmax)
softmax_backward = _once_differentiable("softmax_backward", _softmax_gradient)


# --- LayerNorm over the last `columns` elements ---------------------------------------------------------

def _statistics_like(x, columns):
    count = 2 * (x.numel() // columns) if columns > 0 else 0
    return x.new_empty(count, dtype=torch.float32) if x.dtype.itemsize == 2 else x.new_empty(count)


def _layer_norm(x, gamma, beta, columns, epsilon):
    _check_dtype("layer_norm", x)
    _check_columns("layer_norm", x, columns)
    _check("layer_norm", x, x.dtype, columns, weight=gamma, bias=beta)
    y, statistics = c.layer_norm(*(_computed_rows(t) for t in (x, gamma, beta)), columns, epsilon)
    return _in(x.dtype, y), statistics


def _layer_norm_gradients(dy, x, statistics, gamma, columns, wants_parameters):
    """dx, dgamma, dbeta; None for parameters' gradients that nobody wants."""
    dx, dgamma, dbeta = c.layer_norm_backward(_computed_rows(x), _computed_rows(dy), statistics,
                                              _computed_rows(gamma), columns, wants_parameters)
    return _in(x.dtype, dx), _in(x.dtype, dgamma), _in(x.dtype, dbeta)


def _layer_norm_backward(dy, x, statistics, gamma, columns, wants_parameters):
    """An operation of PyTorch returns tensors alone."""
    name = "layer_norm_backward"
    _check_dtype(name, x)
    _check_columns(name, x, columns)
    _check(name, x, x.dtype, x.numel(), dy=dy)
    _check(name, x, torch.float64 if x.dtype == torch.float64 else torch.float32,
           2 * (x.numel() // max(columns, 1)), statistics=statistics)
    _check(name, x, x.dtype, columns, gamma=gamma)
    gradients = _layer_norm_gradients(dy, x, statistics, gamma, columns, wants_parameters)
    return tuple(x.new_empty((0,)) if gradient is None else gradient for gradient in gradients)


def _save_layer_norm(ctx, inputs, output):
    x, gamma, beta, ctx.columns, _ = inputs
    ctx.has_beta = beta is not None
    ctx.save_for_backward(x, output[1], gamma)
    return output[0]


def _setup_layer_norm(ctx, inputs, output):
    _save_layer_norm(ctx, inputs, output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward_layer_norm(context, dy, _=None):
    if dy is None:
        return None, None, None, None, None
    x, statistics, gamma = context.saved_tensors
    wants = any(context.needs_input_grad[1:3])
    dx, dgamma, dbeta = layer_norm_backward(dy, x, statistics, gamma, context.columns, wants)
    return (dx, dgamma if wants and gamma is not None else None,
            dbeta if wants and context.has_beta else None, None, None)


_define("layer_norm(Tensor x, Tensor? gamma, Tensor? beta, SymInt columns, float epsilon)"
        " -> (Tensor, Tensor)", _layer_norm,
        lambda x, gamma, beta, columns, epsilon: (_dense_like(x), _statistics_like(x, columns)))
_define("layer_norm_backward(Tensor dy, Tensor x, Tensor statistics, Tensor? gamma, SymInt columns,"
        " bool wants_parameters) -> (Tensor, Tensor, Tensor)", _layer_norm_backward,
        lambda dy, x, statistics, gamma, columns, wants_parameters:
        (_dense_like(x), *(x.new_empty((columns if wants_parameters else 0,)) for _ in range(2))))
_differentiate("layer_norm", _backward_layer_norm, _setup_layer_norm)
layer_norm = _caller("layer_norm", _layer_norm, _backward_layer_norm, _setup_layer_norm)
record_layer_norm = _recorder("layer_norm", c.layer_norm, _backward_layer_norm, _save_layer_norm)
layer_norm_backward = _once_differentiable("layer_norm_backward", _layer_norm_gradients)


# --- channels: PReLU, BatchNorm + Add + ReLU ------------------------------------------------------------

def _is_channels_last(x):
    return (x.dim() == 4 and not x.is_contiguous()
            and x.is_contiguous(memory_format=torch.channels_last))


def _format_of(x):
    return torch.channels_last if _is_channels_last(x) else torch.contiguous_format


def _empty_in(x, like_format):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=like_format)


def _check_prelu(name, x, slope, dy=None):
    _check_channel_dtype(name, x)
    _check(name, x, x.dtype, 1 if slope.numel() == 1 or x.dim() < 2 else x.shape[1], weight=slope)
    _check(name, x, x.dtype, x.numel(), dy=dy)


def _prelu(x, slope):
    _check_prelu("prelu", x, slope)
    layout = _format_of(x)
    dense = _as_computed(x.contiguous(memory_format=layout))
    return _in(x.dtype, c.prelu(dense, _computed_rows(slope)))


def _prelu_gradients(dy, x, slope):
    layout = _format_of(x)
    dense = _as_computed(x.contiguous(memory_format=layout))
    own_dy = _as_computed(dy.contiguous(memory_format=layout))
    dx, dslope = c.prelu_backward(dense, own_dy, _computed_rows(slope))
    if slope.dim() != 1:
        dslope = dslope.reshape(slope.shape)
    return _in(x.dtype, dx), _in(slope.dtype, dslope)


def _prelu_backward(dy, x, slope):
    _check_prelu("prelu_backward", x, slope, dy)
    return _prelu_gradients(dy, x, slope)


def _setup_prelu(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward_prelu(context, dy):
    return prelu_backward(dy, *context.saved_tensors)


_define("prelu(Tensor x, Tensor slope) -> Tensor", _prelu,
        lambda x, slope: _empty_in(x, _format_of(x)))
_define("prelu_backward(Tensor dy, Tensor x, Tensor slope) -> (Tensor, Tensor)", _prelu_backward,
        lambda dy, x, slope: (_empty_in(x, _format_of(x)), torch.empty_like(slope)))
_differentiate("prelu", _backward_prelu, _setup_prelu)
prelu = _caller("prelu", _prelu, _backward_prelu, _setup_prelu)
record_prelu = _recorder("prelu", c.prelu, _backward_prelu, _setup_prelu)
prelu_backward = _once_differentiable("prelu_backward", _prelu_gradients)


def _mask_bytes(x):
    return (x.numel() + 7) // 8


def _mask_of(x):
    return x.new_empty((_mask_bytes(x),), dtype=torch.uint8)


def _batch_norm_add_relu(x, addend, gamma, beta, running_mean, running_var, uses_running, momentum,
                         epsilon):
    _check_channel_dtype("batch_norm_add_relu", x)
    _check("batch_norm_add_relu", x, x.dtype, x.numel(), addend=addend)
    _check("batch_norm_add_relu", x, torch.float32, x.shape[1], weight=gamma, bias=beta,
           running_mean=running_mean, running_var=running_var)
    layout = _format_of(x)
    dense = _as_computed(x.contiguous(memory_format=layout))
    added = None if addend is None else _as_computed(addend.contiguous(memory_format=layout))
    y, mask = torch.empty_like(dense), _mask_of(x)
    gamma, beta = gamma.contiguous(), beta.contiguous()
    mean, rstd = torch.zeros_like(gamma), torch.ones_like(gamma)
    # The operation is functional; what runs is copied by its caller.
    new_mean, new_var = running_mean.clone(), running_var.clone()
    c.batch_norm_relu(dense, added, gamma, beta, new_mean, new_var, y, mask, mean, rstd, uses_running,
                      momentum, epsilon)
    return _in(x.dtype, y), mask, mean, rstd, new_mean, new_var


def _batch_norm_gradients(dy, x, mask, mean, rstd, gamma, wants_addend, uses_running):
    layout = _format_of(x)
    dense = _as_computed(x.contiguous(memory_format=layout))
    own_dy = _as_computed(dy.contiguous(memory_format=layout))
    dx, gamma = torch.empty_like(dense), gamma.contiguous()
    daddend = torch.empty_like(dense) if wants_addend else None
    # Kernels write them as a whole, but none runs where x is empty.
    new_like = torch.empty_like if x.numel() > 0 else torch.zeros_like
    dgamma, dbeta = new_like(gamma), new_like(gamma)
    c.batch_norm_relu_backward(dense, own_dy, mask, mean, rstd, gamma, dx, daddend, dgamma, dbeta,
                               uses_running)
    daddend = x.new_empty((0,)) if daddend is None else _in(x.dtype, daddend)
    return _in(x.dtype, dx), daddend, dgamma, dbeta


def _batch_norm_add_relu_backward(dy, x, mask, mean, rstd, gamma, *flags):
    name = "batch_norm_add_relu_backward"
    _check_channel_dtype(name, x)
    _check(name, x, x.dtype, x.numel(), dy=dy)
    _check(name, x, torch.uint8, _mask_bytes(x), mask=mask)
    _check(name, x, torch.float32, x.shape[1], mean=mean, rstd=rstd, gamma=gamma)
    return _batch_norm_gradients(dy, x, mask, mean, rstd, gamma, *flags)


def _setup_batch_norm(ctx, inputs, output):
    x, addend, gamma, _, _, _, ctx.uses_running, _, _ = inputs
    _, mask, mean, rstd, new_mean, new_var = output
    ctx.has_addend = addend is not None
    ctx.mark_non_differentiable(mask, mean, rstd, new_mean, new_var)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, mask, mean, rstd, gamma)


def _backward_batch_norm(context, dy, *_):
    if dy is None:
        return (None,) * 9
    dx, daddend, dgamma, dbeta = batch_norm_add_relu_backward(
        dy, *context.saved_tensors, context.has_addend, context.uses_running)
    return (dx, daddend if context.has_addend else None, dgamma, dbeta) + (None,) * 5


_define("batch_norm_add_relu(Tensor x, Tensor? addend, Tensor gamma, Tensor beta, Tensor running_mean,"
        " Tensor running_var, bool uses_running, float momentum, float epsilon)"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)", _batch_norm_add_relu,
        lambda x, addend, gamma, beta, running_mean, running_var, uses_running, momentum, epsilon:
        (_empty_in(x, _format_of(x)), _mask_of(x), torch.empty_like(gamma), torch.empty_like(gamma),
         torch.empty_like(running_mean), torch.empty_like(running_var)))
_define("batch_norm_add_relu_backward(Tensor dy, Tensor x, Tensor mask, Tensor mean, Tensor rstd,"
        " Tensor gamma, bool wants_addend, bool uses_running) -> (Tensor, Tensor, Tensor, Tensor)",
        _batch_norm_add_relu_backward,
        lambda dy, x, mask, mean, rstd, gamma, wants_addend, uses_running:
        (_empty_in(x, _format_of(x)),
         _empty_in(x, _format_of(x)) if wants_addend else x.new_empty((0,)),
         torch.empty_like(gamma), torch.empty_like(gamma)))
_differentiate("batch_norm_add_relu", _backward_batch_norm, _setup_batch_norm)
batch_norm_add_relu = _caller("batch_norm_add_relu", _batch_norm_add_relu, _backward_batch_norm,
                              _setup_batch_norm)
batch_norm_add_relu_backward = _once_differentiable("batch_norm_add_relu_backward",
                                                    _batch_norm_gradients)
