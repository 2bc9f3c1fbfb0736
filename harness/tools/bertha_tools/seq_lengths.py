"""Lengths of training samples, and how evenly steps of them fall on ranks.

Lengths of a few steps are drawn and assigned as data/pipeline/synthetic_steps.cpp does, bit for
bit, so that a prediction does not depend on who makes it. A histogram is a list: element t counts
the sequences of t tokens.
"""
import json
import pathlib

import numpy

from bertha_tools.errors import DATA, Refused
from bertha_tools.run_folder import printable

# {tokens: how many of 10,000 MLPerf training samples are no longer than that}
# Source: 16,279,552 samples, Krell et al., arXiv:2107.02027.
PUBLISHED = {32: 359, 64: 1759, 96: 2897, 128: 3694, 160: 4317, 192: 4834, 224: 5276, 256: 5663,
             288: 6003, 320: 6308, 352: 6584, 384: 6836, 416: 7067, 448: 7280, 480: 7477, 511: 7657,
             512: 10000}
SHORTEST_PUBLISHED = 5
STEPS = 8
MASK_32, MASK_64 = 2**32 - 1, 2**64 - 1


def published():
    histogram, first, before = [0] * SHORTEST_PUBLISHED, SHORTEST_PUBLISHED, 0
    for tokens, seqs in PUBLISHED.items():
        count = tokens - first + 1
        histogram += [100_000 * (seqs - before) // count] * count
        first, before = tokens + 1, seqs
    return histogram


def of_manifest(folder):
    """(samples, histogram) of a data folder; None if it has no manifest or no sample."""
    path = pathlib.Path(folder or "/dev/null") / "manifest.json"
    if not path.is_file():
        return None
    try:
        manifest = json.loads(path.read_bytes())
        samples = sum(int(shard["samples"]) for shard in manifest["shards"])
        histogram = [int(count) for count in manifest["token_length_histogram"]]
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise Refused(DATA, f"{printable(path)}: cannot be read ({printable(error)}); make it "
                      "again with `bertha data verify`") from None
    return (samples, histogram) if samples > 0 and sum(histogram) > 0 else None


def of_file(path):
    """A count on each line, for lengths 1, 2, 3, ...; or a length and its count."""
    rows = numpy.loadtxt(path, dtype=int, ndmin=2)
    lengths = rows[:, 0] if rows.shape[1] == 2 else 1 + numpy.arange(len(rows))
    return numpy.bincount(lengths, rows[:, -1])


def of_config(config):
    """The lengths of data.train by its manifest. Without one, the published lengths if sequences
    may be as long as those, and otherwise all at full length.
    """
    longest = config["data.max_seq_tokens"]
    if config["data.synthetic"]:
        path = config["data.synthetic_lengths"]
        return of_file(path) if path else [int(t >= min(8, longest)) for t in range(longest + 1)]
    found = of_manifest(config["data.train"])
    if found:
        return found[1]
    histogram = published()
    return histogram if longest == len(histogram) - 1 else [0] * longest + [1]


def means_of(histogram, longest):
    """Mean tokens of a sequence, and of their squares, when longer ones are cut."""
    tokens = numpy.minimum(numpy.arange(len(histogram), dtype=float), longest)
    counts = numpy.array(histogram, dtype=float)
    return (counts @ tokens / counts.sum(), counts @ tokens**2 / counts.sum())


def random_words(seed, site, count):
    """Philox4x32-10 at step 0, as kernels/base/philox.h numbers its words."""
    words = numpy.zeros((4, -(-count // 4)), dtype=numpy.uint64)
    words[0], words[2] = numpy.arange(words.shape[1]), site
    low, high = seed & MASK_32, seed >> 32
    for _ in range(10):
        first, second = words[0] * numpy.uint64(0xD2511F53), words[2] * numpy.uint64(0xCD9E8D57)
        words = numpy.array([(second >> 32) ^ words[1] ^ numpy.uint64(low), second & MASK_32,
                             (first >> 32) ^ words[3] ^ numpy.uint64(high), first & MASK_32])
        low, high = (low + 0x9E3779B9) & MASK_32, (high + 0xBB67AE85) & MASK_32
    return words.T.reshape(-1)[:count]


def seed_of_step(step):
    """SplitMix64 of seed 0."""
    z = 0x9E3779B97F4A7C15 * (step + 1) & MASK_64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK_64
    return z ^ z >> 31


def tokens_of_ranks(histogram, config, ranks):
    """[STEPS][ranks] tokens."""
    up_to = numpy.cumsum(numpy.array(histogram, dtype=float))
    seqs, longest = config["train.global_batch_seqs"], config["data.max_seq_tokens"]
    slots = numpy.arange(seqs)
    for step in range(STEPS):
        shares = random_words(seed_of_step(step), 1, seqs) / 2**32
        lengths = numpy.minimum(numpy.searchsorted(up_to, shares * up_to[-1], "right"), longest)
        if config["data.exchange_padding"] == "off":
            rank = slots // (seqs // ranks)
        else:  # falling lengths, from the first bin to the last and back
            lengths = -numpy.sort(-lengths)
            bins = ranks * config["train.accumulation_steps"]
            row, column = slots // bins, slots % bins
            rank = numpy.where(row % 2 == 0, column, bins - 1 - column) % ranks
        yield numpy.bincount(rank, lengths, ranks)


def balance_of(histogram, config, ranks, row_multiple):
    """Tokens of a rank and micro-batch: the mean, and those of the fullest rank in whole rows."""
    micro_batches = config["train.accumulation_steps"]
    mean = most_rows = 0
    for tokens in tokens_of_ranks(histogram, config, ranks):
        mean += tokens.sum() / (ranks * micro_batches) / STEPS
        most_rows += -(-tokens.max() / micro_batches // row_multiple) * row_multiple / STEPS
    return mean, most_rows
