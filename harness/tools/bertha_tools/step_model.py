"""Predicts a training step on H200s as the sum of its parts, from steps measured on one GPU.

kernels/measured/scale.md compares the model with measured and published steps and says what is
assumed. Times are in milliseconds and sizes of tensors in elements. Only steps of one GPU and two
constants of the exchange are fitted; the rest follows from bytes, lengths and numbers of ranks.
"""
import bisect
import dataclasses
import math

# Whole steps of BERT-large on one H200, LAMB of all weights included, by tokens; dropout 0.1,
# Wikipedia's lengths, CUDA graphs.
MEASURED = {"16 bits": {1024: 9.1, 2048: 12.0, 4096: 18.9, 24576: 89.2},
            "fp8": {1024: 9.2, 2048: 11.4, 4096: 15.8, 24576: 65.0}}
LARGE_PARAMETERS = 336_232_258
SQUARED_PER_TOKEN = 98_826 / 255.83
MASKED_PER_TOKEN = 3686 / 24576
# Parts of the measured step of 24,576 tokens.
ATTENTION_FLOPS_PER_SECOND = 214e12  # of useful GEMMs, forward and backward
HEAD_FLOPS_PER_SECOND = 550e12       # of its GEMMs, cross-entropy included
LAYER_NORM_MS_PER_ELEMENT = 5.5 / (24 * 24576 * 1024)

MEMORY_BYTES_PER_SECOND = 4.1e12  # in elementwise kernels of a step
LAMB_BYTES_PER_ELEMENT = 40       # moments and apply, 16-bit gradients and weights
APPLY_SHARE = 14 / 40             # the part of LAMB that writes weights, which gathers follow
FORWARD_SHARE = 0.33
MASKED_SHARE = 0.15               # of the tokens of a sequence
BYTES_PER_ELEMENT = 2
ROW_MULTIPLE = 256                # of token rows on a GPU
LINE_ELEMENTS = 128               # of a shard
STEP_DEVIATION = 0.019            # of GPUs and their steps, relative
INPUT_SEQS_PER_SECOND = 121_000   # of one core
WATTS = 690                       # of an H200 at its power limit

NODE_BYTES_PER_SECOND = 300e9     # NVLink, of collectives and copies
NODE_LATENCY_MS = 0.03
# NCCL's tuning model, protocol LL128: a start; hops and bandwidth of a tree against a ring's.
NETWORK_START_MS = 0.014
TREE_HOPS = 2
TREE_BANDWIDTH = 0.6
# How much longer a step took with NCCL inside the node than with copies, and its bytes.
NCCL_SLOWDOWN_MS = 1.75
BYTES_OF_THAT_STEP = 672e6


