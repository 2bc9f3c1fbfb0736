"""The operations as citizens of PyTorch: opcheck, gradcheck, its own samples, compile, modules."""
import math

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import bertha_kernels as bk
from tolerances import assert_close

OPS = torch.ops.bertha_kernels


def samples(device):
    """Operation and arguments for opcheck."""
    def r(*shape, **keywords):
        return torch.randn(*shape, device=device, **keywords)
    x, gamma, beta, image, slope = r(3, 40), r(40), r(40), r(2, 4, 5, 5), r(4)
    mean, var = r(4), torch.rand(4, device=device) + 0.5
    yield OPS.softmax.default, (x, False)
    yield OPS.softmax.default, (r(2, 3, 7).transpose(0, 2), True)
    yield OPS.softmax_backward.default, (r(3, 40), r(3, 40), False)
    for op in (OPS.layer_norm.default, OPS.layer_norm_inference.default):
        yield op, (x, gamma, beta, 40, 1e-5)
        yield op, (x, None, None, 40, 1e-5)
    for wants in (True, False):
        yield OPS.layer_norm_backward.default, (r(3, 40), r(3, 40), r(6), r(40), 40, wants)
    yield OPS.prelu.default, (image, slope)
    yield OPS.prelu.default, (
        r(2, 4, 5, 5).to(memory_format=torch.channels_last), slope)
    yield OPS.prelu_backward.default, (r(2, 4, 5, 5), r(2, 4, 5, 5), r(4))
    for addend in (None, r(2, 4, 5, 5)):
        tensors = (r(2, 4, 5, 5), addend, r(4), r(4), mean, var)
        yield OPS.batch_norm_add_relu.default, (*tensors, 0.1, 1e-5)
        yield OPS.batch_norm_add_relu_inference.default, (*tensors, 1e-5)
    mask = torch.randint(0, 255, (25,), dtype=torch.uint8, device=device)
    for wants in (True, False):
        yield OPS.batch_norm_add_relu_backward.default, (
            r(2, 4, 5, 5), r(2, 4, 5, 5), mask, r(8), r(4), wants, False)


def test_layer_norm_of_frozen_parameters(device):
    x = torch.randn(5, 40, device=device, requires_grad=True)
    gamma, beta = (torch.randn(40, device=device) for _ in range(2))
    for frozen in ((), (beta,), (gamma, beta)):
        for parameter in (gamma, beta):
            parameter.requires_grad_(all(parameter is not other for other in frozen))
        wanted = [t for t in (x, gamma, beta) if t.requires_grad]
        dy = torch.randn_like(x)
        found, expected = (torch.autograd.grad(norm(x, (40,), gamma, beta), wanted, dy) for norm in
                           (bk.layer_norm, torch.nn.functional.layer_norm))
        torch.testing.assert_close(found, expected)


def test_opcheck(device):
    for op, arguments in samples(device):
        torch.library.opcheck(op, arguments)


def test_gradcheck(device):
    def d(*shape):
        return torch.randn(*shape, dtype=torch.float64, device=device, requires_grad=True)
    for columns in (1, 5, 33):
        assert torch.autograd.gradcheck(bk.softmax, (d(3, columns),))
        assert torch.autograd.gradcheck(bk.log_softmax, (d(3, columns),))
        assert torch.autograd.gradcheck(lambda x, w, b: bk.layer_norm(x, [columns], w, b, 1e-3),
                                        (d(3, columns), d(columns), d(columns)), rtol=1e-2)


def test_gradcheck_in_float32(device):
    """Operations that are linear between their kinks: differences over a wide step have rounding
    errors only, as long as no element crosses zero."""
    x = torch.randn(2, 3, 4, device=device)
    x = (x + 0.25 * x.sign()).requires_grad_()  # away from zero
    slope = torch.rand(3, device=device, requires_grad=True)
    settings = {"eps": 2.0 ** -5, "atol": 1e-3, "rtol": 1e-3}
    with pytest.warns(UserWarning, match="not a double precision"):
        assert torch.autograd.gradcheck(bk.prelu, (x, slope), **settings)
    addend = torch.full((2, 3, 4), 4.0, device=device, requires_grad=True)  # no result is zero
    gamma = torch.rand(3, device=device, requires_grad=True)
    beta = torch.rand(3, device=device, requires_grad=True)
    with pytest.warns(UserWarning, match="not a double precision"):
        assert torch.autograd.gradcheck(
            lambda t, a, g, b: bk.batch_norm_add_relu(
                t, torch.zeros(3, device=device), torch.ones(3, device=device), g, b, addend=a),
            (x, addend, gamma, beta), **settings)


