"""The kernels that `bertha_bench_rows` times, in PyTorch and cuDNN, in Liger and QuACK if they are
installed, and Bertha's own in PyTorch's process: what row_kernels.py compares.

All programs of a case take the same operands: fp16, random, in rotation that fits into no cache.
Results are allocated by each call and rotate too. Programs take turns, the host far ahead of the
device; a time is the median of single launches between events.
"""
import collections
import ctypes
import dataclasses
import statistics
import sys
import time
import typing

import torch
import torch.nn.functional as F

import gpu_memory
import row_c_api
import row_libraries

HALF = torch.float16
UNIT = 2 ** -11  # of its roundings
ROTATED_BYTES = 200 << 20
MOST_SETS = 16
TURNS = 2
LAUNCHES = 20  # of a turn,
TURN_US = 15000  # or as many as take this long,
FEWEST = 3  # but no fewer
CYCLES_PER_US = 2000
# torch.compile takes seconds for each case that its cache (TORCHINDUCTOR_CACHE_DIR) does not have,
# so the most telling ones come first, in this order; then all others.
FIRST = ("64x56x56 NCHW", "64x56x56 NHWC", "256x56x56 NHWC, add", "1024", "128", "32768", "4096",
         "513", "256", "64", "30522")


def random(*shape, dtype=HALF):
    return torch.empty(shape, device="cuda", dtype=dtype).uniform_(-1, 1)


def sets_of(make_operands):
    """As many sets of operands as fit into no cache."""
    sets = [make_operands()]
    size = sum(part.nbytes for part in sets[0] if isinstance(part, torch.Tensor))
    while len(sets) < min(max(2, ROTATED_BYTES // max(size, 1) + 1), MOST_SETS):
        sets.append(make_operands())
    return sets


def turn_us(sets, call):
    """Microseconds of each of up to LAUNCHES calls."""
    results = [None] * len(sets)  # held, so that results rotate too
    for i in range(len(sets) + 2):
        results[i % len(sets)] = call(*sets[i % len(sets)])
    torch.cuda.synchronize()
    begin = time.perf_counter()
    results[0] = call(*sets[0])
    host_us = (time.perf_counter() - begin) * 1e6
    torch.cuda.synchronize()
    whole_us = (time.perf_counter() - begin) * 1e6
    launches = min(max(int(TURN_US / whole_us), FEWEST), LAUNCHES)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(launches + 1)]
    torch.cuda._sleep(int(1.5 * launches * (host_us + 10) * CYCLES_PER_US))
    events[0].record()
    for i in range(launches):
        results[i % len(sets)] = call(*sets[i % len(sets)])
        events[i + 1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:])]


@dataclasses.dataclass
class Program:
    """call(*arguments(*operands)) is what is timed."""
    call: typing.Callable
    arguments: typing.Callable = lambda *operands: operands


# --- cuDNN, through its C interface ---

