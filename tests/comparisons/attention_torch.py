"""The attention that `bertha bench kernels --op attention` times, in PyTorch: what attention_peers.py compares with.

    FlashAttention-2   the varlen form: un-padded tokens, as a user of PyTorch would train on them
    cuDNN un-padded    cuDNN's attention over the same tokens, where PyTorch offers it
    cuDNN padded       cuDNN's attention over [B, A, longest, D] without a mask: the fastest that
                       padding can be, since a mask only adds to it

Forward and backward are timed apart, each as row_peers.py times: operands in rotation that fit into
no cache, the host far ahead of the device, the median of single calls between events. Queries, keys
and values are views of one tensor [T, 3, A, D], as a model's product leaves them.
"""
import itertools
import math
import statistics
import sys

import torch

import gpu_memory
from row_peers import TURNS, random, sets_of, turn_us

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


class Batch:
    """The sequences of one mix."""

    def __init__(self, mix, heads, head_size, dtype, dropout):
        self.lengths = mix["lengths"]
        self.heads, self.head_size, self.dtype, self.dropout = heads, head_size, dtype, dropout
        self.tokens, self.longest = sum(self.lengths), max(self.lengths)
        starts = torch.tensor([0] + self.lengths).cumsum(0)
        self.starts = starts.to(device="cuda", dtype=torch.int32)
        self.scale = 1 / math.sqrt(head_size)

    def live(self):
        """(q, k, v) over live tokens, each [T, A, D]."""
        return random(self.tokens, 3, self.heads, self.head_size, dtype=self.dtype).unbind(1)

    def padded(self):
        """(q, k, v) over all places, each [B, A, longest, D]."""
        return random(len(self.lengths), self.longest, 3, self.heads, self.head_size,
                      dtype=self.dtype).permute(2, 0, 3, 1, 4).unbind(0)


# Each gives (operands, forward, operands of backward, backward).

def flash(b):
    aten = torch.ops.aten
    sizes = (b.starts, b.starts, b.longest, b.longest, b.dropout, False)

    def forward(q, k, v):
        return aten._flash_attention_forward(q, k, v, *sizes, False, scale=b.scale)

    def backward_operands():
        q, k, v = b.live()
        out, lse, state, unused, _ = forward(q, k, v)
        return torch.empty_like(out).uniform_(-1, 1), q, k, v, out, lse, state, unused

    def backward(dout, q, k, v, out, lse, state, unused):
        return aten._flash_attention_backward(dout, q, k, v, out, lse, *sizes, state, unused,
                                              scale=b.scale)

    return b.live, forward, backward_operands, backward


def cudnn_unpadded(b):
    aten = torch.ops.aten
    sizes = (b.starts, b.starts, b.longest, b.longest)

    def forward(q, k, v):
        return aten._cudnn_attention_forward(q, k, v, None, *sizes, True, b.dropout, False, False,
                                             scale=b.scale)

    def backward_operands():
        q, k, v = b.live()
        out, lse, _, _, _, _, seed, offset, _ = forward(q, k, v)
        return torch.empty_like(out).uniform_(-1, 1), q, k, v, out, lse, seed, offset

    def backward(dout, q, k, v, out, lse, seed, offset):
        return aten._cudnn_attention_backward(dout, q, k, v, out, lse, seed, offset, None, *sizes,
                                              b.dropout, False, scale=b.scale)

    return b.live, forward, backward_operands, backward


def cudnn_padded(b):
    aten = torch.ops.aten

    def forward(q, k, v):
        return aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, b.dropout, False,
                                                        scale=b.scale)

    def backward_operands():
        q, k, v = b.padded()
        out, lse, starts_q, starts_k, _, _, seed, offset, _ = forward(q, k, v)
        return (torch.empty_like(out).uniform_(-1, 1), q, k, v, out, lse, seed, offset, starts_q,
                starts_k)

    def backward(dout, q, k, v, out, lse, seed, offset, starts_q, starts_k):
        return aten._scaled_dot_product_cudnn_attention_backward(
            dout, q, k, v, out, lse, seed, offset, None, starts_q, starts_k, b.longest, b.longest,
            b.dropout, False, scale=b.scale)

    return b.padded, forward, backward_operands, backward


PROGRAMS = {
    "FlashAttention-2": flash,
    "cuDNN padded": cudnn_padded,
    "cuDNN un-padded": cudnn_unpadded,
}


def median_us(make_operands, call):
    """Median microseconds of call(*operands)."""
    sets = sets_of(make_operands)
    return statistics.median(us for _ in range(TURNS) for us in turn_us(sets, call))


def measure(report):
    """`report`: the JSON of bench kernels, with the rows of attention_peers.attention_of. Returns what attention_peers.py prints."""
    if report["precision"] not in DTYPES:
        sys.exit(f"attention_peers.py: precision is {report['precision']}, want bf16 or f16")
    if not torch.cuda.is_available():
        sys.exit("attention_peers.py: measuring needs a GPU that PyTorch sees; --peers FILE prints "
                 "what was measured before")
    torch.manual_seed(20)
    results, notes = [], []
    dropouts = sorted({row["dropout"] for row in report["rows"]})
    # A call that fails inside a library may take the process's context along: PROGRAMS has the
    # proven ones first.
    for program, mix, dropout in itertools.product(PROGRAMS, report["mixes"], dropouts):
        try:
            batch = Batch(mix, report["heads"], report["head_size"], DTYPES[report["precision"]],
                          dropout)
            operands, forward, backward_operands, backward = PROGRAMS[program](batch)
            times = {"forward": median_us(operands, forward)}
            times["backward"] = median_us(backward_operands, backward)
        except Exception as error:  # one that cannot run is no reason to stop
            first = (str(error).strip().splitlines() or [""])[0]
            notes.append(f"{program}, {mix['name']}, dropout {dropout:.2f}: "
                         f"{type(error).__name__}: {first}")
            times = {}
        results += [{"program": program, "mix": mix["name"], "dropout": dropout,
                     "direction": direction, "median_us": us} for direction, us in times.items()]
        try:
            gpu_memory.free_cached()
        except RuntimeError:  # the context is gone; what follows says so
            pass
    return {"device": report["device"], "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(), "notes": notes, "results": results}
