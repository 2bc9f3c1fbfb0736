"""torch.ops.bertha_kernels.*: the operators, which libbertha_kernels_torch.so implements, and functions
that record their derivatives.

Rows are the last axis, or the last axes that the parameters of LayerNorm span; channels are axis 1.
Results are dense. PReLU and BatchNorm return a dense channels-last x in the same layout.

The operators have no derivative: with one, every call of an operator would pass through Python. The
functions here call the operator if autograd records nothing, and an autograd.Function if it does.
Second derivatives and forward mode are errors.
"""
import pathlib

import torch
from torch.autograd import forward_ad

if torch.__version__ < "2.10":
    raise ImportError(f"bertha_kernels needs PyTorch 2.10 or newer, found {torch.__version__}")

_LIBRARY = torch.library.Library("bertha_kernels", "DEF")
_OPS = torch.ops.bertha_kernels

# Private names: without them, every call runs as it does in a transform of torch.func, which is slower.
_is_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_is_functionalized = getattr(torch, "_is_functional_tensor", lambda tensor: False)
_is_compiling = torch.compiler.is_dynamo_compiling


def _define(schema, fake):
    """An operator, and a function that makes its results without data."""
    _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    name = schema.split("(")[0]

    def checked_fake(*inputs):
        """PyTorch calls this instead of the kernel if any tensor is on the meta device."""
        devices = {t.device for t in inputs if isinstance(t, torch.Tensor)}
        if len(devices) > 1:
            raise ValueError(f"{name}: tensors are on {' and '.join(sorted(map(str, devices)))}, want "
                             "one device")
        return fake(*inputs)
    torch.library.register_fake(f"bertha_kernels::{name}", checked_fake, lib=_LIBRARY)


def _slice_by_slice(function):
    """The vmap rule that calls `function` for each slice."""
    def rule(info, in_dims, *inputs):
        results = [function(*(x if axis is None else x.select(axis, i)
                              for x, axis in zip(inputs, in_dims)))
                   for i in range(info.batch_size)]
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results), 0
        return tuple(map(torch.stack, zip(*results))), (0,) * len(results[0])
    return rule


def _recorded(name, tensors, backward, setup_context, plain=None, vmap=None):
    """The operator `name` as a function with a derivative; its first `tensors` arguments are tensors or
    None. With `plain`, an operator that computes the first result only, the function returns that one."""
    operator = getattr(_OPS, name).default

    def forward(ctx, *inputs):
        output = operator(*inputs)
        setup_context(ctx, inputs, output)
        return output

    def caller(plain):
        unrecorded = plain or operator
        # Without the call in Python that only passes arguments on. Compilers have to see the operator.
        direct = getattr(unrecorded, "_op", unrecorded)

        def call(*inputs):
            is_transformed = _is_transformed() and not _is_functionalized(inputs[0])
            # autograd.Function refuses tangents, which an operator would drop.
            has_tangents = getattr(forward_ad, "_current_level", 0) >= 0
            is_recorded = is_transformed or has_tangents
            for tensor in inputs[:tensors]:
                if tensor is not None and tensor.requires_grad:
                    is_recorded = is_recorded or torch.is_grad_enabled()
                    break
            if not is_recorded:
                return (unrecorded if _is_compiling() else direct)(*inputs)
            if has_tangents and _is_compiling():
                raise NotImplementedError(f"bertha_kernels::{name} has no derivative in forward mode AD")
            results = (Transformed if is_transformed else Recorded).apply(*inputs)
            return results[0] if plain else results
        return call

    # A setup_context of its own costs a call 15 us, but torch.func needs one.
    traced_name = f"bertha_kernels_{name}"
    Recorded = type(traced_name, (torch.autograd.Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward)})
    Transformed = type(traced_name, (torch.autograd.Function,), {
        "forward": staticmethod(lambda *inputs: operator(*inputs)),
        "setup_context": staticmethod(setup_context), "backward": staticmethod(backward),
        "vmap": staticmethod(vmap or _slice_by_slice(caller(None)))})
    return caller(plain)


def _once_differentiable(name, tensors):
    """The function of an operator that computes a derivative."""
    def refuse(context, *_):
        raise NotImplementedError(f"bertha_kernels::{name} has no derivative: a second derivative was "
                                  "asked for")
    return _recorded(name, tensors, refuse, lambda ctx, inputs, output: None)