class Cudnn:
    """Soft maxima and fused batch normalisation; a call that fails raises RuntimeError."""

    HALF, FLOAT = 2, 0
    NCHW, NHWC = 0, 1
    PERSISTENT = 2
    BN_ACTIVATION, BN_ADD_ACTIVATION = 1, 2

    def __init__(self):
        self.library = ctypes.CDLL("libcudnn.so.9")
        self.handle = ctypes.c_void_p()
        self.check("cudnnCreate", ctypes.byref(self.handle))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check("cudnnSetStream", self.handle, stream)
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        self.keep = []

    def check(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} returned {status}")

    def tensor(self, layout, *extents):
        descriptor = ctypes.c_void_p()
        self.check("cudnnCreateTensorDescriptor", ctypes.byref(descriptor))
        self.check("cudnnSetTensor4dDescriptor", descriptor, layout, self.HALF, *extents)
        return descriptor

    @staticmethod
    def at(tensor):
        return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)

    def softmax(self, rows, columns):
        """(forward(x), backward(dy, y))"""
        shape = self.tensor(self.NCHW, rows, columns, 1, 1)
        algorithm, mode = 1, 0  # as exact as ours; per channel is as fast, and loads for 25 s
        one, zero = ctypes.byref(self.one), ctypes.byref(self.zero)

        def forward(x):
            y = torch.empty_like(x)
            self.check("cudnnSoftmaxForward", self.handle, algorithm, mode, one, shape, self.at(x),
                       zero, shape, self.at(y))
            return y

        def backward(dy, y):
            dx = torch.empty_like(dy)
            self.check("cudnnSoftmaxBackward", self.handle, algorithm, mode, one, shape,
                       self.at(y), shape, self.at(dy), zero, shape, self.at(dx))
            return dx

        return forward, backward

    def fused_norm(self, n, c, side, add):
        """(forward, backward, reserve bytes) of NHWC images; Ex calls of the persistent mode."""
        shape = self.tensor(self.NHWC, n, c, side, side)
        norm = ctypes.c_void_p()
        self.check("cudnnCreateTensorDescriptor", ctypes.byref(norm))
        self.check("cudnnDeriveBNTensorDescriptor", norm, shape, self.PERSISTENT)
        activation = ctypes.c_void_p()
        self.check("cudnnCreateActivationDescriptor", ctypes.byref(activation))
        self.check("cudnnSetActivationDescriptor", activation, 1, 0, ctypes.c_double(0))  # ReLU
        ops = self.BN_ADD_ACTIVATION if add else self.BN_ACTIVATION
        z_shape = shape if add else ctypes.c_void_p()
        size = ctypes.c_size_t()

        def bytes_of(name, *arguments):
            self.check(name, self.handle, self.PERSISTENT, ops, *arguments, ctypes.byref(size))
            return size.value

        forward_bytes = bytes_of("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", shape,
                                 z_shape, shape, norm, activation)
        backward_bytes = bytes_of("cudnnGetBatchNormalizationBackwardExWorkspaceSize", shape,
                                  shape, shape, z_shape, shape, norm, activation)
        reserve_bytes = bytes_of("cudnnGetBatchNormalizationTrainingExReserveSpaceSize",
                                 activation, shape)
        workspace = torch.empty(max(forward_bytes, backward_bytes, 1), device="cuda",
                                dtype=torch.uint8)
        self.keep.append(workspace)
        one, zero = ctypes.byref(self.one), ctypes.byref(self.zero)
        epsilon = ctypes.c_double(1e-5)

        def forward(x, z, y, gamma, beta, running_mean, running_var, mean, rstd, reserve):
            self.check("cudnnBatchNormalizationForwardTrainingEx", self.handle, self.PERSISTENT,
                       ops, one, zero, shape, self.at(x), z_shape, self.at(z), shape, self.at(y),
                       norm, self.at(gamma), self.at(beta), ctypes.c_double(0.1),
                       self.at(running_mean), self.at(running_var), epsilon, self.at(mean),
                       self.at(rstd), activation, self.at(workspace),
                       ctypes.c_size_t(workspace.numel()), self.at(reserve),
                       ctypes.c_size_t(reserve_bytes))

        def backward(x, y, dy, dz, dx, gamma, beta, dgamma, dbeta, mean, rstd, reserve):
            self.check("cudnnBatchNormalizationBackwardEx", self.handle, self.PERSISTENT, ops, one,
                       zero, one, zero, shape, self.at(x), shape, self.at(y), shape, self.at(dy),
                       z_shape, self.at(dz), shape, self.at(dx), norm, self.at(gamma),
                       self.at(beta), self.at(dgamma), self.at(dbeta), epsilon, self.at(mean),
                       self.at(rstd), activation, self.at(workspace),
                       ctypes.c_size_t(workspace.numel()), self.at(reserve),
                       ctypes.c_size_t(reserve_bytes))

        return forward, backward, reserve_bytes


# --- the same operations everywhere: (operands, {name: function that makes the program}) ---
# cudnn and library: None, and their programs are missing.

