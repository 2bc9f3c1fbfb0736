"""Which calls autograd records, what modes, transforms and profilers see of them, processes, threads."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import local_map
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import bertha_kernels as bk


def calls(x, gamma):
    """Each function on x [4, 8] and a parameter [8], by the name of its operator."""
    mean, var = torch.zeros_like(gamma), torch.ones_like(gamma)
    return {"softmax": lambda t, p=gamma: bk.softmax(t * p),
            "layer_norm": lambda t, p=gamma: bk.layer_norm(t, (8,), p, p),
            "prelu": lambda t, p=gamma: bk.prelu(t, p),
            "batch_norm_add_relu": lambda t, p=gamma: bk.batch_norm_add_relu(t, mean, var, p, p)}


def test_autograd_records_what_it_needs_alone(device):
    x, gamma = torch.randn(4, 8, device=device), torch.randn(8, device=device)
    leaf, parameter = x.clone().requires_grad_(), gamma.clone().requires_grad_()
    for name, run in calls(x, gamma).items():
        assert run(x).grad_fn is None
        for recorded in (run(leaf), run(x, parameter)):
            assert recorded.grad_fn.name().startswith(f"bertha_kernels_{name}"), name
            torch.testing.assert_close(recorded, run(x, parameter.detach()), rtol=0, atol=0)
        with torch.no_grad():
            assert run(leaf, parameter).grad_fn is None
        with torch.inference_mode():
            assert run(leaf, parameter).is_inference()


def test_layer_norm_without_gradients_computes_no_statistics(device):
    x = torch.randn(4, 8, device=device)
    seen = []

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))
    with Dispatched():
        bk.layer_norm(x, (8,))
    assert seen == ["bertha_kernels.layer_norm_inference.default"]


def test_batch_norm_launches_nothing_else(device):
    x, p = torch.randn(4, 8, device=device), torch.ones(8, device=device)
    mean, var = torch.zeros(8, device=device), torch.ones(8, device=device)
    for training in (True, False):
        with torch.profiler.profile() as profile:
            bk.batch_norm_add_relu(x, mean, var, p, p, training)
        names = {event.name for event in profile.events() if event.name.startswith(("aten::", "bertha"))}
        operator = f"bertha_kernels::batch_norm_add_relu{'' if training else '_inference'}"
        assert names <= {operator, "aten::empty_strided"} and operator in names
    assert mean.abs().max() > 0


def test_batch_norm_updates_strided_statistics(device):
    x, p = torch.randn(4, 8, device=device), torch.ones(8, device=device)
    dense = torch.zeros(8, device=device), torch.ones(8, device=device)
    strided = torch.zeros(16, device=device)[::2], torch.ones(8, 2, device=device)[:, 1]
    for mean, var in (dense, strided):
        bk.batch_norm_add_relu(x, mean, var, p, p, training=True)
    for found, wanted in zip(strided, dense):
        assert torch.equal(found, wanted)


def test_modes_transforms_and_tracers_see_operations(device):
    x, gamma = torch.randn(4, 8, device=device), torch.randn(8, device=device)

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))

    class Called(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))
    for name, run in calls(x, gamma).items():
        for mode in (Dispatched, Called):
            seen = []
            with mode():
                run(x)
            assert any(f"bertha_kernels.{name}" in entry for entry in seen), (name, mode, seen)
        with torch.profiler.profile() as profile:
            run(x)
        assert any(event.name.startswith(f"bertha_kernels::{name}") for event in profile.events())
        with FakeTensorMode(allow_non_fake_inputs=True) as fakes:
            fake = run(fakes.from_tensor(x))
        assert fake.shape == x.shape and type(fake) is not torch.Tensor
        with pytest.warns():  # that tracing is deprecated
            graph = str(torch.jit.trace(run, x).graph)
        assert f"bertha_kernels::{name}" in graph
        torch.testing.assert_close(torch.func.vmap(run)(x.reshape(2, 2, 8)).reshape(4, 8), run(x))
        torch.testing.assert_close(torch.func.functionalize(run)(x), run(x))


def test_vmap_over_training_statistics_is_refused(device):
    x, p = torch.randn(3, 4, 8, device=device), torch.ones(8, device=device)
    for tensor in (x, x.clone().requires_grad_()):
        with pytest.raises(NotImplementedError, match="vmap .* running statistics"):
            torch.func.vmap(lambda t: bk.batch_norm_add_relu(t, p - 1, p, p, p, training=True))(tensor)


def test_private_names_of_pytorch_are_not_needed(device):
    for path in pathlib.Path(bk.__file__).parent.glob("*.py"):
        read = set(re.findall(r"\b(?:torch|forward_ad|functorch|_C)\.(_[A-Za-z]\w*)", path.read_text()))
        assert read <= {"_C"}, path  # others are looked up by getattr with a default
    run = """if True:
        import sys, torch
        from torch.autograd import forward_ad
        device, name = sys.argv[1], "_are_functorch_transforms_active"
        kept = getattr(torch._C, name)
        delattr(torch._C, name)  # PyTorch itself needs it later
        import bertha_kernels as bk
        setattr(torch._C, name, kept)
        del forward_ad._current_level
        x, gamma = torch.randn(4, 8, device=device), torch.randn(8, device=device)
        for t in (x, x.clone().requires_grad_()):
            for ours, theirs in ((bk.softmax(t), torch.softmax(t, -1)),
                                 (bk.layer_norm(t, (8,), gamma), torch.layer_norm(t, (8,), gamma)),
                                 (bk.prelu(t, gamma), torch.prelu(t, gamma))):
                torch.testing.assert_close(ours, theirs)
            if t.requires_grad:
                bk.layer_norm(bk.prelu(bk.softmax(t), gamma), (8,)).square().sum().backward()
        assert t.grad.shape == x.shape
        """
    subprocess.run([sys.executable, "-c", run, device], check=True)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
def test_libraries_export_the_c_interface_alone():
    folder = pathlib.Path(bk.__file__).parent
    for name, prefix in (("libbertha_kernels.so", "bertha_"), ("libbertha_kernels_torch.so", None)):
        def symbols(*options):
            found = subprocess.run(["nm", *options, folder / name], capture_output=True, text=True, check=True)
            return [line.split()[-1] for line in found.stdout.splitlines()]
        exported = symbols("-D", "--defined-only")
        assert all(prefix and symbol.startswith(prefix) for symbol in exported), exported
        assert len(exported) == 0 or "bertha_softmax_fwd" in exported
        assert symbols() == []  # stripped
        of_build_machine = re.findall(rb"(?<![.\w])/[\w./-]+/(?:kernels/(?:base|rows)|torch/csrc)/[\w./-]+",
                                      (folder / name).read_bytes())
        assert of_build_machine == []


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


def layer_norm_of_shards(rank, path):
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo", f"file://{path}", rank=rank, world_size=2)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    values = [torch.randn(*shape) for shape in ((4, 6, 8), (8,), (8,))]
    whole = [t.clone().requires_grad_() for t in values]
    wanted = torch.nn.functional.layer_norm(whole[0], (8,), *whole[1:])
    wanted.square().sum().backward()
    for axis in (0, 1):
        rows, all_of_it, sums = [Shard(axis)], [Replicate()], [Partial()]
        x, gamma, beta = (distribute_tensor(t, mesh, placements).requires_grad_()
                          for t, placements in zip(values, (rows, all_of_it, all_of_it)))
        with pytest.raises(NotImplementedError, match="sharding strategy"):
            bk.layer_norm(x, (8,), gamma, beta)
        norm = local_map(lambda x, gamma, beta: bk.layer_norm(x, (8,), gamma, beta), rows,
                         (rows, all_of_it, all_of_it), (rows, sums, sums), mesh)
        y = norm(x, gamma, beta)
        torch.testing.assert_close(y.full_tensor(), wanted)
        y.square().sum().backward()
        for found, leaf in zip((x, gamma, beta), whole):
            torch.testing.assert_close(found.grad.full_tensor(), leaf.grad)
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
def test_local_map_calls_functions_on_shards_of_dtensors(tmp_path):
    torch.multiprocessing.spawn(layer_norm_of_shards, (tmp_path / "ranks",), nprocs=2)


def threads_of_this_process():
    return len(os.listdir("/proc/self/task"))


def test_worker_threads_of_other_counts_end():
    x, before = torch.randn(64, 1024), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        bk.softmax(x)
        with_one = threads_of_this_process()
        for count in range(2, 9):
            torch.set_num_threads(count)
            bk.softmax(x)
        torch.set_num_threads(1)
        bk.softmax(x)
        # PyTorch's own worker threads stay, at most seven.
        assert threads_of_this_process() <= with_one + 7
    finally:
        torch.set_num_threads(before)


def test_a_forked_child_has_threads_of_its_own():
    x = torch.randn(64, 1024)
    wanted = bk.softmax(x)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        # By NumPy: PyTorch's own threads do not live on.
        os._exit(0 if (bk.softmax(x).numpy() == wanted.numpy()).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
