"""Predicts a training step on H200s as the sum of its parts, from steps measured on one GPU.

kernels/measured/scale.md compares the model with measured and published steps and says what is
assumed. Times are in milliseconds and sizes of tensors in elements. Only steps of one GPU and two
constants of the communication are fitted; the rest follows from bytes, lengths and numbers of ranks.
"""
import bisect
import dataclasses
import math
import statistics
import typing

import numpy

# Whole steps of BERT-large on one H200, LAMB of all weights included, by tokens; dropout 0.1,
# Wikipedia's lengths, CUDA graphs.
MEASURED = {"16 bits": {1024: 9.1, 2048: 12.0, 4096: 18.9, 24576: 89.2},
            "fp8": {1024: 9.2, 2048: 11.4, 4096: 15.8, 24576: 65.0}}
SQUARED_PER_TOKEN = 98_826 / 255.83
MASKED_SHARE = 0.15               # of the tokens of a sequence
# Parts of the measured step of 24,576 tokens.
ATTENTION_FLOPS_PER_SECOND = 214e12  # of useful GEMMs, forward and backward
HEAD_FLOPS_PER_SECOND = 550e12       # of its GEMMs, cross-entropy included
LAYER_NORM_MS_PER_ELEMENT = 5.5 / (24 * 24576 * 1024)

MEMORY_BYTES_PER_SECOND = 4.1e12  # in elementwise kernels of a step
LAMB_BYTES_PER_ELEMENT = 40       # moments and apply, 16-bit gradients and weights
APPLY_SHARE = 14 / 40             # the part of LAMB that writes weights, which gathers follow
FORWARD_SHARE = 0.33
BYTES_PER_ELEMENT = 2
STEP_DEVIATION = 0.019            # of GPUs and their steps, relative

NODE_BYTES_PER_SECOND = 300e9     # NVLink, of collectives and copies
NODE_LATENCY_MS = 0.03
# NCCL's tuning model, protocol LL128: a start; hops and bandwidth of a tree against a ring's.
NETWORK_START_MS = 0.014
TREE_HOPS = 2
TREE_BANDWIDTH = 0.6
# How much longer a step took with NCCL inside the node than with copies, by bytes.
NCCL_SLOWDOWN_MS_PER_BYTE = 1.75 / 672e6

SHARES = {"forward and backward": ("forward and backward",),
          "waiting for the last GPU": ("uneven lengths", "slowest GPU"), "LAMB": ("LAMB",),
          "communication between GPUs": ("gradient sums", "weight gathers", "slowed by them",
                                    "norms over ranks")}


class Shape(typing.NamedTuple):
    """A model."""
    layers: int
    hidden: int
    feed_forward: int
    vocab: int       # padded
    embeddings: int  # elements of the tables
    elements: int    # of all weights


LARGE = Shape(24, 1024, 4096, 30528, 31_788_032, 336_232_258)


