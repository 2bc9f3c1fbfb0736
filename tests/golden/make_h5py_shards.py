#!/usr/bin/env python3
"""Makes h5py_fixed.hdf5, h5py_varlen.hdf5, h5py_packed.hdf5 and h5py_rows.txt: the same rows in the
official layouts, as h5py writes them, and in text with the official checksums of the token ids: of
the rows, then of the packs. Also h5py_latest.hdf5 (the same rows again, chunked, in the newest file
format that HDF5 1.10 reads) and h5py_int64.hdf5 (a wrong type).
h5py_forms/ holds the same rows in every form of storage, h5py_refused/ what is refused.
h5py_forms/fixed_deep_learning_examples.hdf5 has the types and the compression of the shards that
create_pretraining_data.py of NVIDIA's DeepLearningExamples writes.

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


def write_fixed(path, rows, file={}, i2="i2", **storage):
    with h5py.File(path, "w", **file) as f:
        for name, table in fixed_tables(rows).items():
            dtype = i2 if table.dtype == "i2" else table.dtype
            f.create_dataset(name, data=table, dtype=dtype, **storage)


def write_variable(path, rows, ids_dtype="i2", file={}, labels_too=False, **storage):
    n = len(rows)
    ids, i2, i1 = (h5py.vlen_dtype(np.dtype(t)) for t in (ids_dtype, "i2", "i1"))
    with h5py.File(path, "w", **file) as f:
        fields = [("input_ids", ids), ("segment_ids", i1),
                  ("masked_lm_positions", i2), ("masked_lm_ids", ids)]
        datasets = [f.create_dataset(name, (n,), dtype=dtype, **storage) for name, dtype in fields]
        labels = f.create_dataset("next_sentence_labels", (n,), dtype="i1",
                                  **(storage if labels_too else {}))
        for i, row in enumerate(rows):
            for field, dataset in enumerate(datasets):
                dataset[i] = row[field]
            labels[i] = row[4]


def joined(rows, field):
    return [value for row in rows for value in row[field]]


def write_packed(path, packs, ids_dtype="i2", **storage):
    ids, i2, i1 = (h5py.vlen_dtype(np.dtype(t)) for t in (ids_dtype, "i2", "i1"))
    with h5py.File(path, "w") as f:
        def dataset(name, dtype, lists):
            data = f.create_dataset(name, (len(lists),), dtype=dtype, **storage)
            for i, values in enumerate(lists):
                data[i] = values

        dataset("input_ids", ids, [joined(rows, 0) for rows in packs])
        dataset("segment_ids", i1, [joined(rows, 1) for rows in packs])
        dataset("packed_input_len", i2, [[len(row[0]) for row in rows] for rows in packs])
        before = [[sum(len(row[0]) for row in rows[:k]) for k in range(len(rows))]
                  for rows in packs]
        dataset("masked_lm_positions", i2,
                [[start + p for start, row in zip(starts, rows) for p in row[2]]
                 for starts, rows in zip(before, packs)])
        dataset("masked_lm_ids", ids, [joined(rows, 3) for rows in packs])
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


def with_filter(call, *arguments):
    """Storage with a filter that only the low-level interface of h5py sets."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    getattr(properties, call)(*arguments)
    return {"dcpl": properties, "chunks": True}


NEWEST = {"file": {"libver": "latest"}}
OF_HDF5_1_10 = {"file": {"libver": ("v110", "v110")}}
GROWS = {"maxshape": (None,)}
GZIP = {"compression": "gzip"}
LZF = {"compression": "lzf"}
LISTS = {  # compression=False is what the published shuffling writes: gzip of level 0
    "varlen_chunked": {"chunks": True, **GROWS},
    "varlen_chunked_newest": {"chunks": True, **GROWS, **NEWEST},
    "varlen_compact": compact(),
    "varlen_compact_newest": {**compact(), **NEWEST},
    "varlen_gzip": GZIP,
    "varlen_gzip_9_chunks": {**GZIP, "compression_opts": 9, "chunks": True},
    "varlen_level_0": {"compression": False},
    "varlen_int32": {"ids_dtype": "i4"},
    "varlen_lzf": LZF,
    "varlen_shuffle_lzf_1_10": {**LZF, "shuffle": True, **OF_HDF5_1_10},
    "varlen_shuffle": {"shuffle": True},
    "varlen_shuffle_gzip": {**GZIP, "shuffle": True, **GROWS},
    "varlen_tracked": {"file": {"track_order": True}},
    "varlen_user_block": {"chunks": True, "file": {"userblock_size": 1024}},
}
PACKED = {
    "packed_chunked": {"chunks": True, **GROWS},
    "packed_compact": compact(),
    "packed_gzip": GZIP,
    "packed_gzip_9_chunks": {**GZIP, "compression_opts": 9, "chunks": True},
    "packed_int32": {"ids_dtype": "i4"},
    "packed_level_0": {"compression": False},
    "packed_lzf": {**LZF, "shuffle": True},
    "packed_shuffle": {"shuffle": True},
    "packed_shuffle_gzip": {**GZIP, "shuffle": True, **GROWS},
}
FIXED = {
    "fixed_deep_learning_examples": {"i2": "i4", **GZIP},
    "fixed_fletcher32": {"fletcher32": True},
    "fixed_gzip": GZIP,
    "fixed_level_0": {"compression": False},
    "fixed_lzf": LZF,
    "fixed_nbit": with_filter("set_filter", h5py.h5z.FILTER_NBIT),
    "fixed_scaleoffset": {"scaleoffset": 0},
    "fixed_scaleoffset_shuffle_lzf": {**LZF, "shuffle": True, "scaleoffset": 0},
    "fixed_shuffle_gzip_fletcher32": {**GZIP, "shuffle": True, "fletcher32": True},
    "fixed_shuffle_lzf_fletcher32": {**LZF, "shuffle": True, "fletcher32": True},
    "fixed_szip": with_filter("set_szip", h5py.h5z.SZIP_NN_OPTION_MASK, 4),
}


def write_forms(folder, rows, packs):
    for form, storage in LISTS.items():
        of_labels = form not in ("varlen_tracked", "varlen_user_block")
        write_variable(f"{folder}/{form}.hdf5", rows, labels_too=of_labels, **storage)
    for form, storage in PACKED.items():
        write_packed(f"{folder}/{form}.hdf5", packs, **storage)
    for form, storage in FIXED.items():
        write_fixed(f"{folder}/{form}.hdf5", rows, **storage)
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
    f, ids = without_ids("other_filter")
    bitshuffle = 32008  # a plug-in, optional: the chunk is stored without it where it is missing
    f.create_dataset("input_ids", data=ids, dtype="i2", 
                     **with_filter("set_filter", bitshuffle, h5py.h5z.FLAG_OPTIONAL))
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
    write_variable(f"{folder}/h5py_int64.hdf5", rows[:1], ids_dtype="i8")
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
