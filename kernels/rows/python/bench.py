#!/usr/bin/env python3
"""What a call costs and how fast the operations are beside PyTorch, eager and compiled.

    python kernels/rows/python/bench.py [--device cuda] [--dtype bfloat16] [--no-compile]

The first table has microseconds of the host for one call on a [1, 8] row, whose kernel takes next to
nothing, the best of 50 runs: of the C functions, with arguments that are packed already, by ctypes, whose own part the first
row shows; of the operations here, and of PyTorch's own; and of an autograd.Function that does nothing.
The second has microseconds and the share of a copy of as many bytes for [R, C] with R * C about 2^27, so
that the GPU and not the host of autograd is timed (CPU: 2^21), medians of 5 runs.
"""
import argparse
import ctypes
import pathlib
import statistics
import struct
import time

import torch

import bertha_kernels as bk

WIDTHS = (64, 256, 1024, 4096, 8192, 16384, 32768)


def microseconds(call, device, calls, runs=5, choose=statistics.median):
    def wait():
        if device == "cuda":
            torch.cuda.synchronize()
    for _ in range(3):
        call()
    wait()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return choose(times)


def c_calls(device, x, weight, slope, out):
    """Calls of the C functions by ctypes, with arguments that are packed already."""
    library = ctypes.CDLL(str(pathlib.Path(bk.__file__).parent / "libbertha_kernels.so"))
    handle = ctypes.c_void_p()
    if device == "cuda":
        status = library.bertha_open_cuda(0, ctypes.byref(handle))
        stream = torch.cuda.current_stream().cuda_stream
    else:
        status = library.bertha_open_cpu(torch.get_num_threads(), ctypes.byref(handle))
        stream = 0
    assert status == 0

    def tensor(t, *extents):  # BerthaTensor, f32
        return struct.pack("@P4q32x2i", t.data_ptr(), *extents, *[0] * (4 - len(extents)), 1, len(extents))
    none = bytes(80)
    row, channels = tensor(x, 1, 8), tensor(x, 1, 1, 8)
    packed = {
        "softmax": row + 2 * none + tensor(out, 1, 8) + 2 * none + bytes(88) + struct.pack("@dii", 1.0, 0, 0),
        "layer_norm": row + 2 * tensor(weight, 8) + tensor(out, 1, 8) + 4 * none
        + struct.pack("@d", 1e-5),
        "prelu": channels + tensor(slope, 1) + tensor(out, 1, 1, 8)}
    for name, arguments in packed.items():
        function = getattr(library, f"bertha_{name}_fwd")
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
        assert function(handle, stream, arguments) == 0
        if name == "softmax":
            yield "a C function that returns at once", (
                lambda function=function, arguments=arguments: function(None, stream, arguments))
        yield f"the C function of {name}", (
            lambda function=function, arguments=arguments: function(handle.value, stream, arguments))


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(context, x, y):
        context.save_for_backward(x)
        return y

    @staticmethod
    def backward(context, dy):
        return dy, None


def batch_norm(function, device):
    """`function` of [2, 8], whatever x is, as BatchNorm takes no single row."""
    x = torch.randn(2, 8, device=device)
    leaf = x.clone().requires_grad_()
    channels = [torch.full((8,), value, device=device) for value in (0.0, 1.0, 1.0, 0.0)]
    return lambda t, training: function(leaf if t.requires_grad else x, *channels, training)


