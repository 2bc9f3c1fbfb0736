#!/usr/bin/env python3
"""Prints the sample orders that tests/data/pipeline/epoch_plan_test.cpp holds as known answers.

Written from the description in data/pipeline/epoch_plan.h and data/random/draws.h, sharing no code with them;
the shuffle of the published order is CPython's own. Made with Python 3.11.
"""
import random

MASK32, MASK64 = 2**32 - 1, 2**64 - 1


def philox(counter, key):
    k0, k1 = key & MASK32, key >> 32
    c = list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & MASK32, (p0 >> 32) ^ c[3] ^ k1, p0 & MASK32]
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c


def shuffle(items, key, step, site):
    used = 0
    for i in range(len(items) - 1, 0, -1):
        block = philox([used // 2, 0, site, step], key)
        word = block[2 * (used % 2)] | block[2 * (used % 2) + 1] << 32
        j = word % (i + 1)
        items[i], items[j] = items[j], items[i]
        used += 1


def key_of(tag, seed):
    return seed ^ int.from_bytes(tag.encode(), "big")


def windowed(seed, sizes, window, epoch):
    shards = list(range(len(sizes)))
    shuffle(shards, key_of("SHARDS01", seed), epoch, 0)
    order = []
    for site, first in enumerate(range(0, len(shards), window)):
        samples = [(s, row) for s in shards[first:first + window] for row in range(sizes[s])]
        shuffle(samples, key_of("SAMPLE01", seed), epoch, site)
        order += samples
    return order


def published_shards(seed, num_shards, rank, ranks, epochs):
    """Epoch, round and shard; the index as NVIDIA's run_pretraining.py computes it."""
    master = random.Random(seed)
    for _ in range(ranks):
        master.randint(0, 2**32 - 1)
    for epoch in range(epochs):
        files = list(range(num_shards))
        random.Random(master.randint(0, 2**32 - 1)).shuffle(files)
        remainder = ranks % num_shards if ranks > num_shards else 0
        for f in range(num_shards):
            yield epoch, f, files[(f * ranks + rank + remainder * f) % num_shards]


def published(seed, sizes, rank, ranks, batch, epochs):
    order = []
    for epoch, f, shard in published_shards(seed, len(sizes), rank, ranks, epochs):
        rows = list(range(sizes[shard]))
        key = (key_of("PUBLSH01", seed) + rank * 0x9E3779B97F4A7C15) & MASK64
        shuffle(rows, key, epoch, f)
        order += [(shard, row) for row in rows[:len(rows) // batch * batch]]
    return order


def show(name, order):
    print(name, ", ".join("{%d, %d}" % pair for pair in order))


show("windowed epoch 0:", windowed(11, [3, 0, 4, 2, 5], 2, 0))
show("windowed epoch 3:", windowed(11, [3, 0, 4, 2, 5], 2, 3))
show("published rank 1 of 2:", published(11, [3, 0, 4, 2, 5], 1, 2, 2, 2))
for num_shards in (2, 3, 5):
    for ranks in (1, 3, 4, 5, 7, 8, 13):
        columns = [published_shards(11, num_shards, rank, ranks, 1) for rank in range(ranks)]
        rounds = zip(*([str(shard) for _, _, shard in column] for column in columns))
        print('{%d, %d, "%s"},' % (num_shards, ranks, " ".join(map("".join, rounds))))