def row_case(operation, rows, columns, log, cudnn, library):
    aten = torch.ops.aten
    backward = operation.endswith("_bwd")
    one = lambda: random(rows, columns)
    programs = {}
    if operation.startswith("softmax"):
        forward = torch.log_softmax if log else torch.softmax
        function = aten._log_softmax_backward_data if log else aten._softmax_backward_data
        eager = ((lambda dy, y: function(dy, y, -1, HALF)) if backward else
                 lambda x: forward(x, -1))
        if cudnn and not log:  # the same kernels
            programs["cudnn"] = lambda: Program(cudnn.softmax(rows, columns)[backward])
        if library:
            programs["bertha"] = lambda: Program(library.softmax(log)[backward])
        operands = lambda: (one(), forward(one(), -1)) if backward else (one(),)
    else:
        norm = lambda x, gamma, beta: aten.native_layer_norm(x, [columns], gamma, beta,
                                                             row_c_api.EPSILON)
        eager = norm if not backward else (
            lambda dy, x, mean, rstd, gamma, beta: aten.native_layer_norm_backward(
                dy, x, [columns], mean, rstd, gamma, beta, [True, True, True]))
        if library:
            programs["bertha"] = lambda: Program(library.layer_norm()[backward])

        def operands():
            x, gamma, beta = one(), random(columns), random(columns)
            if not backward:
                return x, gamma, beta
            return (one(), x, *norm(x, gamma, beta)[1:], gamma, beta)

    for name, call_of in (("liger", row_libraries.liger_call), ("quack", row_libraries.quack_call)):
        call = None if log else call_of(operation, columns)
        if call:
            programs[name] = lambda call=call: Program(call)
    return operands, {"eager": lambda: Program(eager), **programs,
                      "compiled": lambda: Program(torch.compile(eager, dynamic=False))}


def image(n, c, side, last):
    tensor = random(n, c, side, side)
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor


def prelu_case(operation, n, c, side, last, library):
    backward = operation.endswith("_bwd")
    one = lambda: image(n, c, side, last)

    def gradients(dy, x, slope):
        dx, of_each = torch.ops.aten._prelu_kernel_backward(dy, x, slope.view(1, c, 1, 1))
        return dx, of_each.sum((0, 2, 3))

    eager = gradients if backward else F.prelu
    programs = {"eager": lambda: Program(eager)}
    if library:
        programs["bertha"] = lambda: Program(library.prelu(n, c, side, last)[backward])
    programs["compiled"] = lambda: Program(torch.compile(eager, dynamic=False))
    return lambda: (*(one() for _ in range(1 + backward)), random(c)), programs


def norm_relu(x, gamma, beta, running_mean, running_var, *addend):
    y = torch.batch_norm(x, gamma, beta, running_mean, running_var, True, 0.1, row_c_api.EPSILON,
                         True)
    for more in addend:
        y = y + more if torch.compiler.is_compiling() else y.add_(more)
    return torch.relu(y) if torch.compiler.is_compiling() else torch.relu_(y)


def norm_case(operation, n, c, side, last, add, cudnn, library):
    backward = operation.endswith("_bwd")
    one = lambda: image(n, c, side, last)

    def operands():  # x, gamma, beta, running_mean, running_var, addend, dy; the last two or not
        return (one(), *(random(c, dtype=torch.float32) for _ in range(4)),
                *([one()] if add else []), *([one()] if backward else []))

    def in_torch(function):
        if not backward:
            return Program(torch.no_grad()(function))

        def arguments(*tensors):
            x, gamma, beta, running_mean, running_var, *addend, dy = tensors
            wanted = [x, gamma, beta, *addend]
            for tensor in wanted:
                tensor.requires_grad_()
            # Autograd saves the running statistics, and the next program moves them.
            y = function(x, gamma, beta, running_mean.clone(), running_var.clone(), *addend)
            return (y, dy, *wanted)

        return Program(lambda y, dy, *wanted: torch.autograd.grad(y, wanted, dy,
                                                                  retain_graph=True), arguments)

    def in_bertha():
        forward, gradients = library.norm_relu(n, c, side, last)
        if not backward:
            return Program(forward)

        def arguments(*tensors):
            *tensors, dy = tensors
            _, _, mean, rstd = forward(*tensors)
            # PyTorch's bits: where y is a rounding away from zero, Bertha's own may differ.
            mask = row_c_api.bits_of(norm_relu(*(tensor.detach() for tensor in tensors)))
            return dy, tensors[0], mask, mean, rstd, tensors[1], add

        return Program(gradients, arguments)

    programs = {"eager": lambda: in_torch(norm_relu)}
    if library:
        programs["bertha"] = in_bertha
    if cudnn and last:
        programs["cudnn"] = lambda: cudnn_norm(cudnn, n, c, side, add, backward)
    programs["compiled"] = lambda: in_torch(torch.compile(norm_relu, dynamic=False))
    return operands, programs


