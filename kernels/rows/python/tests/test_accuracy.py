"""Values and gradients against PyTorch in float64: widths, dtypes, extreme values, strides."""
import pytest
import torch
import torch.nn.functional as F

import bertha_kernels as bk
from tolerances import assert_close

FLOATING = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
CHANNEL = [torch.float32, torch.float16, torch.bfloat16]
# On both sides of what registers of lanes, warps and blocks and shared memory hold.
WIDTHS = [1, 2, 7, 31, 32, 33, 100, 256, 257, 511, 512, 545, 1000, 1024, 1025, 1032, 4095, 4096, 4104,
          8192, 8193, 8200, 16384, 16392, 30522, 33792, 33800, 65536, 112640, 131071, 131072]


def rows_of(kind, columns, dtype, device, scale=1.0):
    """[5, columns] as `kind` says, exact in dtype."""
    x = torch.randn(5, columns, dtype=torch.float64) * scale
    if kind == "outlier first":  # what kernels take their sums around
        x[:, 0] = 1000.0
    elif kind == "large mean":
        x += 1000.0
    elif kind == "constant":
        x[:] = 3.0
    return x.to(dtype).to(device)


def with_gradient(function, *inputs):
    leaves = [i.detach().clone().requires_grad_() for i in inputs]
    y = function(*leaves)
    dy = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape).to(y)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


def doubles(tensors):
    return [t.double().cpu() for t in tensors]


def assert_same_dy(y):
    """dy of with_gradient is rounded to y's dtype: the reference takes the same."""
    return torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype)