@dataclasses.dataclass
class Cluster:
    ranks: int
    ranks_per_node: int
    bytes_per_second: float  # of the network of a GPU, each way
    latency_us: float        # of a hop
    copies: bool             # within a node, instead of NCCL
    state_in_each_node: bool

    @property
    def nodes(self):
        return -(-self.ranks // self.ranks_per_node)

    @property
    def gpus_of_node(self):
        return min(self.ranks, self.ranks_per_node)

    @property
    def shards(self):
        in_node = self.state_in_each_node and self.ranks_per_node > 1
        return self.gpus_of_node if in_node else self.ranks

    def in_node_ms(self, size):
        """A reduce-scatter or an all-gather of a buffer of `size` bytes."""
        others = self.gpus_of_node - 1
        return ((others > 0) * NODE_LATENCY_MS
                + 1e3 * size * others / self.gpus_of_node / NODE_BYTES_PER_SECOND)

    def between_nodes_ms(self, size):
        """An all-reduce of `size` bytes of each GPU of a node: the faster of a ring and a tree."""
        if self.nodes == 1:
            return 0 * size
        hops, hop_ms = self.nodes - 1, 1e-3 * self.latency_us
        transfer = 2e3 * size * hops / self.nodes / self.bytes_per_second  # there and back
        ring = 2 * hops * hop_ms + transfer
        tree = (2 * math.ceil(math.log2(self.nodes)) * TREE_HOPS * hop_ms
                + transfer / TREE_BANDWIDTH)
        return NETWORK_START_MS + numpy.minimum(ring, tree)


@dataclasses.dataclass
class Recipe:
    """What the time of a step depends on in a configuration."""
    shape: Shape
    precision: str
    micro_batches: int
    bucket_mib: float
    clips_before: bool
    squared_per_token: float

    def pass_ms(self, tokens):
        """Forward and backward of a micro-batch. A layer's GEMMs take as long as those of
        BERT-large that have as many FLOPs.
        """
        shape = self.shape
        weights = 4 * shape.hidden ** 2 + 2 * shape.hidden * shape.feed_forward
        as_large = tokens * weights / (12 * LARGE.hidden ** 2)
        return (even_ms(shape, tokens, tokens * self.squared_per_token)
                + shape.layers / LARGE.layers * uneven_ms(MEASURED[self.precision], as_large))


def lamb_ms(elements):
    return 1e3 * elements * LAMB_BYTES_PER_ELEMENT / MEMORY_BYTES_PER_SECOND


def even_ms(shape, tokens, squared):
    """What grows evenly with the work: attention, LayerNorm and the masked-token head."""
    attention = 3 * shape.layers * 4 * shape.hidden * squared
    head = 3 * MASKED_SHARE * tokens * 2 * shape.hidden * (shape.hidden + shape.vocab)
    return (1e3 * attention / ATTENTION_FLOPS_PER_SECOND + 1e3 * head / HEAD_FLOPS_PER_SECOND
            + shape.layers * tokens * shape.hidden * LAYER_NORM_MS_PER_ELEMENT)


def uneven_ms(steps, tokens):
    """GEMMs of BERT-large's layers, launches and latencies: on lines between measured steps."""
    sizes = list(steps)
    above = min(max(bisect.bisect_left(sizes, tokens), 1), len(sizes) - 1)
    left, right = sizes[above - 1:above + 1]
    low, high = (steps[size] - lamb_ms(LARGE.elements)
                 - even_ms(LARGE, size, size * SQUARED_PER_TOKEN) for size in (left, right))
    return low + (high - low) * (tokens - left) / (right - left)


def mean_of_largest(count):
    """The mean of the largest of `count` standard normal numbers."""
    below = statistics.NormalDist().cdf
    return sum(0.01 * (1 - below(x) ** count - below(-x) ** count)
               for x in numpy.arange(0.005, 8, 0.01))


def finish_ms(ready, ms):
    """When tasks end that follow each other and of which none begins before it is ready."""
    ends = numpy.cumsum(ms)
    return ends + numpy.maximum.accumulate(ready - ends + ms)


def communication_parts(recipe, cluster, forward_ms, backward_ms, apply_ms):
    """{part: (ms, hidden ms)} of summing gradients and gathering weights, bucket by bucket. Each of
    the two levels, node and network, works on one bucket after the other.
    """
    flat, late = recipe.shape.elements, recipe.shape.embeddings  # backward finishes these last
    wanted = int(recipe.bucket_mib * 2**20) // BYTES_PER_ELEMENT
    begins, sizes = numpy.array([
        (max(low, end - wanted), end - max(low, end - wanted))
        for low, high in ((late, flat), (0, late)) for end in range(high, low, -wanted)]).T
    gpus, size = cluster.gpus_of_node, BYTES_PER_ELEMENT * sizes
    node_ms, network_ms = cluster.in_node_ms(size), cluster.between_nodes_ms(size / gpus)
    # If the shards of the state are on all nodes, a sum and a gather are each half of the
    # all-reduce that shards in a node need.
    of_sum, of_gather = (0.5, 0.5) if cluster.shards > gpus else (1, 0)

    # A sum begins when backward has finished the bucket, in the node first.
    waits = recipe.clips_before and not (cluster.copies and cluster.nodes == 1)
    done = 1 if waits else 1 - numpy.maximum(0, begins - late) / (flat - late)
    summed = finish_ms(finish_ms(backward_ms * done, node_ms), of_sum * network_ms)
    sums = (node_ms + of_sum * network_ms).sum()
    hidden_sums = max(0, sums - max(0, summed[-1] - backward_ms))
    # A gather begins when LAMB has written the weights; forward waits for those that it uses next,
    # and only looks up in the word table.
    gather_ms = (node_ms + of_gather * network_ms)[::-1]
    gathered = finish_ms(numpy.cumsum(apply_ms * sizes[::-1] / flat), gather_ms)
    uses_ms = numpy.where(begins < late, 0, forward_ms * sizes / (flat - late))[::-1]
    used = finish_ms(numpy.maximum(gathered, apply_ms), uses_ms)
    gathers = gather_ms.sum()
    hidden_gathers = max(0, gathers - max(0, used[-1] - apply_ms - forward_ms))

    # Kernels that run next to the communication share memory and, with NCCL, SMs. A GPU reads what it
    # sends and writes what arrives, both ways; the sum reads all and writes its part.
    whole = size.sum()
    by_nccl = (0 if cluster.copies else whole) + (whole / gpus if cluster.nodes > 1 else 0)
    slower = (1e3 * whole * (4 * (gpus - 1) / gpus + 1 + 1 / gpus) / MEMORY_BYTES_PER_SECOND
              + NCCL_SLOWDOWN_MS_PER_BYTE * by_nccl)
    hidden_share = (hidden_sums + hidden_gathers) / (sums + gathers)
    small_sum = cluster.in_node_ms(0) + cluster.between_nodes_ms(0)
    return {"gradient sums": (sums, hidden_sums), "weight gathers": (gathers, hidden_gathers),
            "slowed by them": (slower * hidden_share, 0), "norms over ranks": (2 * small_sum, 0)}


def step_parts(recipe, cluster, mean_tokens, most_rows):
    """{part: (ms, hidden ms)} of a step. mean_tokens: of a rank's micro-batch; most_rows: those of
    the fullest rank.
    """
    count = recipe.micro_batches
    mean_ms, most_ms = recipe.pass_ms(mean_tokens), recipe.pass_ms(most_rows)
    lamb = lamb_ms(recipe.shape.elements / cluster.shards)
    parts = {"forward and backward": (count * mean_ms, 0),
             "uneven lengths": (count * (most_ms - mean_ms), 0),
             "slowest GPU": (count * most_ms * STEP_DEVIATION * mean_of_largest(cluster.ranks), 0),
             "LAMB": (lamb, 0)}
    if cluster.ranks > 1:
        parts |= communication_parts(recipe, cluster, most_ms * FORWARD_SHARE,
                                most_ms * (1 - FORWARD_SHARE), lamb * APPLY_SHARE)
    return parts


def shares_of(parts):
    """{share: exposed ms}; all of the communication counts as one, and all waiting. Rounding may leave
    less than nothing.
    """
    return {share: max(0.0, sum(parts[name][0] - parts[name][1] for name in names if name in parts))
            for share, names in SHARES.items()}
