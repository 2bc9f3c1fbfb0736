"""Calls that PyTorch's dispatcher does not see: which they are, and that they give the same."""
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import bertha_kernels as bk
from bertha_kernels import c_interface as c

OPS = torch.ops.bertha_kernels
RECORDED = "y"


def record(*_):
    """Stands for what autograd records calls by."""
    return RECORDED


def test_plain_calls_are_direct_and_give_the_same(device):
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(3, 4, 40, device=device, dtype=dtype)
        gamma, beta = (torch.randn(40, device=device, dtype=dtype) for _ in range(2))
        for is_log in (False, True):
            for dim in (-1, 2):
                assert torch.equal(c.direct_softmax(x, dim, None, is_log, record), OPS.softmax(x, is_log))
        is_widened = device == "cpu" and dtype.itemsize == 2  # for the kernels, by torch_ops
        for parameters in ((gamma, beta), (gamma, None), (None, None)):
            y = c.direct_layer_norm(x, *parameters, (40,), 1e-5, record)
            wanted, _ = OPS.layer_norm(x, *parameters, 40, 1e-5)
            assert y is None if is_widened else torch.equal(y, wanted)
        for slope in (gamma[:1], gamma[:4]):
            y = c.direct_prelu(x, slope, record)
            if is_widened or dtype == torch.float64:
                assert y is None
            else:
                assert torch.equal(y, OPS.prelu(x, slope))


def test_what_kernels_do_not_take_is_not_direct(device):
    x, gamma = torch.randn(4, 8, device=device), torch.randn(8, device=device)
    others = [x.T, x[:, ::2], x.int(), x[:0], x.to("meta"), torch._neg_view(x),
              torch._efficientzerotensor((4, 8), device=device), x.to_sparse(), x.numpy(force=True), None]
    for other in others:
        assert c.direct_softmax(other, -1, None, False, record) is None
        assert c.direct_layer_norm(other, None, None, (8,), 1e-5, record) is None
        assert c.direct_prelu(other, gamma[:1], record) is None
    assert c.direct_softmax(x, 0, None, False, record) is None
    assert c.direct_softmax(x, -1, torch.float64, False, record) is None
    for parameter in (gamma[:4], gamma.half(), gamma.reshape(1, 8), torch.randn(16, device=device)[::2],
                      gamma.to("meta"), torch._neg_view(gamma)):
        assert c.direct_layer_norm(x, parameter, None, (8,), 1e-5, record) is None
        assert c.direct_layer_norm(x, None, parameter, (8,), 1e-5, record) is None
        assert c.direct_prelu(x, parameter, record) is None
    for shape in ((4, 8), (4,), 8, (), "8"):
        assert c.direct_layer_norm(x, None, None, shape, 1e-5, record) is None


def test_what_autograd_has_to_record_is_left_to_it(device):
    x, gamma = torch.randn(4, 8, device=device), torch.randn(8, device=device)
    leaf, parameter = x.clone().requires_grad_(), gamma.clone().requires_grad_()

    def results():
        return [c.direct_softmax(leaf, -1, None, False, record),
                *(c.direct_layer_norm(*tensors, (8,), 1e-5, record)
                  for tensors in ((leaf, gamma, None), (x, parameter, None), (x, None, parameter))),
                c.direct_prelu(leaf, gamma, record), c.direct_prelu(x, parameter, record)]
    assert results() == 6 * [RECORDED]
    with torch.no_grad():
        assert all(isinstance(y, torch.Tensor) for y in results())
    assert c.direct_softmax(leaf.T, -1, None, False, record) is None
    with pytest.raises(TypeError):
        c.direct_softmax(leaf, -1, None, False, lambda x: None)
    assert bk.softmax(leaf).grad_fn.name() == "bertha_kernels_softmaxBackward"


def test_modes_transforms_and_tracers_see_operations(device):
    x, gamma = torch.randn(4, 8, device=device), torch.randn(8, device=device)
    calls = {"softmax": lambda t: bk.softmax(t), "layer_norm": lambda t: bk.layer_norm(t, (8,), gamma),
             "prelu": lambda t: bk.prelu(t, gamma)}

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))

    class Called(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))
    for name, run in calls.items():
        for mode in (Dispatched, Called):
            seen = []
            with mode():
                run(x)
            assert any(f"bertha_kernels.{name}" in entry for entry in seen), (name, mode, seen)
        with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
            fake = run(fakes.from_tensor(x))
        assert fake.shape == x.shape and type(fake) is not torch.Tensor
        with pytest.warns():  # that tracing is deprecated
            graph = str(torch.jit.trace(run, x).graph)
        assert f"bertha_kernels::{name}" in graph
        torch.testing.assert_close(torch.func.vmap(run)(x.reshape(2, 2, 8)).reshape(4, 8), run(x))
        torch.testing.assert_close(torch.func.functionalize(run)(x), run(x))


def test_an_older_pytorch_without_the_quick_ways(device):
    run = """if True:
        import sys, torch
        device, guards = sys.argv[1], torch._C._dynamo.guards
        for owner, name in ((guards, "_empty_strided_cpu"), (guards, "_empty_strided_cuda"),
                            (torch.Tensor, "__dlpack_c_exchange_api__")):
            if hasattr(owner, name):
                delattr(owner, name)
        import bertha_kernels as bk
        x, gamma = torch.randn(4, 8, device=device), torch.randn(8, device=device)
        image = torch.randn(2, 8, 3, 3, device=device).to(memory_format=torch.channels_last)
        for t in (x, x.clone().requires_grad_()):
            for ours, theirs in ((bk.softmax(t), torch.softmax(t, -1)),
                                 (bk.layer_norm(t, (8,), gamma), torch.layer_norm(t, (8,), gamma)),
                                 (bk.prelu(t, gamma), torch.prelu(t, gamma)),
                                 (bk.prelu(image, gamma), torch.prelu(image, gamma))):
                torch.testing.assert_close(ours, theirs)
                assert ours.stride() == theirs.stride()
            if t.requires_grad:
                bk.layer_norm(bk.prelu(bk.softmax(t), gamma), (8,)).square().sum().backward()
        assert t.grad.shape == x.shape and t.grad.device == x.device
        """
    subprocess.run([sys.executable, "-c", run, device], check=True)


def test_threads_run_at_the_same_time(device):
    x = torch.randn(64, 1024, device=device)
    wanted, found = bk.softmax(x), []

    def run():
        for _ in range(20):
            found.append(torch.equal(bk.softmax(x), wanted))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 80


def test_a_forked_child_has_threads_of_its_own():
    x = torch.randn(64, 1024)
    wanted = bk.softmax(x)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        # By NumPy: PyTorch's own threads do not live on.
        os._exit(0 if (bk.softmax(x).numpy() == wanted.numpy()).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
