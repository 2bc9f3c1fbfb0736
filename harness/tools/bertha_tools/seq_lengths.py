"""Lengths of training samples, and how evenly steps of them fall on ranks.

Lengths of a few steps are drawn and assigned as data/pipeline/synthetic_steps.cpp does, bit for
bit, so that a prediction does not depend on who makes it. A histogram is a list: element t counts
the sequences of t tokens.
"""
import numpy

STEPS = 8
MASK_32, MASK_64 = 2**32 - 1, 2**64 - 1


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
