#!/usr/bin/env python3
"""Makes h5py_fixed.hdf5, h5py_varlen.hdf5, h5py_packed.hdf5 and h5py_rows.txt: the same rows in the
official layouts, as h5py writes them, and in text with the official checksums of the token ids: of
the rows, then of the packs.
Also h5py_latest.hdf5 (the same rows again, chunked, in the newest file format that HDF5 1.10
reads), and two to be refused: h5py_int32.hdf5 (wrong type) and h5py_gzip.hdf5 (compressed lists).

usage: make_h5py_shards.py FOLDER      needs h5py and numpy; versions in README.md
"""

import hashlib
import random
import sys

import h5py
import numpy as np

TOKENS, MASKED, VOCAB = 512, 76, 30522
LENGTHS = [5, 512, 37, 128, 6, 61]
PACKS = [(0,), (1,), (2, 3, 4), (5,)]  # rows of each pack


def make_row(rng, length):
    first_sep = rng.randint(2, length - 3)
    ids = [101] + [rng.randint(1000, VOCAB - 1) for _ in range(length - 2)] + [102]
    ids[first_sep] = 102
    segments = [0] * (first_sep + 1) + [1] * (length - first_sep - 1)
    candidates = [p for p in range(1, length - 1) if p != first_sep]
    count = min(MASKED, max(1, int(round(length * 0.15))), len(candidates))
    positions = sorted(rng.sample(candidates, count))
    labels = [ids[p] for p in positions]
    for p in positions:
        ids[p] = 103
    return ids, segments, positions, labels, rng.randint(0, 1)


def write_fixed(path, rows):
    def padded(field, width, dtype):
        return np.array([row[field] + [0] * (width - len(row[field])) for row in rows], dtype)

    with h5py.File(path, "w") as f:
        f.create_dataset("input_ids", data=padded(0, TOKENS, "i2"), dtype="i2")
        mask = np.array([[1] * len(r[0]) + [0] * (TOKENS - len(r[0])) for r in rows], "i1")
        f.create_dataset("input_mask", data=mask, dtype="i1")
        f.create_dataset("segment_ids", data=padded(1, TOKENS, "i1"), dtype="i1")
        f.create_dataset("masked_lm_positions", data=padded(2, MASKED, "i2"), dtype="i2")
        f.create_dataset("masked_lm_ids", data=padded(3, MASKED, "i2"), dtype="i2")
        labels = np.array([row[4] for row in rows], "i1")
        f.create_dataset("next_sentence_labels", data=labels, dtype="i1")


def write_variable(path, rows, ids_dtype="i2", libver=None, **storage):
    n = len(rows)
    ids, i2, i1 = (h5py.vlen_dtype(np.dtype(t)) for t in (ids_dtype, "i2", "i1"))
    with h5py.File(path, "w", libver=libver) as f:
        fields = [("input_ids", ids), ("segment_ids", i1),
                  ("masked_lm_positions", i2), ("masked_lm_ids", i2)]
        datasets = [f.create_dataset(name, (n,), dtype=dtype, **storage) for name, dtype in fields]
        labels = f.create_dataset("next_sentence_labels", (n,), dtype="i1")
        for i, row in enumerate(rows):
            for field, dataset in enumerate(datasets):
                dataset[i] = row[field]
            labels[i] = row[4]


def joined(rows, field):
    return [value for row in rows for value in row[field]]


def write_packed(path, packs):
    i2, i1 = (h5py.vlen_dtype(np.dtype(t)) for t in ("i2", "i1"))
    with h5py.File(path, "w") as f:
        def dataset(name, dtype, lists):
            data = f.create_dataset(name, (len(lists),), dtype=dtype)
            for i, values in enumerate(lists):
                data[i] = values

        dataset("input_ids", i2, [joined(rows, 0) for rows in packs])
        dataset("segment_ids", i1, [joined(rows, 1) for rows in packs])
        dataset("packed_input_len", i2, [[len(row[0]) for row in rows] for rows in packs])
        before = [[sum(len(row[0]) for row in rows[:k]) for k in range(len(rows))]
                  for rows in packs]
        dataset("masked_lm_positions", i2,
                [[start + p for start, row in zip(starts, rows) for p in row[2]]
                 for starts, rows in zip(before, packs)])
        dataset("masked_lm_ids", i2, [joined(rows, 3) for rows in packs])
        dataset("packed_masked_lm_len", i2, [[len(row[2]) for row in rows] for rows in packs])
        dataset("next_sentence_labels", i1, [[row[4] for row in rows] for rows in packs])


def main(folder):
    rng = random.Random(2024)
    rows = [make_row(rng, length) for length in LENGTHS]
    packs = [[rows[i] for i in pack] for pack in PACKS]
    write_fixed(f"{folder}/h5py_fixed.hdf5", rows)
    write_packed(f"{folder}/h5py_packed.hdf5", packs)
    write_variable(f"{folder}/h5py_varlen.hdf5", rows)
    write_variable(f"{folder}/h5py_latest.hdf5", rows, libver=("v110", "v110"), chunks=(4,))
    write_variable(f"{folder}/h5py_int32.hdf5", rows[:1], ids_dtype="i4")
    write_variable(f"{folder}/h5py_gzip.hdf5", rows[:1], chunks=(1,), compression="gzip")
    md5 = lambda text: hashlib.md5(text.encode()).hexdigest()
    with open(f"{folder}/h5py_rows.txt", "w") as f:
        print(md5(str([md5(str(row[0])) for row in rows])), file=f)
        print(md5(str([md5(str(joined(rows, 0))) for rows in packs])), file=f)
        for row in rows:
            for values in row[:4]:
                print(*values, file=f)
            print(row[4], file=f)


if __name__ == "__main__":
    main(sys.argv[1])
