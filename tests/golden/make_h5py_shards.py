#!/usr/bin/env python3
"""Makes h5py_fixed.hdf5, h5py_varlen.hdf5, h5py_packed.hdf5 and h5py_rows.txt: the same rows in the
official layouts, as h5py writes them, and in text with the official checksums of the token ids: of
the rows, then of the packs. Also h5py_latest.hdf5 (the same rows again, chunked, in the newest file
format that HDF5 1.10 reads) and h5py_int32.hdf5 (a wrong type).
h5py_forms/ holds the same rows in the forms of storage that are read, h5py_refused/ what is refused.
Of the forms that write_forms() makes a part is kept; lzf and compact lists went to h5py_refused/.

usage: make_h5py_shards.py FOLDER      needs h5py and numpy; versions in README.md
"""

import hashlib
import os
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


def fixed_tables(rows, tokens=TOKENS, masked=MASKED):
    def padded(field, width, dtype):
        return np.array([row[field] + [0] * (width - len(row[field])) for row in rows], dtype)

    return {"input_ids": padded(0, tokens, "i2"),
            "input_mask": np.array([[1] * len(r[0]) + [0] * (tokens - len(r[0])) for r in rows], "i1"),
            "segment_ids": padded(1, tokens, "i1"),
            "masked_lm_positions": padded(2, masked, "i2"),
            "masked_lm_ids": padded(3, masked, "i2"),
            "next_sentence_labels": np.array([row[4] for row in rows], "i1")}


def write_fixed(path, rows, file={}, **storage):
    with h5py.File(path, "w", **file) as f:
        for name, table in fixed_tables(rows).items():
            f.create_dataset(name, data=table, dtype=table.dtype, **storage)


def write_variable(path, rows, ids_dtype="i2", file={}, labels_too=False, **storage):
    n = len(rows)
    ids, i2, i1 = (h5py.vlen_dtype(np.dtype(t)) for t in (ids_dtype, "i2", "i1"))
    with h5py.File(path, "w", **file) as f:
        fields = [("input_ids", ids), ("segment_ids", i1),
                  ("masked_lm_positions", i2), ("masked_lm_ids", i2)]
        datasets = [f.create_dataset(name, (n,), dtype=dtype, **storage) for name, dtype in fields]
        labels = f.create_dataset("next_sentence_labels", (n,), dtype="i1",
                                  **(storage if labels_too else {}))
        for i, row in enumerate(rows):
            for field, dataset in enumerate(datasets):
                dataset[i] = row[field]
            labels[i] = row[4]


def joined(rows, field):
    return [value for row in rows for value in row[field]]


def write_packed(path, packs, **storage):
    i2, i1 = (h5py.vlen_dtype(np.dtype(t)) for t in ("i2", "i1"))
    with h5py.File(path, "w") as f:
        def dataset(name, dtype, lists):
            data = f.create_dataset(name, (len(lists),), dtype=dtype, **storage)
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


def compact():
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.COMPACT)
    return {"dcpl": properties}


def write_committed(path, rows):
    """Types that are stored once, under names of their own."""
    write_variable(path, rows)
    with h5py.File(path, "a") as f:
        for name, letter in (("input_ids", "i2"), ("segment_ids", "i1")):
            f[f"type_of_{name}"] = h5py.vlen_dtype(np.dtype(letter))
            values = f[name][:]
            del f[name]
            data = f.create_dataset(name, (len(rows),), dtype=f[f"type_of_{name}"])
            for i, row in enumerate(values):
                data[i] = row


FORMS = {  # compression=False is what the published shuffling writes: gzip of level 0
    "level_0": {"compression": False},
    "gzip": {"compression": "gzip"},
    "gzip_9_chunks": {"compression": "gzip", "compression_opts": 9, "chunks": True},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "shuffle_gzip": {"compression": "gzip", "shuffle": True, "maxshape": "grows"},
    "shuffle_gzip_fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "chunked": {"chunks": True, "maxshape": "grows"},
    "compact": compact(),
}
NEWEST = {"libver": "latest"}


def write_forms(folder, rows, packs):
    for form, storage in FORMS.items():
        grows = "maxshape" in storage
        one = {**storage, "maxshape": (None,)} if grows else storage
        lists = "fletcher32" not in storage  # which HDF5 does not apply to lists
        for libver, file in (("", {}), ("_newest", NEWEST)) if lists else ():
            write_variable(f"{folder}/varlen_{form}{libver}.hdf5", rows, file=file,
                           labels_too=True, **one)
        if lists:
            write_packed(f"{folder}/packed_{form}.hdf5", packs, **one)
        if form == "compact":  # all rows of 512 tokens are too many for it
            continue
        if not grows:
            write_fixed(f"{folder}/fixed_{form}.hdf5", rows, **storage)
    write_fixed(f"{folder}/fixed_newest.hdf5", rows, file=NEWEST, compression="gzip")
    write_variable(f"{folder}/varlen_user_block.hdf5", rows, file={"userblock_size": 1024})
    write_variable(f"{folder}/varlen_tracked.hdf5", rows, file={"track_order": True})
    write_committed(f"{folder}/varlen_committed_types.hdf5", rows)


def write_refused(folder, rows):
    def without_ids(name):
        path = f"{folder}/{name}.hdf5"
        write_fixed(path, rows[:1])
        f = h5py.File(path, "a")
        ids = f["input_ids"][:]
        del f["input_ids"]
        return f, ids

    f, _ = without_ids("external_link")
    f["input_ids"] = h5py.ExternalLink("elsewhere.hdf5", "/input_ids")
    f.close()
    f, _ = without_ids("soft_link")
    f["input_ids"] = h5py.SoftLink("/segment_ids")
    f.close()
    f, ids = without_ids("external_storage")
    f.create_dataset("input_ids", ids.shape, "i2", external=[("/dev/zero", 0, ids.nbytes)])
    f.close()
    f, ids = without_ids("virtual")
    layout = h5py.VirtualLayout(ids.shape, "i2")
    layout[:] = h5py.VirtualSource("elsewhere.hdf5", "input_ids", ids.shape)
    f.create_virtual_dataset("input_ids", layout)
    f.close()
    f, ids = without_ids("scaleoffset")
    f.create_dataset("input_ids", data=ids, dtype="i2", scaleoffset=0)
    f.close()
    f, ids = without_ids("never_written")
    f.create_dataset("input_ids", ids.shape, "i2", chunks=(1, 512))
    f.close()
    with h5py.File(f"{folder}/a_million_million_rows.hdf5", "w") as f:
        for name, table in fixed_tables(rows[:1]).items():
            width = table.shape[1:]
            f.create_dataset(name, (10**12, *width), table.dtype, chunks=(1, *width))


def made(folder):
    os.makedirs(folder, exist_ok=True)
    return folder


def main(folder):
    rng = random.Random(2024)
    rows = [make_row(rng, length) for length in LENGTHS]
    packs = [[rows[i] for i in pack] for pack in PACKS]
    write_fixed(f"{folder}/h5py_fixed.hdf5", rows)
    write_packed(f"{folder}/h5py_packed.hdf5", packs)
    write_variable(f"{folder}/h5py_varlen.hdf5", rows)
    write_variable(f"{folder}/h5py_latest.hdf5", rows, file={"libver": ("v110", "v110")},
                   chunks=(4,))
    write_variable(f"{folder}/h5py_int32.hdf5", rows[:1], ids_dtype="i4")
    write_forms(made(f"{folder}/h5py_forms"), rows, packs)
    write_refused(made(f"{folder}/h5py_refused"), rows)
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
