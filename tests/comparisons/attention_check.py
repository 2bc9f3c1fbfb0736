"""What `bertha bench kernels --dump` wrote, against float64 PyTorch: attention_peers.py --check.

Every live row is computed again from the dump's queries, keys, values and gradient: probabilities,
outputs, log-sum-exps and the three gradients, sequence by sequence, by the formulas of the paper
rather than by autograd, with the dropout that the dump's seed stands for. The bits of the mask are
drawn here from their definition (Philox 4x32 with 7 rounds, digits compared from the highest down)
and have to be equal; padding rows have to be zero.

Bounds are those of kernels/base/tests/tolerance.h, relative to the largest element (u = half a unit in
the last place): a probability, dS and a result are rounded once each.
"""
import math
import struct
import sys

import torch
from safetensors import safe_open

UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24}
F32 = 128 * 2.0**-24
WORD = 0xFFFFFFFF
ROUNDS = 7


def philox(counter, key):
    """Words of ROUNDS rounds; int64 tensors that hold 32 bits each."""
    c0, c1, c2, c3 = counter
    low, high = key & WORD, key >> 32
    for _ in range(ROUNDS):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # wrap around in 64 bits, as intended
        c0, c1, c2, c3 = ((p1 >> 32) & WORD ^ c1 ^ low, p1 & WORD,
                          (p0 >> 32) & WORD ^ c3 ^ high, p0 & WORD)
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def turned(word, by):
    """Bit b is bit b + by of `word`, counted around."""
    by %= 32
    return (word >> by | word << (32 - by)) & WORD


def dropout_digits(words):
    """The 24 digits of 32 numbers each, the highest first: bit b is of number b."""
    yield from words
    turn = 0
    for four in range(1, 6):
        turn += (25, 10, 6, 27, 12)[four - 1]
        for place in range(4):
            word = place if four % 2 else 3 - place
            mixed = words[word] ^ turned(words[(word + 1) % 4], (5, 19, 28, 26)[word])
            yield turned(mixed, turn)


def kept_words(seed, step, site, groups, probability):
    """32 decisions for each of `groups` (int64): bit b is element 32 * group + b."""
    threshold = int(probability * 2.0**24 + 0.5)
    dropped = torch.zeros_like(groups)
    undecided = torch.full_like(groups, WORD)
    words = philox((groups & WORD, (groups >> 32) & WORD, torch.full_like(groups, site),
                    torch.full_like(groups, step & WORD)), seed)
    for place, digits in enumerate(dropout_digits(words)):
        if threshold >> (23 - place) & 1:
            dropped |= undecided & ~digits
            undecided &= digits
        else:
            undecided &= ~digits
    return ~dropped & WORD


class Worst:
    """The largest difference of one result beside its bound."""

    def __init__(self, bound):
        self.bound, self.error, self.largest = bound, 0.0, 0.0

    def add(self, found, wanted):
        found = found.double()
        if not bool(torch.isfinite(found).all()):
            self.error = math.inf
        elif wanted.numel():
            self.error = max(self.error, float((found - wanted).abs().max()))
            self.largest = max(self.largest, float(wanted.abs().max()))

    def share(self, magnitude=0.0):
        scale = self.bound * max(self.largest, magnitude)
        return self.error / scale if scale > 0 else (0.0 if self.error == 0 else math.inf)