def test_second_derivatives_are_refused(device):
    x = torch.randn(2, 8, device=device, requires_grad=True)
    (dx,) = torch.autograd.grad(bk.softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        dx.sum().backward()


FUNCTIONS = {"softmax": lambda x, dim, dtype=None, **_: bk.softmax(x, dim, dtype),
             "log_softmax": lambda x, dim, dtype=None, **_: bk.log_softmax(x, dim, dtype),
             "nn.functional.layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5:
                 bk.layer_norm(x, shape, weight, bias, eps),
             "nn.functional.prelu": lambda x, weight: bk.prelu(x, weight)}


def cancelled(tensors, keywords, dy):
    """What f32 may leave of LayerNorm's dx where its terms cancel: each of the three is at most
    rstd * gamma * dy times the normalized row twice, and passes 8 roundings."""
    x, shape, *parameters = tensors
    columns = x.detach().reshape(-1, math.prod(shape))
    variance = columns.var(1, unbiased=False) + keywords.get("eps", 1e-5)
    normalized = (columns - columns.mean(1, keepdim=True)) / variance.sqrt()[:, None]
    gamma = parameters[0].detach().abs().max().item() if parameters and parameters[0] is not None else 1
    term = variance.rsqrt().max() * max(1, normalized.abs().max()) ** 2 * dy.abs().max() * gamma
    return max(1e-5, 3 * 8 * 2.0 ** -24 * term.item())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_samples_of_pytorch(name, dtype, device):
    """Forward and backward of the samples that PyTorch tests its own operation with, against PyTorch
    in float64."""
    compared = 0

    def widened(value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.detach().double().requires_grad_(value.requires_grad)
    for op in op_db:
        if op.name != name or (name.endswith("prelu") and dtype == torch.float64):
            continue
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            if sample.kwargs.get("eps", 1) < 0:  # of layer_norm, which refuses it
                with pytest.raises(ValueError, match="eps is .*, want 0 or more"):
                    FUNCTIONS[name](sample.input, *sample.args, **sample.kwargs)
                continue
            own = [sample.input, *sample.args, *sample.kwargs.values()]
            theirs = [widened(value) for value in own]
            count = 1 + len(sample.args)
            keywords = dict(zip(sample.kwargs, theirs[count:]))
            wanted = op.op(*theirs[:count], **keywords)
            found = FUNCTIONS[name](sample.input, *sample.args, **sample.kwargs)
            torch.testing.assert_close(found, wanted.to(found.dtype))
            assert found.dtype == op.op(*own[:count], **sample.kwargs).dtype
            leaves = [i for i, value in enumerate(own)
                      if isinstance(value, torch.Tensor) and value.requires_grad]
            if leaves and wanted.numel() > 0:
                dy = torch.randn_like(found)
                for mine, other in zip(
                        torch.autograd.grad(found, [own[i] for i in leaves], dy),
                        torch.autograd.grad(wanted, [theirs[i] for i in leaves], dy.to(wanted))):
                    # Of 16 bits: from y that was rounded, times a sum of dy.
                    loose = {"rtol": 0.02, "atol": 0.02} if dtype.itemsize == 2 else {}
                    if name.endswith("layer_norm") and dtype == torch.float32:
                        loose = {"rtol": 1.3e-6, "atol": cancelled(theirs, sample.kwargs, dy)}
                    torch.testing.assert_close(mine, other.to(mine.dtype), **loose)
            compared += 1
    assert compared > 3 or (name.endswith("prelu") and dtype == torch.float64)


def test_samples_of_batch_norm(device):
    """Those with parameters and running statistics, with the ReLU that the operation has."""
    compared = 0
    for op in op_db:
        if op.name != "nn.functional.batch_norm":
            continue
        for sample in op.sample_inputs(device, torch.float32):
            names = ["running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"]
            given = {**dict(zip(names, sample.args)), **sample.kwargs}
            tensors = [given.get(name) for name in names[:4]]
            if any(t is None for t in tensors) or sample.input.dim() < 2:
                continue
            own = [t.detach().clone() for t in tensors]
            theirs = [t.detach().double() for t in tensors]
            rest = {name: given[name] for name in names[4:] if name in given}
            if rest.get("training", False) and not 0 <= rest.get("momentum", 0.1) <= 1:
                with pytest.raises(ValueError, match="momentum is .*, want a value in"):
                    bk.batch_norm_add_relu(sample.input, *own, **rest)
                continue
            found = bk.batch_norm_add_relu(sample.input, *own, **rest)
            wanted = torch.relu(op.op(sample.input.double(), *theirs, **rest))
            torch.testing.assert_close(found, wanted.float())
            torch.testing.assert_close(own[:2], [t.float() for t in theirs[:2]])
            compared += 1
    assert compared > 3


def test_compile_has_no_graph_breaks(device):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = bk.LayerNorm(24)
            self.batch_norm = bk.BatchNormAddReLU(3)
            self.prelu = bk.PReLU(3)
            self.softmax = bk.Softmax(-1)
            self.log_softmax = bk.LogSoftmax(1)

        def forward(self, x):
            y = self.batch_norm(self.norm(x), x)
            return self.softmax(self.prelu(y - 1)) + self.log_softmax(y)

    x = torch.randn(2, 3, 5, 24, device=device)
    eager, compiled = Network().to(device), Network().to(device)
    compiled.load_state_dict(eager.state_dict())
    run = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        wanted, found = eager(x), run(x)
        torch.testing.assert_close(found, wanted)
        wanted.square().sum().backward()
        found.square().sum().backward()
    for (name, one), (_, other) in zip(eager.named_parameters(), compiled.named_parameters()):
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    torch.testing.assert_close(eager.batch_norm.running_var, compiled.batch_norm.running_var)


def test_compile_of_an_addend_that_is_x(device):
    norm = bk.BatchNormAddReLU(3).to(device).eval()
    run = torch.compile(lambda x: norm(x, x), fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 5, device=device, requires_grad=True)
    wanted, found = (torch.autograd.grad(f(x).square().sum(), x) for f in (lambda x: norm(x, x), run))
    torch.testing.assert_close(found, wanted)


def test_functions_are_nodes_of_fx_graphs(device):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = bk.LayerNorm(8)

        def forward(self, x):
            return bk.softmax(self.norm(x))
    network, x = Network().to(device), torch.randn(4, 8, device=device)
    traced = torch.fx.symbolic_trace(network)
    called = [node.target.__name__ for node in traced.graph.nodes if node.op == "call_function"]
    assert called == ["layer_norm", "softmax"] and torch.equal(traced(x), network(x))


def test_modules_replace_those_of_torch(device):
    x = torch.randn(4, 6, 5, 5, device=device)
    pairs = [(torch.nn.Softmax(1), bk.Softmax(1)), (torch.nn.LogSoftmax(-1), bk.LogSoftmax(-1)),
             (torch.nn.LayerNorm([5, 5]), bk.LayerNorm([5, 5])), (torch.nn.PReLU(6), bk.PReLU(6))]
    for theirs, ours in pairs:
        ours.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(ours.to(device)(x), theirs.to(device)(x))
    theirs, ours = torch.nn.BatchNorm2d(6).to(device), bk.BatchNormAddReLU(6, device=device)
    ours.load_state_dict(theirs.state_dict())
    for training in (True, True, False):
        theirs.train(training)
        ours.train(training)
        torch.testing.assert_close(ours(x, x), torch.relu(theirs(x) + x))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    old = theirs.state_dict()
    del old["num_batches_tracked"], old._metadata  # as PyTorch before 0.4.1 saved it
    ours.load_state_dict(old)
    assert repr(ours).startswith("BatchNormAddReLU(6, eps=1e-05, momentum=0.1")


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_without_a_dim_the_last_axis_is_taken(device):
    """By functions and modules. A module refuses ranks for which torch.nn takes another axis."""
    for rank in range(1, 5):
        x = torch.randn([2, 3, 4, 5][:rank], device=device)
        for name in ("softmax", "log_softmax"):
            assert torch.equal(getattr(bk, name)(x), getattr(bk, name)(x, rank - 1))
        for name in ("Softmax", "LogSoftmax"):
            ours, theirs = getattr(bk, name)(), getattr(torch.nn, name)()
            if rank < 3:
                torch.testing.assert_close(ours(x), theirs(x))
                continue
            with pytest.raises(ValueError, match=f"{name}: dim is None .*over axis {rank % 3}.*give a dim"):
                ours(x)


def test_batch_norm_stays_float32_in_a_converted_model(device):
    norm, x = bk.BatchNormAddReLU(3), torch.randn(4, 3, 5, device=device)
    torch.nn.init.normal_(norm.weight)
    wanted = norm.state_dict()
    for convert in (torch.nn.Module.bfloat16, torch.nn.Module.half,
                    lambda model: model.to(device, torch.bfloat16)):
        converted = convert(torch.nn.Sequential(norm)).to(device)
        torch.testing.assert_close(norm.state_dict(), wanted, check_device=False)
        assert converted.eval()(x.bfloat16()).dtype == torch.bfloat16
    assert norm.to("meta").weight.is_meta


def test_wrong_arguments_are_refused(device):
    x = torch.zeros(2, 3, device=device)
    with pytest.raises(ValueError, match=r"layer_norm: normalized_shape is \(4,\)"):
        bk.layer_norm(x, [4])
    with pytest.raises(ValueError, match=r"layer_norm: normalized_shape is \(1,\), want the last axes"):
        bk.layer_norm(x[0, 0], [1])
    with pytest.raises(RuntimeError, match=r"layer_norm_fwd: gamma is f32 \[4\], want f32 \[3\]"):
        bk.layer_norm(x, [3], torch.ones(4, device=device))
    with pytest.raises(RuntimeError, match="layer_norm: a parameter has several axes, want one"):
        bk.layer_norm(x, [3], None, torch.ones(1, 3, device=device))
    with pytest.raises(ValueError, match=r"layer_norm: weight is \(3, 2\), want \(2, 3\)"):
        bk.layer_norm(x, [2, 3], torch.ones(3, 2, device=device))
    with pytest.raises(ValueError, match=r"prelu: weight is \(2,\), want 1 or 3 elements"):
        bk.prelu(x, torch.zeros(2, device=device))
    with pytest.raises(TypeError, match="softmax: x is torch.int64"):
        bk.softmax(torch.zeros(2, 3, dtype=torch.int64, device=device))
    with pytest.raises(ValueError, match="batch_norm_add_relu: weight is"):
        bk.batch_norm_add_relu(x, torch.zeros(3), torch.ones(3), torch.ones(4), torch.zeros(3))
    with pytest.raises(ValueError, match=r"batch_norm_add_relu: running_mean is None, want torch.float32"):
        bk.batch_norm_add_relu(x, None, None, torch.ones(3), torch.zeros(3), training=True)
    with pytest.raises(ValueError, match=r"x is \(1, 3\), want more than one value of each channel"):
        bk.BatchNormAddReLU(3, device=device)(x[:1])
    with pytest.raises(IndexError, match="softmax: dim is 5, want -1 to 0"):
        bk.softmax(x[0, 0], 5)
    if device == "cuda":  # kernels would read addresses of the host
        with pytest.raises(RuntimeError, match="layer_norm: found a tensor on cpu, want all on cuda:0"):
            bk.layer_norm(x, [3], torch.ones(3))


def test_views_that_negate(device):
    x = torch.randn(3, 8, device=device)
    torch.testing.assert_close(bk.softmax(torch._neg_view(x)), torch.softmax(-x, -1))


def test_operations_called_directly_check_what_kernels_read(device):
    x, short = torch.randn(2, 8, device=device), torch.randn(4, device=device)
    half, good = torch.zeros(8, device=device, dtype=torch.float64), torch.ones(8, device=device)
    statistics, mask = torch.zeros(4, device=device), torch.zeros(2, dtype=torch.uint8, device=device)

    def refused(match, op, *arguments):
        with pytest.raises((ValueError, RuntimeError), match=match):
            op(*arguments)
    refused(r"layer_norm_fwd: gamma is f32 \[4\], want f32 \[8\]", OPS.layer_norm, x, short, None, 8, 1e-5)
    refused(r"layer_norm_fwd: beta is f64 \[8\], want f32", OPS.layer_norm, x, None, half, 8, 1e-5)
    refused(r"prelu_fwd: slope is f32 \[4\], want f32 \[8\]", OPS.prelu, x, short)
    refused(r"batch_norm_relu_fwd: running_mean is f32 \[4\]", OPS.batch_norm_add_relu,
            x, None, good, good, short, good, 0.1, 1e-5)
    for columns in (5, 0, 32):
        refused(f"layer_norm: columns is {columns}, want a divisor of x's 16 elements",
                OPS.layer_norm, x, None, None, columns, 1e-5)
    for wrong in (short, x.double()):
        match = "_bwd: (dy|x|y) is .*, want"
        refused(match, OPS.softmax_backward, wrong, x, False)
        refused(match, OPS.layer_norm_backward, wrong, x, statistics, None, 8, False)
        refused(match, OPS.prelu_backward, wrong, x, good)
        refused(match, OPS.batch_norm_add_relu_backward, wrong, x, mask, torch.zeros(16, device=device),
                good, False, False)
    refused(r"mean is f32 \[1\], want f32 \[2\]", OPS.layer_norm_backward, x, x, statistics[:2], None, 8,
            False)
    refused(r"mask is u8 \[1\], want u8 \[2\]", OPS.batch_norm_add_relu_backward, x, x, mask[:1],
            torch.zeros(16, device=device), good, False, False)
    with pytest.raises(ValueError, match="momentum is None, want a number"):
        bk.BatchNormAddReLU(8, momentum=None)


def test_parameters_on_the_meta_device_are_refused(device):
    x = torch.randn(4, 8, device=device)
    for module in (bk.LayerNorm(8, device="meta"), bk.PReLU(8, device="meta"),
                   bk.BatchNormAddReLU(8, device="meta")):
        with torch.no_grad(), pytest.raises(ValueError, match="tensors are on .*meta"):
            module(x)


def of_channels(device):
    """Each operation as a function of x [.., 8] and a parameter [8]."""
    mean, var = torch.randn(8, device=device), torch.rand(8, device=device) + 0.5
    return {"softmax": lambda x, p: bk.softmax(x * p, 0), "log_softmax": lambda x, p: bk.log_softmax(x * p),
            "layer_norm": lambda x, p: bk.layer_norm(x, (8,), p, p), "prelu": bk.prelu,
            "batch_norm_add_relu": lambda x, p: bk.batch_norm_add_relu(x, mean, var, p, p, addend=x)}


def test_transforms_of_torch_func(device):
    x, p = torch.randn(3, 4, 8, device=device), torch.rand(3, 8, device=device)
    for name, run in of_channels(device).items():
        def loss(x, p):
            return run(x, p).square().sum()
        leaves = x.clone().requires_grad_(), p.clone().requires_grad_()
        wanted = torch.autograd.grad(sum(map(loss, *leaves)), leaves)
        of_each = torch.func.vmap(torch.func.grad(loss, (0, 1)))(x, p)
        of_all = torch.func.grad(lambda x, p: torch.func.vmap(loss)(x, p).sum(), (0, 1))(x, p)
        of_leaves = torch.autograd.grad(torch.func.vmap(loss)(*leaves).sum(), leaves)
        for found in (of_each, of_all, of_leaves):
            torch.testing.assert_close(found, wanted, msg=lambda text: f"{name}: {text}")
        with pytest.raises(NotImplementedError, match="second derivative"):
            torch.func.grad(lambda x: torch.func.grad(loss)(x, p[0]).sum())(x[0])


def test_forward_mode_is_refused(device):
    x, p = torch.randn(4, 8, device=device), torch.rand(8, device=device)
    for name, run in of_channels(device).items():
        def derivative(x):
            return torch.func.jvp(lambda t: run(t, p), (x,), (x,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            with pytest.raises(NotImplementedError, match="forward mode AD"):
                run(dual, p)
            assert torch.equal(run(x, p), run(x.clone(), p))
        for refused in (derivative, torch.compile(derivative, backend="aot_eager"),
                        lambda t: torch.func.linearize(lambda t: run(t, p), t),
                        lambda t: torch.func.vmap(torch.func.jacfwd(run))(t[None], p[None])):
            with pytest.raises(NotImplementedError, match="forward mode"):
                refused(x)


def test_meta_tensors_have_shapes_only():
    x = torch.empty(2, 3, device="meta")
    assert bk.softmax(x).shape == bk.layer_norm(x, [3]).shape == (2, 3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_current_device_stays():
    x = torch.randn(4, 8, device="cuda:1", requires_grad=True)
    for called in (x, x.detach()):
        torch.testing.assert_close(bk.softmax(called), torch.softmax(called, -1))
    bk.softmax(x).square().sum().backward()
    assert torch.cuda.current_device() == 0


def test_gradients_of_integers_are_refused(device):
    y, ops = torch.ones(2, 8, dtype=torch.int32, device=device), torch.ops.bertha_kernels
    for call in (lambda: ops.softmax_backward(y, y, False), lambda: ops.prelu_backward(y, y, y[0]),
                 lambda: ops.layer_norm_backward(y, y, torch.ones(4, device=device), None, 8, True)):
        with pytest.raises((ValueError, RuntimeError), match="found a tensor of dtype Int, want"):
            call()


def test_float32_parameters_next_to_16_bits(device):
    """As PyTorch has them: a step that 16 bits would round away changes y, and gradients are float32."""
    for dtype in (torch.float16, torch.bfloat16):
        for columns in (24, 1024, 4104):
            x = torch.randn(5, columns, device=device, dtype=dtype)
            gamma = torch.full((columns,), 1 + 2.0 ** -12, device=device, requires_grad=True)
            beta = torch.full((columns,), 2.0 ** -12, device=device, requires_grad=True)
            dy = torch.randn_like(x)
            y = bk.layer_norm(x, (columns,), gamma, beta)
            assert y.dtype == dtype
            found = torch.autograd.grad(y, (gamma, beta), dy)
            double = [t.detach().double().requires_grad_() for t in (gamma, beta)]
            wanted_y = torch.nn.functional.layer_norm(x.double(), (columns,), *double)
            wanted = torch.autograd.grad(wanted_y, double, dy.double())
            for mine, other in zip(found, wanted):
                assert mine.dtype == torch.float32
                # Sums of five terms below 20, each with a chain of roundings of float32.
                assert_close(mine, other, 16, 5 * 20.0)
            alone = torch.autograd.grad(bk.layer_norm(x, (columns,), None, beta), beta, dy)[0]
            assert_close(alone, wanted[1], 16, 5 * 20.0)
            mixed = torch.autograd.grad(bk.layer_norm(x, (columns,), gamma.to(dtype), beta), beta, dy)[0]
            assert mixed.dtype == torch.float32
    # Training does not stop where a step is too small for bfloat16.
    norm = bk.LayerNorm(24).to(device)
    for _ in range(8):
        norm.weight.data += 2.0 ** -10
    x = torch.randn(64, 24, device=device, dtype=torch.bfloat16)
    ratio = norm(x).float().abs().sum() / bk.LayerNorm(24).to(device)(x).float().abs().sum()
    torch.testing.assert_close(ratio.item(), 1 + 2.0 ** -7, rtol=2.0 ** -9, atol=0)


def test_autocast(device):
    x = torch.randn(3, 16, device=device, requires_grad=True)
    norm = bk.LayerNorm(16).to(device)  # float32 parameters
    with torch.autocast(device, dtype=torch.bfloat16):
        y = norm(torch.nn.functional.linear(x, torch.eye(16, device=device)))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), torch.nn.functional.layer_norm(x.bfloat16().float(), [16]),
                               rtol=2.0 ** -8, atol=1e-6)
    y.sum().backward()
    assert norm.weight.grad.dtype == torch.float32


def test_inputs_of_other_kinds_are_refused_in_a_sentence(device):
    x = torch.randn(2, 3, device=device)
    for name, arguments in (("softmax", ()), ("log_softmax", ()), ("layer_norm", ((3,),)),
                            ("prelu", (x[0],)), ("batch_norm_add_relu", (x[0],) * 4)):
        with pytest.raises(TypeError, match=f"{name}: x is of <class 'list'>, want a torch.Tensor"):
            getattr(bk, name)([[1.0, 2.0, 3.0]], *arguments)
    for dim in (True, 1.0, None):
        with pytest.raises(TypeError, match=f"softmax: dim is {dim}, want an int"):
            bk.softmax(x, dim)
    with pytest.raises(IndexError, match="log_softmax: dim is 2, want -2 to 1 for x with 2 axes"):
        bk.log_softmax(x, 2)
    with pytest.raises(ValueError, match="layer_norm: eps is nan, want 0 or more"):
        bk.layer_norm(x, (3,), eps=math.nan)