def cudnn_norm(cudnn, n, c, side, add, backward):
    forward, gradients, reserve_bytes = cudnn.fused_norm(n, c, side, add)

    def normalized(x, gamma, beta, running_mean, running_var, *addend):
        y, mean, rstd = map(torch.empty_like, (x, gamma, gamma))
        reserve = torch.empty(reserve_bytes, device="cuda", dtype=torch.uint8)
        forward(x, addend[0] if addend else None, y, gamma, beta, running_mean, running_var, mean,
                rstd, reserve)
        return y, mean, rstd, reserve

    if not backward:
        return Program(normalized)

    def arguments(*tensors):
        *tensors, dy = tensors
        return (tensors[0], dy, *tensors[1:3], *normalized(*tensors))

    def call(x, dy, gamma, beta, y, mean, rstd, reserve):
        dx, dgamma, dbeta = map(torch.empty_like, (x, gamma, beta))
        dz = torch.empty_like(x) if add else None
        gradients(x, y, dy, dz, dx, gamma, beta, dgamma, dbeta, mean, rstd, reserve)
        return dx, dz, dgamma, dbeta

    return Program(call, arguments)


def case_of(operation, shape, cudnn, library):
    """Of a case of Bertha's JSON, named as "49152x32, log" or "128x64x56x56 NHWC, add"."""
    size, *words = shape.split(", ")
    if operation.startswith(("softmax", "layer_norm")):
        rows, columns = (int(word) for word in size.split("x"))
        return row_case(operation, rows, columns, "log" in words, cudnn, library)
    extents, layout = size.split(" ")
    n, c, side, _ = (int(word) for word in extents.split("x"))
    if operation.startswith("prelu"):
        return prelu_case(operation, n, c, side, layout == "NHWC", library)
    return norm_case(operation, n, c, side, layout == "NHWC", "add" in words, cudnn, library)


def difference(found, wanted):
    """Empty where results are the same but for roundings to f16, of which there are a few in each; a
    sentence where they are not. Tensors that both have are compared, in order.
    """
    listed = lambda results: [results] if isinstance(results, torch.Tensor) else list(results)
    for place, (mine, theirs) in enumerate(zip(listed(found), listed(wanted))):
        theirs = theirs.float()
        off = (mine.float().view_as(theirs) - theirs).abs().max().item()
        largest = theirs.abs().max().item()
        if not off <= 8 * UNIT * largest:  # a NaN is off too
            return f"result {place} is off PyTorch's by {off:.3g}, of {largest:.3g} at most"
    return ""