class Dump:
    def __init__(self, path, device):
        with safe_open(path, framework="pt") as file:
            self.about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        # {seed, step}; both are small here, and torch does little with unsigned 64 bits.
        self.seed, self.step = (int(word) for word in tensors.pop("random").tolist())
        self.starts = tensors.pop("cu_seqlens").tolist()
        self.t = {name: tensor.to(device) for name, tensor in tensors.items()}
        # The probability is a float there.
        self.dropout, = struct.unpack("f", struct.pack("f", float(self.about["dropout"])))
        self.tokens, _, self.heads, self.head_size = self.t["qkv"].shape

    def kept(self, first, length):
        """Whether the seed keeps a probability: [A, length, length] as f64, and the mask's bits."""
        width = self.t["mask"].shape[-1] * 8
        rows = torch.arange(first, first + length, device=self.t["mask"].device)
        rows = rows[:, None] * self.heads + torch.arange(self.heads, device=rows.device)
        words = torch.arange((length + 31) // 32, device=rows.device)
        groups = rows[..., None] * (width // 32) + words  # [length, A, words]
        drawn = kept_words(self.seed, self.step, int(self.about["site"]), groups, self.dropout)
        bit = torch.arange(32, device=rows.device)
        drawn = (drawn[..., None] >> bit & 1).flatten(2)[..., :length]
        stored = self.t["mask"][first:first + length].long()
        stored = (stored[..., None] >> torch.arange(8, device=rows.device) & 1).flatten(2)
        return drawn.transpose(0, 1).double(), stored[..., :length].transpose(0, 1)


def check(path, device):
    """Prints the errors of one dump; true when all are within their bounds."""
    dump = Dump(path, device)
    unit = UNIT[dump.t["qkv"].dtype]
    worst = {"out": Worst(4 * unit + F32), "lse": Worst(F32), "dquery": Worst(8 * unit + 2 * F32),
             "dkey": Worst(8 * unit + 2 * F32), "dvalue": Worst(4 * unit + F32)}
    scale = 1 / math.sqrt(dump.head_size)
    largest_term, wrong_bits, bits = 0.0, 0, 0
    for first, end in zip(dump.starts, dump.starts[1:]):
        length = end - first
        if length == 0:
            continue
        q, k, v = dump.t["qkv"][first:end].double().permute(1, 2, 0, 3)  # [A, length, D] each
        dout = dump.t["dout"][first:end].double().transpose(0, 1)
        scores = q @ k.transpose(1, 2) * scale
        lse = torch.logsumexp(scores, -1)
        p = torch.exp(scores - lse[..., None])
        factor = torch.ones_like(p)
        if dump.dropout > 0:
            drawn, stored = dump.kept(first, length)
            wrong_bits += int((drawn != stored).sum())
            bits += drawn.numel()
            factor = drawn / (1 - dump.dropout)
        dropped = p * factor
        slope = dout @ v.transpose(1, 2) * factor
        largest_term = max(largest_term, float((p * slope).abs().max()) * scale)
        dscore = p * (slope - (p * slope).sum(-1, keepdim=True)) * scale
        found = dump.t["dqkv"][first:end].permute(1, 2, 0, 3)
        worst["out"].add(dump.t["out"][first:end].transpose(0, 1), dropped @ v)
        worst["lse"].add(dump.t["lse"][:, first:end], lse)
        worst["dquery"].add(found[0], dscore @ k)
        worst["dkey"].add(found[1], dscore.transpose(1, 2) @ q)
        worst["dvalue"].add(found[2], dropped.transpose(1, 2) @ dout)
    # Inputs are at most 2; where a sequence is short the terms of dS cancel.
    magnitude = {"dquery": 2 * largest_term, "dkey": 2 * largest_term, "lse": 8.0}
    shares = {name: w.share(magnitude.get(name, 0.0)) for name, w in worst.items()}
    padding = sum(int(dump.t[name][dump.starts[-1]:].count_nonzero()) for name in ("out", "dqkv"))
    good = max(shares.values()) <= 1 and wrong_bits == 0 and padding == 0
    print(f"{path}: {dump.about['kernels']}, {dump.about['mix']}, dropout {dump.dropout:.3g}, "
          f"{len(dump.starts) - 1} sequences of {dump.starts[-1]} tokens: "
          f"{'right' if good else 'WRONG'}")
    for name, w in worst.items():
        print(f"  {name:7} differs by {w.error:.3e} of {w.largest:.3e}, "
              f"{shares[name]:.3f} of the bound")
    print(f"  mask    {wrong_bits} of {bits} bits differ; padding rows: {padding} not zero")
    return good


def check_all(paths):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.no_grad():
        verdicts = [check(path, device) for path in paths]
    sys.stdout.flush()
    return all(verdicts)
