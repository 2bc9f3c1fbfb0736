"""The kernels that `bertha bench rows` times, in PyTorch and cuDNN: what row_kernels.py compares with.

Each is timed as Bertha times its own: fp16, random operands in rotation that fit into no cache, the
host far ahead of the device, the median of single launches between events.
"""
import ctypes
import statistics
import sys
import time

import torch
import torch.nn.functional as F

HALF = torch.float16
ROTATED_BYTES = 200 << 20
MOST_SETS = 16
LAUNCHES = 20
SLOW_US = 10000  # of one call; then a few must do
CYCLES_PER_US = 2000
# torch.compile takes seconds for each case that its cache (TORCHINDUCTOR_CACHE_DIR) does not have,
# so the most telling ones come first, in this order; then all others.
COMPILED_FIRST = ("64x56x56 NCHW", "64x56x56 NHWC", "256x56x56 NHWC, add", "1024", "128", "32768",
                  "4096", "513", "256", "64", "30522")


def random(*shape, dtype=HALF):
    return torch.empty(shape, device="cuda", dtype=dtype).uniform_(-1, 1)


def time_us(make_operands, call):
    """Median microseconds of call(*operands)."""
    sets = [make_operands()]
    size = sum(t.nbytes for t in sets[0] if isinstance(t, torch.Tensor))
    while len(sets) < min(max(2, ROTATED_BYTES // max(size, 1) + 1), MOST_SETS):
        sets.append(make_operands())
    results = [None] * len(sets)  # held, so that results rotate too
    for i in range(len(sets) + 2):
        results[i % len(sets)] = call(*sets[i % len(sets)])
    torch.cuda.synchronize()
    begin = time.perf_counter()
    results[0] = call(*sets[0])
    host_us = (time.perf_counter() - begin) * 1e6
    torch.cuda.synchronize()
    whole_us = (time.perf_counter() - begin) * 1e6
    launches = LAUNCHES if whole_us < SLOW_US else 3
    events = [torch.cuda.Event(enable_timing=True) for _ in range(launches + 1)]
    torch.cuda._sleep(int(1.5 * launches * (host_us + 10) * CYCLES_PER_US))
    events[0].record()
    for i in range(launches):
        results[i % len(sets)] = call(*sets[i % len(sets)])
        events[i + 1].record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:]))


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

    def softmax(self, rows, columns, log, mode):
        shape = self.tensor(self.NCHW, rows, columns, 1, 1)
        algorithm = 2 if log else 1
        one, zero = ctypes.byref(self.one), ctypes.byref(self.zero)

        def forward(x, y):
            self.check("cudnnSoftmaxForward", self.handle, algorithm, mode, one, shape, self.at(x),
                       zero, shape, self.at(y))

        def backward(dy, y, dx):
            self.check("cudnnSoftmaxBackward", self.handle, algorithm, mode, one, shape,
                       self.at(y), shape, self.at(dy), zero, shape, self.at(dx))

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


# --- the same operations in PyTorch: (operands, call) ---

def row_cases(operation, rows, columns, log):
    aten = torch.ops.aten
    if operation == "softmax_fwd":
        function = torch.log_softmax if log else torch.softmax
        return lambda: (random(rows, columns),), lambda x: function(x, -1)
    if operation == "softmax_bwd":
        function = aten._log_softmax_backward_data if log else aten._softmax_backward_data
        forward = torch.log_softmax if log else torch.softmax
        return (lambda: (random(rows, columns), forward(random(rows, columns), -1)),
                lambda dy, y: function(dy, y, -1, HALF))
    norm = lambda x, gamma, beta: aten.native_layer_norm(x, [columns], gamma, beta, 1e-5)
    parameters = lambda: (random(columns), random(columns))
    if operation == "layer_norm_fwd":
        return lambda: (random(rows, columns), *parameters()), norm

    def backward_operands():
        x, (gamma, beta) = random(rows, columns), parameters()
        return (random(rows, columns), x, *norm(x, gamma, beta)[1:], gamma, beta)

    return backward_operands, lambda dy, x, mean, rstd, gamma, beta: aten.native_layer_norm_backward(
        dy, x, [columns], mean, rstd, gamma, beta, [True, True, True])


def image(n, c, side, last):
    tensor = random(n, c, side, side)
    return tensor.contiguous(memory_format=torch.channels_last) if last else tensor


def prelu_cases(operation, n, c, side, last):
    one = lambda: image(n, c, side, last)
    if operation == "prelu_fwd":
        return lambda: (one(), random(c)), F.prelu

    def backward(dy, x, slope):
        dx, of_each = torch.ops.aten._prelu_kernel_backward(dy, x, slope.view(1, c, 1, 1))
        return dx, of_each.sum((0, 2, 3))

    return lambda: (one(), one(), random(c)), backward


def norm_relu(x, gamma, beta, running_mean, running_var, *addend):
    y = torch.batch_norm(x, gamma, beta, running_mean, running_var, True, 0.1, 1e-5, True)
    for more in addend:
        y = y + more if torch.compiler.is_compiling() else y.add_(more)
    return torch.relu(y) if torch.compiler.is_compiling() else torch.relu_(y)


def norm_cases(operation, n, c, side, last, add, function=norm_relu):
    parameters = lambda: [random(c, dtype=torch.float32) for _ in range(4)]

    def operands():
        return (image(n, c, side, last), *parameters(),
                *([image(n, c, side, last)] if add else []))

    if operation == "batch_norm_relu_fwd":
        @torch.no_grad()
        def forward(*tensors):
            return function(*tensors)
        return operands, forward

    def backward_operands():
        tensors = operands()
        wanted = [tensors[0], tensors[1], tensors[2], *tensors[5:]]
        for tensor in wanted:
            tensor.requires_grad_()
        return (function(*tensors), image(n, c, side, last), *wanted)

    return backward_operands, lambda y, dy, *wanted: torch.autograd.grad(
        y, wanted, dy, retain_graph=True)


