#!/usr/bin/env python3
"""Prints what CPython's random.Random gives for several seeds and calls.

Usage: make_python_random_golden.py > prepare/python_random.txt
Each line is a call and its results; the calls of one seed share one generator.
README.md beside this file names the versions of CPython that print the committed file.
"""
import random

SEEDS = [0, 1, 24, 12345, 2**31 - 1, 2**32 - 1, 2**32, 2**32 + 1, 12345678901234567890, 2**64 - 1]
RANGES = [(0, 0), (0, 1), (1, 1), (2, 509), (0, 30521), (-5, 5), (0, 2**31), (0, 2**32 - 2),
          (0, 2**32), (0, 2**40), (7, 2**62)]


def line(*words):
    print(" ".join(str(word) for word in words))


def main():
    for seed in SEEDS:
        rng = random.Random(seed)
        line("seed", seed)
        line("random", *(rng.random().hex() for _ in range(4)))
        for bits in (1, 5, 31, 32, 33, 63, 64):
            line("getrandbits", bits, *(rng.getrandbits(bits) for _ in range(3)))
        for low, high in RANGES:
            line("randint", low, high, *(rng.randint(low, high) for _ in range(3)))
        for count in (0, 1, 2, 3, 33, 511):
            values = list(range(count))
            rng.shuffle(values)
            line("shuffle", count, *values)
        # Far enough for the state to be renewed several times.
        total = sum(rng.randint(1, 1000) for _ in range(5000))
        line("sum", 5000, total)
        line("random", *(rng.random().hex() for _ in range(2)))


if __name__ == "__main__":
    main()