class Measurement:
    """What row_kernels.py judges grows in `found`."""

    def __init__(self, library, compile_seconds):
        self.compile_seconds = compile_seconds
        self.results, self.notes, self.left_out = [], [], []
        self.seconds = collections.Counter()  # spent on each program
        self.found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                      "cudnn": torch.backends.cudnn.version(), "notes": self.notes,
                      "results": self.results}
        self.library = row_c_api.RowLibrary(library) if library else None
        try:
            self.cudnn = Cudnn()
        except (OSError, RuntimeError, AttributeError) as error:
            self.cudnn = None
            self.notes.append(f"cuDNN: {error}")

    def case(self, operation, shape, moved_bytes):
        """Measures all programs of a case."""
        begin = time.monotonic()
        make_operands, programs = case_of(operation, shape, self.cudnn, self.library)
        sets = sets_of(make_operands)
        torch.cuda.synchronize()
        self.seconds["operands"] += time.monotonic() - begin
        half = lambda *_: (torch.empty(int(moved_bytes / 2), device="cuda", dtype=torch.uint8),)
        programs["copy"] = lambda: Program(lambda half: torch.empty_like(half).copy_(half), half)
        ready, wrong = {}, {}

        def failed(name, error):
            lines = str(error).strip().splitlines()
            sentence = f"{type(error).__name__}: {lines[0] if lines else ''}"
            self.notes.append(f"{name}, {operation} {shape}: {sentence}")
            if name == "bertha":
                wrong[name] = sentence

        for name, make_program in programs.items():
            begin = time.monotonic()
            if name == "compiled":
                if self.compile_seconds <= 0:
                    self.left_out.append(f"{operation} {shape}")
                    continue
                torch._dynamo.reset()
            try:  # a program that cannot run one case is no reason to stop
                program = make_program()
                arguments = [program.arguments(*operands) for operands in sets]
                result = program.call(*arguments[0])
                torch.cuda.synchronize()
                ready[name] = (arguments, program.call, [])
                if name == "bertha" and "eager" in ready:
                    wanted, call, _ = ready["eager"]
                    error = difference(result, call(*wanted[0]))
                    if error:
                        raise RuntimeError(error)
            except Exception as error:
                failed(name, error)
            result = None
            self.seconds[name] += time.monotonic() - begin
            if name == "compiled":
                self.compile_seconds -= time.monotonic() - begin
        for _ in range(TURNS):
            for name, (arguments, call, times) in list(ready.items()):
                begin = time.monotonic()
                try:
                    times += turn_us(arguments, call)
                except Exception as error:
                    failed(name, error)
                    del ready[name]
                self.seconds[name] += time.monotonic() - begin
        medians = {name: statistics.median(times) for name, (*_, times) in ready.items()}
        for name in [*medians, *(name for name in wrong if name not in medians)]:
            self.results.append({"program": name, "operation": operation, "shape": shape,
                                 "median_us": medians.get(name)} |
                                ({"wrong": wrong[name]} if name in wrong else {}))


def measure(cases, library, compile_seconds, save):
    """cases: (operation, shape, bytes moved) of Bertha's; library: file of libbertha_kernels, or None.
    Returns the JSON object that row_kernels.py judges; save(object) is called with it after each
    case, so that a cut run has something to show.
    """
    import torch._dynamo  # so that their settings are there
    import torch._inductor.config
    import torch._functorch.config
    torch.manual_seed(20)
    torch.backends.cudnn.benchmark = True
    torch._inductor.config.compile_threads = 1  # no pool of processes to wait for
    torch._functorch.config.donated_buffer = False  # gradients are taken again and again

    def urgency(case):
        size = case[1].split("x", 1)[1]  # of an image, or columns
        return FIRST.index(size) if size in FIRST else len(FIRST)

    with torch.cuda.stream(torch.cuda.Stream()):
        measurement = Measurement(library, compile_seconds)
        begin = said = time.monotonic()
        for done, case in enumerate(sorted(cases, key=urgency), 1):
            measurement.case(*case)
            gpu_memory.free_cached()
            save(measurement.found)
            if time.monotonic() - said > 10 or done == len(cases):
                said = time.monotonic()
                of_each = ", ".join(f"{name} {seconds:.0f}"
                                    for name, seconds in measurement.seconds.items())
                print(f"{done} of {len(cases)} cases: {said - begin:.0f} s ({of_each})",
                      file=sys.stderr, flush=True)
        torch.cuda.synchronize()
    if measurement.left_out:
        measurement.notes.append(
            f"torch.compile: out of its {compile_seconds} s before {len(measurement.left_out)} of "
            f"{len(cases)} cases, the first {measurement.left_out[0]}")
    if measurement.library:
        measurement.library.close()
    save(measurement.found)
    for note in measurement.notes:
        print(note, file=sys.stderr)
    return measurement.found