def _dense_like(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


# --- softmax and log-softmax over the last axis ------------------------------------------------------

_define("softmax(Tensor x, bool is_log) -> Tensor", lambda x, is_log: _dense_like(x))
_define("softmax_backward(Tensor dy, Tensor y, bool is_log) -> Tensor",
        lambda dy, y, is_log: _dense_like(y))


def _setup_softmax(ctx, inputs, output):
    ctx.save_for_backward(output)
    ctx.is_log = inputs[1]


def _backward_softmax(ctx, dy):
    return softmax_backward(dy, *ctx.saved_tensors, ctx.is_log), None


# --- LayerNorm over the last `columns` elements -------------------------------------------------------

def _statistics_like(x, columns):
    count = 2 * (x.numel() // columns) if columns > 0 else 0
    return x.new_empty(count, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)


_define("layer_norm(Tensor x, Tensor? gamma, Tensor? beta, SymInt columns, float epsilon)"
        " -> (Tensor, Tensor)",
        lambda x, gamma, beta, columns, epsilon: (_dense_like(x), _statistics_like(x, columns)))
_define("layer_norm_inference(Tensor x, Tensor? gamma, Tensor? beta, SymInt columns, float epsilon)"
        " -> Tensor",
        lambda x, gamma, beta, columns, epsilon: _dense_like(x))
_define("layer_norm_backward(Tensor dy, Tensor x, Tensor statistics, Tensor? gamma, SymInt columns,"
        " bool wants_parameters) -> (Tensor, Tensor, Tensor)",
        lambda dy, x, statistics, gamma, columns, wants_parameters:
        (_dense_like(x), *((statistics if gamma is None else gamma).new_empty(
            (columns if wants_parameters else 0,)) for _ in range(2))))


def _setup_layer_norm(ctx, inputs, output):
    x, gamma, beta, ctx.columns, _ = inputs
    _, statistics = output
    ctx.has_beta = beta is not None
    ctx.mark_non_differentiable(statistics)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, statistics, gamma)


def _backward_layer_norm(ctx, dy, _):
    if dy is None:
        return (None,) * 5
    x, statistics, gamma = ctx.saved_tensors
    wants = any(ctx.needs_input_grad[1:3])
    dx, dgamma, dbeta = layer_norm_backward(dy, x, statistics, gamma, ctx.columns, wants)
    return (dx, dgamma if wants and gamma is not None else None,
            dbeta if wants and ctx.has_beta else None, None, None)


# --- channels: PReLU, BatchNorm + Add + ReLU -----------------------------------------------------------

def _dense_in_layout(x):
    is_channels_last = (x.dim() == 4 and not x.is_contiguous()
                        and x.is_contiguous(memory_format=torch.channels_last))
    layout = torch.channels_last if is_channels_last else torch.contiguous_format
    return torch.empty(x.shape, dtype=x.dtype, device=x.device, memory_format=layout)


_define("prelu(Tensor x, Tensor slope) -> Tensor", lambda x, slope: _dense_in_layout(x))
_define("prelu_backward(Tensor dy, Tensor x, Tensor slope) -> (Tensor, Tensor)",
        lambda dy, x, slope: (_dense_in_layout(x), torch.empty_like(slope)))


def _setup_prelu(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _backward_prelu(ctx, dy):
    return prelu_backward(dy, *ctx.saved_tensors)


def _batch_norm_results(x, *_):
    return (_dense_in_layout(x), x.new_empty((x.numel() + 7) // 8, dtype=torch.uint8),
            x.new_empty(2 * x.shape[1], dtype=torch.float32))


_define("batch_norm_add_relu(Tensor x, Tensor? addend, Tensor gamma, Tensor beta,"
        " Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, float epsilon)"
        " -> (Tensor, Tensor, Tensor)", _batch_norm_results)
_define("batch_norm_add_relu_inference(Tensor x, Tensor? addend, Tensor gamma, Tensor beta,"
        " Tensor running_mean, Tensor running_var, float epsilon) -> (Tensor, Tensor, Tensor)",
        _batch_norm_results)
_define("batch_norm_add_relu_backward(Tensor dy, Tensor x, Tensor mask, Tensor statistics,"
        " Tensor gamma, bool wants_addend, bool uses_running) -> (Tensor, Tensor, Tensor, Tensor)",
        lambda dy, x, mask, statistics, gamma, wants_addend, uses_running:
        (_dense_in_layout(x), _dense_in_layout(x) if wants_addend else x.new_empty((0,)),
         torch.empty_like(gamma), torch.empty_like(gamma)))


def _setup_batch_norm(ctx, inputs, output):
    x, addend, gamma = inputs[:3]
    _, mask, statistics = output
    ctx.has_addend = addend is not None
    ctx.inputs = len(inputs)
    ctx.mark_non_differentiable(mask, statistics)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, mask, statistics, gamma)


def _backward_batch_norm(uses_running):
    def backward(ctx, dy, *_):
        if dy is None:
            return (None,) * ctx.inputs
        dx, daddend, dgamma, dbeta = batch_norm_add_relu_backward(
            dy, *ctx.saved_tensors, ctx.has_addend, uses_running)
        rest = (None,) * (ctx.inputs - 4)
        return (dx, daddend if ctx.has_addend else None, dgamma, dbeta, *rest)
    return backward


def _refuse_vmap(info, in_dims, *inputs):
    raise NotImplementedError("batch_norm_add_relu: vmap does not update running statistics; call it "
                              "with training=False, or outside vmap")


# --- the functions ----------------------------------------------------------------------------------------

torch.ops.load_library(pathlib.Path(__file__).parent / "libbertha_kernels_torch.so")

softmax = _recorded("softmax", 1, _backward_softmax, _setup_softmax)
softmax_backward = _once_differentiable("softmax_backward", 2)
layer_norm = _recorded("layer_norm", 3, _backward_layer_norm, _setup_layer_norm,
                       _OPS.layer_norm_inference.default)
layer_norm_backward = _once_differentiable("layer_norm_backward", 4)
prelu = _recorded("prelu", 2, _backward_prelu, _setup_prelu)
prelu_backward = _once_differentiable("prelu_backward", 3)
batch_norm_add_relu = _recorded("batch_norm_add_relu", 4, _backward_batch_norm(False),
                                _setup_batch_norm, vmap=_refuse_vmap)
batch_norm_add_relu_inference = _recorded("batch_norm_add_relu_inference", 4,
                                          _backward_batch_norm(True), _setup_batch_norm)
batch_norm_add_relu_backward = _once_differentiable("batch_norm_add_relu_backward", 5)