def reference_gradient(function, rounded_y, *inputs):
    """In float64 on the CPU, with the dy that with_gradient took."""
    leaves = [i.double().cpu().requires_grad_() for i in inputs]
    y = function(*leaves)
    dy = assert_same_dy(rounded_y.cpu()).double()
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_all_widths(name, dtype, device):
    for columns in WIDTHS:
        x = rows_of("random", columns, dtype, device, scale=4.0)
        y, dx = with_gradient(lambda t: getattr(bk, name)(t), x)
        wanted_y, _ = reference_gradient(lambda t: getattr(torch, name)(t, -1), y, x)
        # 2^x within two units, a sum of columns / 32 terms a lane; log-softmax: x - top rounds, too.
        roundings = 64 + columns / 256
        magnitude = 1.0 if name == "softmax" else 20.0
        assert_close(y, wanted_y, roundings, magnitude)
        # From the y that was stored, as the kernel has it.
        stored, dy = y.double().cpu(), assert_same_dy(y.cpu()).double()
        if name == "softmax":
            wanted_dx = stored * (dy - (stored * dy).sum(-1, keepdim=True))
            assert_close(dx, wanted_dx, 4 * roundings, 1.0)
        else:
            total = dy.sum(-1, keepdim=True)
            wanted_dx = dy - stored.exp() * total
            # exp(y) of the hardware takes y times log2 e, rounded: |y| < 20 and exp(y) < 1.
            assert_close(dx, wanted_dx, 4 * roundings, (1.0 + total.abs().max().item()) * 4.0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_softmax_of_extreme_values(dtype, device):
    infinity = float("inf")
    largest = torch.finfo(dtype).max
    for columns in (4, 40, 1024, 2048, 30522):
        x = torch.zeros(6, columns, dtype=dtype, device=device)
        x[0, 0] = largest
        x[1] = -largest
        x[2, 1:] = -infinity
        x[3] = -infinity
        x[4, 2] = float("nan")
        x[5, 3] = infinity
        y = bk.softmax(x).double().cpu()
        wanted = torch.softmax(x.double().cpu(), -1)
        wanted[3] = 0  # documented; PyTorch gives NaN
        assert_close(y.to(dtype), wanted, 64 + columns / 256, 1.0)
        log_y = bk.log_softmax(x).double().cpu()
        assert torch.equal(log_y[3], torch.full((columns,), -infinity, dtype=torch.float64))
        assert log_y[4].isnan().all() and log_y[5].isnan().all()
        assert log_y[2, 0] == 0 and (log_y[2, 1:] == -infinity).all()


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("kind", ["random", "outlier first", "large mean", "constant"])
def test_layer_norm_of_all_widths(kind, dtype, device):
    epsilon = 2.0 ** -10
    for columns in WIDTHS:
        x = rows_of(kind, columns, dtype, device)
        gamma = (torch.rand(columns, dtype=torch.float64) + 0.5).to(dtype).to(device)
        beta = torch.randn(columns, dtype=torch.float64).to(dtype).to(device)
        y, dx, dgamma, dbeta = with_gradient(
            lambda t, g, b: bk.layer_norm(t, [columns], g, b, epsilon), x, gamma, beta)
        wanted = reference_gradient(
            lambda t, g, b: F.layer_norm(t, [columns], g, b, epsilon), y, x, gamma, beta)
        spread = x.double().std(-1, unbiased=False).min().item() if columns > 1 else 0.0
        deviation = (spread ** 2 + epsilon) ** 0.5
        # A mean near 1000 is a float32 number: half its unit in the last place, by deviations. Of 16
        # bits the variance is taken around the first element up to 1,024 columns, around the mean of
        # 32 beyond: an outlier there costs a factor of columns, or of columns / 32.
        shift = 1000.0 / deviation if kind in ("outlier first", "large mean", "constant") else 1.0
        normalized = (columns ** 0.5 if kind == "outlier first" else 6.0)
        loss = 0
        if kind == "outlier first" and dtype.itemsize == 2:
            loss = columns if columns <= 1024 else columns / 32
        roundings = 16 + loss
        assert_close(y, wanted[0], roundings, max(2 * normalized, 2 * shift) + 4)
        scale = 1.0 / deviation
        terms = max(normalized, shift)
        assert_close(dx, wanted[1], 16 * roundings, scale * terms * 3 * (1 + normalized))
        assert_close(dgamma, wanted[2], 16 * roundings, 5 * terms * 2)
        assert_close(dbeta, wanted[3], 16, 5.0)


@pytest.mark.parametrize("dtype", CHANNEL)
def test_prelu_of_extents(dtype, device):
    for shape in [(1,), (7,), (3, 5), (2, 3, 1), (2, 4, 7, 7), (3, 8, 16, 16), (2, 64, 33)]:
        channels = shape[1] if len(shape) > 1 else 1
        for count in {1, channels}:
            x = torch.randn(shape, dtype=torch.float64).to(dtype).to(device)
            slope = torch.randn(count, dtype=torch.float64).to(dtype).to(device)
            y, dx, dslope = with_gradient(bk.prelu, x, slope)
            wanted = reference_gradient(F.prelu, y, x, slope)
            assert_close(y, wanted[0], 0)
            assert_close(dx, wanted[1], 0)
            assert_close(dslope, wanted[2], 16, 4.0 * x.numel() ** 0.5 * 4)


def test_prelu_of_extreme_values(device):
    x = torch.tensor([[0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3e38, -3e38]],
                     device=device)
    slope = torch.tensor([0.5], device=device)
    torch.testing.assert_close(bk.prelu(x, slope), F.prelu(x, slope), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", CHANNEL)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_add_relu(dtype, training, device):
    for shape in [(4, 3), (5, 8, 1), (2, 3, 7, 7), (6, 16, 8, 8), (3, 8, 33)]:
        for has_addend in (False, True):
            x = torch.randn(shape, dtype=torch.float64).to(dtype).to(device)
            addend = torch.randn(shape, dtype=torch.float64).to(dtype).to(device)
            channels = shape[1]
            gamma = torch.rand(channels, device=device) + 0.5
            beta = torch.randn(channels, device=device)
            mean, var = torch.randn(channels, device=device), torch.rand(channels, device=device) + 0.5
            own_mean, own_var = mean.clone(), var.clone()
            inputs = [x, gamma, beta] + ([addend] if has_addend else [])
            found = with_gradient(lambda t, g, b, a=None: bk.batch_norm_add_relu(
                t, own_mean, own_var, g, b, training, addend=a), *inputs)
            ref_mean, ref_var = mean.double().cpu(), var.double().cpu()

            def reference(t, g, b, a=None):
                y = F.batch_norm(t, ref_mean, ref_var, g, b, training)
                # Zero or not is decided by the rounded y.
                y = y if a is None else y + a
                return torch.where(found[0].cpu() != 0, y, torch.zeros((), dtype=y.dtype))

            wanted = reference_gradient(reference, found[0], *inputs)
            for index, (actual, expected) in enumerate(zip(found, wanted)):
                assert_close(actual, expected, 64 if index == 0 else 16 * 64, 8.0 * (
                    1 if index in (0, 1, 4) else x.numel() / channels))
            assert_close(own_mean, ref_mean, 16, 4.0)
            assert_close(own_var, ref_var, 16, 4.0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_empty_misaligned_and_strided_inputs(dtype, device):
    for shape in [(0,), (0, 4), (3, 0), (2, 0, 5)]:
        x = torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
        y = bk.softmax(x)
        assert y.shape == x.shape
        y.sum().backward()
        assert x.grad.shape == x.shape
    gamma = torch.ones(4, dtype=dtype, device=device, requires_grad=True)
    y = bk.layer_norm(torch.empty(0, 4, dtype=dtype, device=device), [4], gamma)
    y.sum().backward()
    assert torch.equal(gamma.grad, torch.zeros_like(gamma))
    storage = torch.randn(4, 300, dtype=torch.float64).to(dtype).to(device)
    for x in (storage[:, 1:], storage[:, ::2], storage.T, storage[::2, 3:200],
              storage.flatten()[1:1 + 3 * 256].view(3, 256), storage[:1].expand(3, 300)):
        for dim in range(-2, 2):
            assert_close(bk.softmax(x, dim), torch.softmax(x.double().cpu(), dim), 66, 1.0)
        columns = x.shape[-1]
        epsilon = 2.0 ** -10
        wanted = F.layer_norm(x.double().cpu(), [columns], eps=epsilon)
        assert_close(bk.layer_norm(x, [columns], eps=epsilon), wanted, 16, 16.0)
        if dtype != torch.float64:
            slope = torch.tensor([0.25], dtype=dtype, device=device)
            assert_close(bk.prelu(x, slope), F.prelu(x.double().cpu(), slope.double().cpu()), 0)


def test_parameters_of_any_strides(device):
    x = torch.randn(6, 8, device=device)
    for strided in (torch.rand(16, device=device)[::2], torch.rand(1, device=device).expand(8),
                    torch.rand(8, 8, device=device)[:, 3]):
        def results(parameter):
            mean, var = parameter.detach(), parameter.detach() + 1
            for function in (lambda p: bk.layer_norm(x, [8], p, p), lambda p: bk.prelu(x, p),
                             lambda p: bk.batch_norm_add_relu(x, mean, var, p, p)):
                own = parameter.detach().requires_grad_()
                y = function(own)
                yield y.detach(), *torch.autograd.grad(y.square().sum(), own)
        assert not strided.is_contiguous()
        assert all(torch.equal(found, wanted) for pair in
                   zip(results(strided), results(strided.contiguous())) for found, wanted in zip(*pair))


def test_layouts_stay(device):
    x = torch.randn(2, 8, 5, 5, device=device)
    assert all(bk.softmax(x, dim).view(2, -1).shape == (2, 200) for dim in range(4))
    x = x.to(memory_format=torch.channels_last)
    assert bk.softmax(x, 1).is_contiguous(memory_format=torch.channels_last)
    slope = torch.rand(8, device=device)
    y = bk.prelu(x, slope)
    assert y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous()
    assert torch.equal(y, bk.prelu(x.contiguous(), slope))
    norm = bk.BatchNormAddReLU(8).to(device)
    dense = bk.BatchNormAddReLU(8).to(device)
    torch.testing.assert_close(norm(x, x), dense(x.contiguous(), x.contiguous()))
    torch.testing.assert_close(norm.running_var, dense.running_var)


@pytest.mark.parametrize("half, eps, wanted", [(0.001, 1e-5, 0.30151134457776363),
                                              (1e-6, 1e-12, 0.7071067811865475), (1.0, 0.0, 1.0)])
def test_layer_norm_of_float64_takes_eps_as_it_is(half, eps, wanted, device):
    x = torch.tensor([[-half, half]], dtype=torch.float64, device=device)
    for rows in (x, x.clone().requires_grad_()):  # without and with statistics
        y = bk.layer_norm(rows, [2], eps=eps).detach()
        assert_close(y, torch.tensor([[-wanted, wanted]], dtype=torch.float64), 4)
    if eps == 0:
        assert bk.layer_norm(torch.zeros_like(x), [2], eps=eps).isnan().all()


def test_float64_is_refused_where_there_is_none(device):
    x = torch.zeros(2, 3, dtype=torch.float64, device=device)
    with pytest.raises(TypeError, match="prelu: x is torch.float64, want float32, float16 or bfloat16"):
        bk.prelu(x, torch.zeros(1, dtype=torch.float64, device=device))
    norm = bk.BatchNormAddReLU(3).to(device)
    with pytest.raises(TypeError, match="batch_norm_add_relu: x is torch.float64"):
        norm(x)