def parse(operation, shape):
    """What a case of Bertha's JSON is: (kind, numbers)."""
    size, *words = shape.split(", ")
    if operation.startswith(("softmax", "layer_norm")):
        rows, columns = (int(word) for word in size.split("x"))
        return "rows", (rows, columns, "log" in words)
    extents, layout = size.split(" ")
    n, c, side, _ = (int(word) for word in extents.split("x"))
    return "images", (n, c, side, layout == "NHWC", "add" in words)


def eager(operation, shape):
    kind, sizes = parse(operation, shape)
    if kind == "rows":
        return row_cases(operation, *sizes)
    if operation.startswith("prelu"):
        return prelu_cases(operation, *sizes[:4])
    return norm_cases(operation, *sizes)


def compiled(operation, shape):
    """(operands, call) through torch.compile."""
    kind, sizes = parse(operation, shape)
    torch._dynamo.reset()
    if kind == "rows":
        operands, call = row_cases(operation, *sizes)
        return operands, torch.compile(call, dynamic=False)
    if operation.startswith("prelu"):
        operands, call = prelu_cases(operation, *sizes[:4])
        return operands, torch.compile(call, dynamic=False)
    return norm_cases(operation, *sizes, function=torch.compile(norm_relu, dynamic=False))


def cudnn_us(cudnn, operation, shape):
    """cuDNN's own softmax, and its fused normalisation; None where it has none."""
    kind, sizes = parse(operation, shape)
    if operation.startswith("softmax"):
        rows, columns, log = sizes
        if log:
            return None  # the same kernels
        times = []
        for mode in (0, 1):  # per instance, per channel: the same for these extents
            forward, backward = cudnn.softmax(rows, columns, log, mode)
            count = 2 if operation == "softmax_fwd" else 3
            times.append(time_us(lambda: tuple(random(rows, columns) for _ in range(count)),
                                 forward if operation == "softmax_fwd" else backward))
        return min(times)
    if kind == "rows" or not operation.startswith("batch_norm") or not sizes[3]:
        return None
    n, c, side, _, add = sizes
    forward, backward, reserve_bytes = cudnn.fused_norm(n, c, side, add)
    one = lambda: random(n, side, side, c)
    channel = lambda: random(c, dtype=torch.float32)

    def operands():
        x, z, y = one(), one() if add else None, one()
        saved = [channel(), channel(), torch.empty(reserve_bytes, device="cuda", dtype=torch.uint8)]
        gamma, beta = channel(), channel()
        forward(x, z, y, gamma, beta, channel(), channel(), *saved)
        if operation == "batch_norm_relu_fwd":
            return (x, z, y, gamma, beta, channel(), channel(), *saved)
        return (x, y, one(), one() if add else None, one(), gamma, beta, channel(), channel(),
                *saved)

    return time_us(operands, forward if operation == "batch_norm_relu_fwd" else backward)


def measure(cases, compile_seconds, save):
    """cases: (operation, shape) of Bertha's. Returns the JSON object that row_kernels.py judges;
    save(object) is called with it after each program, so that a cut run has something to show.
    """
    import torch._dynamo  # so that their settings are there
    import torch._inductor.config
    import torch._functorch.config
    torch.manual_seed(20)
    torch.backends.cudnn.benchmark = True
    results, notes = [], []
    begin = time.monotonic()
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
             "cudnn": torch.backends.cudnn.version(), "notes": notes, "results": results}

    def done(program):
        print(f"{program}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        save(found)

    def attempt(program, operation, shape, measured):
        try:
            us = measured()
        except Exception as error:  # one case that a program cannot run is no reason to stop
            lines = str(error).strip().splitlines()
            notes.append(f"{program}, {operation} {shape}: "
                         f"{type(error).__name__}: {lines[0] if lines else ''}")
            us = None
        if us is not None:
            results.append({"program": program, "operation": operation, "shape": shape,
                            "median_us": us})
        torch.cuda.empty_cache()

    for operation, shape in cases:
        attempt("eager", operation, shape, lambda: time_us(*eager(operation, shape)))
    done("eager")
    try:
        cudnn = Cudnn()
    except (OSError, RuntimeError, AttributeError) as error:
        notes.append(f"cuDNN: {error}")
    else:
        for operation, shape in cases:
            attempt("cudnn", operation, shape, lambda: cudnn_us(cudnn, operation, shape))
    done("cuDNN")
    deadline = time.monotonic() + compile_seconds

    def urgency(case):
        size = case[1].split("x", 1)[1]  # of an image, or columns
        return COMPILED_FIRST.index(size) if size in COMPILED_FIRST else len(COMPILED_FIRST)

    torch._inductor.config.compile_threads = 1  # no pool of processes to wait for
    torch._functorch.config.donated_buffer = False  # gradients are taken again and again
    left_out = []
    for operation, shape in sorted(cases, key=urgency):
        if time.monotonic() > deadline:
            left_out.append(f"{operation} {shape}")
            continue
        attempt("compiled", operation, shape, lambda: time_us(*compiled(operation, shape)))
    if left_out:
        notes.append(f"torch.compile: out of its {compile_seconds} s before {len(left_out)} of "
                     f"{len(cases)} cases, the first {left_out[0]}")
    done("torch.compile")
    for note in notes:
        print(note, file=sys.stderr)
    return found