def round_up(number, multiple):
    return -(-number // multiple) * multiple


@dataclasses.dataclass
class Shape:
    """A model."""
    layers: int
    hidden: int
    feed_forward: int
    vocab_size: int
    positions: int
    segments: int

    @property
    def vocab(self):
        return round_up(self.vocab_size, 8)

    def part_elements(self):
        """Elements of the embeddings, of one layer and of the heads in the flat buffer."""
        h, f, v = self.hidden, self.feed_forward, self.vocab
        parts = ((v * h, self.positions * h, self.segments * h, h, h),
                 (3 * h * h, 3 * h, h * h, h, h, h, f * h, f, h * f, h, h, h),
                 (h * h, h, h * h, h, h, h, v, 2 * h, 2))
        return [sum(round_up(tensor, 64) for tensor in part) for part in parts]

    def elements(self):
        embeddings, layer, heads = self.part_elements()
        return embeddings + self.layers * layer + heads


LARGE = Shape(24, 1024, 4096, 30522, 512, 2)


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
        gpus = self.gpus_of_node
        if gpus == 1:
            return 0
        return NODE_LATENCY_MS + 1e3 * size * (gpus - 1) / gpus / NODE_BYTES_PER_SECOND

    def between_nodes_ms(self, size):
        """An all-reduce of `size` bytes of each GPU of a node: the faster of a ring and a tree."""
        if self.nodes == 1:
            return 0
        hops, hop_ms = self.nodes - 1, 1e-3 * self.latency_us
        transfer = 2e3 * size * hops / self.nodes / self.bytes_per_second  # there and back
        ring = 2 * hops * hop_ms + transfer
        tree = (2 * math.ceil(math.log2(self.nodes)) * TREE_HOPS * hop_ms
                + transfer / TREE_BANDWIDTH)
        return NETWORK_START_MS + min(ring, tree)


def lamb_ms(elements):
    return 1e3 * elements * LAMB_BYTES_PER_ELEMENT / MEMORY_BYTES_PER_SECOND


def even_ms(shape, tokens, squared, masked):
    """What grows evenly with the work: attention, LayerNorm and the masked-token head."""
    attention = 3 * shape.layers * 4 * shape.hidden * squared
    head = 3 * masked * 2 * shape.hidden * (shape.hidden + shape.vocab)
    return (1e3 * attention / ATTENTION_FLOPS_PER_SECOND + 1e3 * head / HEAD_FLOPS_PER_SECOND
            + shape.layers * tokens * shape.hidden * LAYER_NORM_MS_PER_ELEMENT)


def uneven_ms(steps, tokens):
    """GEMMs of BERT-large's layers, launches and latencies: on lines between measured steps."""
    sizes = list(steps)
    above = min(max(bisect.bisect_left(sizes, tokens), 1), len(sizes) - 1)
    low, high = (steps[size] - lamb_ms(LARGE_PARAMETERS)
                 - even_ms(LARGE, size, size * SQUARED_PER_TOKEN, size * MASKED_PER_TOKEN)
                 for size in sizes[above - 1:above + 1])
    slope = (high - low) / (sizes[above] - sizes[above - 1])
    return low + slope * (tokens - sizes[above - 1])


def pass_ms(shape, tokens, squared_per_token, precision):
    """Forward and backward of a micro-batch. A layer's GEMMs take as long as those of BERT-large
    that have as many FLOPs.
    """
    weights = 4 * shape.hidden ** 2 + 2 * shape.hidden * shape.feed_forward
    as_large = tokens * weights / (12 * LARGE.hidden ** 2)
    return (even_ms(shape, tokens, tokens * squared_per_token, MASKED_SHARE * tokens)
            + shape.layers / LARGE.layers * uneven_ms(MEASURED[precision], as_large))


def mean_of_largest(count):
    """The mean of the largest of `count` standard normal numbers."""
    step = 0.005
    mean = 0
    for i in range(1600):
        x = step / 2 + i * step
        below, above = (0.5 * math.erfc(-side / math.sqrt(2)) for side in (x, -x))
        mean += step * (1 - below ** count - above ** count)
    return mean


class Exchange:
    """Sums of gradients and gathers of weights in a step. Each of the two levels, node and network,
    works on one bucket after the other.
    """

    def __init__(self, cluster, shape, bucket_mib):
        unit = LINE_ELEMENTS * cluster.shards
        self.cluster = cluster
        self.flat = round_up(shape.elements(), unit)
        self.late = shape.part_elements()[0]  # backward finishes the embeddings last
        wanted = int(bucket_mib * (1 << 20)) // BYTES_PER_ELEMENT // unit * unit
        self.buckets = self.cut(round_up(self.late, unit), max(wanted, unit))

    def cut(self, late_end, wanted):
        """[(begin, elements)], descending: full buckets from the end of each of the two parts."""
        buckets, end = [], self.flat
        while end > 0:
            begin = max(late_end if end > late_end else 0, end - wanted)
            buckets.append((begin, end - begin))
            end = begin
        return buckets

    def times(self, elements, is_sum):
        """Milliseconds of a bucket in the node and between nodes. If the shards of the state are on
        all nodes, a sum and a gather are each half of the all-reduce that shards in a node need.
        """
        gpus, size = self.cluster.gpus_of_node, elements * BYTES_PER_ELEMENT
        share = 0.5 if self.cluster.shards > gpus else 1 if is_sum else 0
        return self.cluster.in_node_ms(size), share * self.cluster.between_nodes_ms(size / gpus)

    def sums(self, backward_ms, wait):
        """(ms, hidden ms). The sum of a bucket begins when backward has finished it, in the node
        first.
        """
        whole = in_node = between = 0  # the last two: since the start of backward
        for begin, elements in self.buckets:
            done = 1 if wait else 1 - max(0, begin - self.late) / (self.flat - self.late)
            node_ms, network_ms = self.times(elements, is_sum=True)
            in_node = max(in_node, backward_ms * done) + node_ms
            between = max(between, in_node) + network_ms
            whole += node_ms + network_ms
        return whole, max(0, whole - max(0, between - backward_ms))

    def gathers(self, forward_ms, apply_ms):
        """(ms, hidden ms). Forward waits for the weights that it uses next."""
        whole = applied = gathered = 0  # the last two: since LAMB began to write weights
        forward = apply_ms
        for begin, elements in reversed(self.buckets):
            ms = sum(self.times(elements, is_sum=False))
            applied += apply_ms * elements / self.flat
            gathered = max(gathered, applied) + ms
            whole += ms
            forward = max(forward, gathered)
            if begin >= self.late:  # the word table is only looked up
                forward += forward_ms * elements / (self.flat - self.late)
        return whole, max(0, whole - max(0, forward - apply_ms - forward_ms))

    def slowdown_ms(self, hidden_share):
        """Kernels that run next to the exchange share memory and, with NCCL, SMs. A GPU reads what
        it sends and writes what arrives, both ways; the sum reads all and writes its part.
        """
        gpus, size = self.cluster.gpus_of_node, self.flat * BYTES_PER_ELEMENT
        moved = size * (4 * (gpus - 1) / gpus + 1 + 1 / gpus)
        by_nccl = 0 if self.cluster.copies else size
        if self.cluster.nodes > 1:
            by_nccl += size / gpus
        return hidden_share * (1e3 * moved / MEMORY_BYTES_PER_SECOND
                               + NCCL_SLOWDOWN_MS * by_nccl / BYTES_OF_THAT_STEP)

    def parts(self, forward_ms, backward_ms, apply_ms, sums_wait):
        """{part: (ms, hidden ms)}"""
        sums, gathers = self.sums(backward_ms, sums_wait), self.gathers(forward_ms, apply_ms)
        hidden_share = (sums[1] + gathers[1]) / (sums[0] + gathers[0])
        small_sum = self.cluster.in_node_ms(0) + self.cluster.between_nodes_ms(0)
        return {"gradient sums": sums, "weight gathers": gathers,
                "slowed by them": (self.slowdown_ms(hidden_share), 0),
                "norms over ranks": (2 * small_sum, 0)}


@dataclasses.dataclass
class Recipe:
    """What the time of a step depends on in a configuration."""
    shape: Shape
    precision: str
    micro_batches: int
    bucket_mib: float
    clips_before: bool
    mean_tokens: float        # of a sequence
    squared_per_token: float


def step_parts(recipe, cluster, mean_tokens, most_rows):
    """{part: (ms, hidden ms)} of a step whose ranks have so many tokens in a micro-batch."""
    shape, count = recipe.shape, recipe.micro_batches
    mean_ms, most_ms = (pass_ms(shape, tokens, recipe.squared_per_token, recipe.precision)
                        for tokens in (mean_tokens, most_rows))
    lamb = lamb_ms(shape.elements() / cluster.shards)
    parts = {"forward and backward": (count * mean_ms, 0),
             "uneven lengths": (count * (most_ms - mean_ms), 0),
             "slowest GPU": (count * most_ms * STEP_DEVIATION * mean_of_largest(cluster.ranks), 0),
             "LAMB": (lamb, 0)}
    if cluster.ranks > 1:
        sums_wait = recipe.clips_before and not (cluster.copies and cluster.nodes == 1)
        exchange = Exchange(cluster, shape, recipe.bucket_mib)
        parts |= exchange.parts(most_ms * FORWARD_SHARE, most_ms * (1 - FORWARD_SHARE),
                                lamb * APPLY_SHARE, sums_wait)
    input_ms = 1e3 * mean_tokens * count / recipe.mean_tokens / INPUT_SEQS_PER_SECOND
    parts["input pipeline"] = (input_ms, min(input_ms, exposed_ms(parts)))
    return parts


def exposed_ms(parts, names=None):
    return sum(ms - hidden for name, (ms, hidden) in parts.items()
               if names is None or name in names)


PARTS_OF = {"waiting for the last GPU": ("uneven lengths", "slowest GPU"),
            "exchange between GPUs": ("gradient sums", "weight gathers", "slowed by them",
                                      "norms over ranks")}
SHARES = ("forward and backward", "waiting for the last GPU", "LAMB", "exchange between GPUs",
          "input pipeline")


def shares_ms(parts):
    """What is exposed; all of the exchange counts as one, and all waiting. Rounding may leave less
    than nothing.
    """
    return {share: max(0.0, exposed_ms(parts, PARTS_OF.get(share, (share,)))) for share in SHARES}


def bound_of(parts, recipe, tokens):
    """The two largest shares. Latencies of kernels bound a pass if one token takes at least 1.2
    times as long as in a micro-batch that is 16 times as large.
    """
    here, larger = (pass_ms(recipe.shape, times * tokens, recipe.squared_per_token,
                            recipe.precision) for times in (1, 16))
    why = "latencies of kernels that do not fill the GPU" if 16 * here > 1.2 * larger \
        else "GEMMs at the GPU's power limit"
    shares = shares_ms(parts)
    return ", then ".join(
        f"{100 * shares[share] / exposed_ms(parts):.0f} % {share}"
        + (f" ({why})" if share == "forward and backward" else "")
        for share in sorted(shares, key=shares.get, reverse=True)[:2])