def overhead(device):
    x, weight, slope = (torch.randn(*shape, device=device) for shape in ((1, 8), (8,), (1,)))
    leaf, functional = x.clone().requires_grad_(), torch.nn.functional
    out = torch.empty_like(x)
    rows = list(c_calls(device, x, weight, slope, out))
    rows.append(("an autograd.Function that does nothing", lambda: Nothing.apply(leaf, out)))
    operator = torch.ops.bertha_kernels.softmax.default
    rows.append(("the operator bertha_kernels::softmax", lambda: operator(x, False)))
    for name, ours, theirs, arguments in (
            ("softmax", bk.softmax, torch.softmax, (-1,)),
            ("log_softmax", bk.log_softmax, torch.log_softmax, (-1,)),
            ("layer_norm", bk.layer_norm, functional.layer_norm, ((8,), weight, weight)),
            ("prelu", bk.prelu, functional.prelu, (slope,)),
            ("batch_norm_add_relu, training", batch_norm(bk.batch_norm_add_relu, device),
             batch_norm(lambda *a: functional.batch_norm(*a).relu_(), device), (True,)),
            ("batch_norm_add_relu, inference", batch_norm(bk.batch_norm_add_relu, device),
             batch_norm(lambda *a: functional.batch_norm(*a).relu_(), device), (False,))):
        for what, given in ((name, x), (f"{name}, with autograd", leaf)):
            rows += [(f"bertha_kernels.{what}", lambda f=ours, t=given, a=arguments: f(t, *a)),
                     (f"PyTorch's {what}", lambda f=theirs, t=given, a=arguments: f(t, *a))]
    print("| Call | us of the host |\n|---|---|")
    for _, call in rows:  # the host's clock rises, libraries are loaded
        microseconds(call, device, 500)
    for name, call in rows:
        best = microseconds(call, device, 200, runs=50, choose=min)  # other programs only add to a time
        print(f"| {name} | {best:.2f} |")


def cases(columns, device, dtype):
    """Name, ours, theirs, tensors read and written."""
    rows = max(1, (2 ** 27 if device == "cuda" else 2 ** 21) // columns)
    x = torch.randn(rows, columns, device=device, dtype=dtype)
    dy = torch.randn_like(x)
    gamma, beta = (torch.randn(columns, device=device, dtype=dtype) for _ in range(2))
    leaf = x.clone().requires_grad_()

    def backward(function):
        y = function(leaf)
        return lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)

    def norm(module):
        return lambda t: module(t, [columns], gamma, beta)
    theirs_softmax, theirs_norm = (lambda t: torch.softmax(t, -1)), torch.nn.functional.layer_norm
    yield "softmax", lambda: bk.softmax(x), theirs_softmax, (x,), 2, x
    yield "softmax backward", backward(bk.softmax), backward(theirs_softmax), None, 3, x
    yield "LayerNorm", lambda: norm(bk.layer_norm)(x), norm(theirs_norm), (x,), 2, x
    yield "LayerNorm backward", backward(norm(bk.layer_norm)), backward(norm(theirs_norm)), None, 3, x


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype or ("bfloat16" if options.device == "cuda" else "float32"))
    place = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{place}, PyTorch {torch.__version__}\n")
    overhead(options.device)
    print(f"\n{dtype}\n\n| Operation | Columns | us | of a copy | eager us | compiled us |\n"
          "|---|---|---|---|---|---|")
    calls = 20 if options.device == "cuda" else 2
    for columns in WIDTHS:
        for name, ours, theirs, arguments, tensors, x in cases(columns, options.device, dtype):
            if arguments is None:
                eager, compiled = theirs, None
            else:
                compile_now = None if options.no_compile else torch.compile(theirs)
                eager = lambda call=theirs: call(*arguments)
                compiled = compile_now and (lambda: compile_now(*arguments))
            source, target = torch.empty_like(x), torch.empty_like(x)
            copy = microseconds(lambda: target.copy_(source), options.device, calls)
            copy *= tensors / 2
            own = microseconds(ours, options.device, calls)
            other = microseconds(eager, options.device, calls)
            fused = f"{microseconds(compiled, options.device, calls):.1f}" if compiled else "-"
            print(f"| {name} | {columns} | {own:.1f} | {copy / own:.0%} | {other:.1f} | {fused} |",
                  flush=True)


if __name__ == "__main__":
    main()
