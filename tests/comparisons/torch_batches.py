"""Un-padded batches for PyTorch, from `bertha data dump-batches` and from shards of variable length."""
import queue
import threading

import h5py
import numpy
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

# Numbers of tokens and of masked ones are rounded up to these, or GEMMs are slow.
TOKENS, MASKED = 128, 64


def round_up(count, multiple):
    return -(-count // multiple) * multiple


def largest(files, batches):
    """The most tokens and masked tokens of all batches, rounded up, for Padding."""
    tokens, masked = [], []
    for path in files:
        with safe_open(path, "np") as file:
            tokens.append(file.get_slice("input_ids").get_shape()[0])
            masked.append(file.get_slice("masked_labels").get_shape()[0])
    tokens += [len(batch["input_ids"]) for batch in batches]
    masked += [len(batch["masked_labels"]) for batch in batches]
    return {"tokens": round_up(max(tokens), TOKENS), "masked": round_up(max(masked), MASKED)}


class Padding:
    """Makes tensors of arrays as dump-batches writes them. Tokens of padding are sequences of their own,
    so that attention writes every row; all batches have the same number of sequences, some empty."""

    def __init__(self, sequences, longest, tokens=0, masked=0):
        self.longest, self.tokens, self.masked = longest, tokens, masked
        self.sequences = sequences + 1 + max(tokens, TOKENS) // longest

    def apply(self, arrays):
        tokens, masked = len(arrays["input_ids"]), len(arrays["masked_labels"])
        all_tokens = self.tokens or round_up(tokens, TOKENS)
        more = all_tokens - tokens
        starts = [*arrays["cu_seqlens"].tolist()]
        while starts[-1] < all_tokens:
            starts.append(min(starts[-1] + self.longest, all_tokens))
        starts += [all_tokens] * (self.sequences + 1 - len(starts))
        more_masked = (self.masked or round_up(masked, MASKED)) - masked
        found = {"starts": numpy.array(starts, numpy.int32)}
        for name, source in (("ids", "input_ids"), ("segments", "token_type_ids"),
                             ("positions", "position_ids")):
            found[name] = numpy.pad(arrays[source], (0, more))
        found["masked"] = numpy.pad(arrays["masked_positions"], (0, more_masked))
        found["labels"] = numpy.pad(arrays["masked_labels"].astype(numpy.int64), (0, more_masked),
                                    constant_values=-100)
        return {"tensors": {name: torch.from_numpy(values) for name, values in found.items()},
                "count": masked, "sequences": len(arrays["cu_seqlens"]) - 1, "tokens": tokens}


def evaluation_batches(path, most_samples, batch_sequences):
    """The first samples of a folder of shards or of one, all if `most_samples` is 0."""
    shards = sorted(p for p in path.iterdir() if "part" in p.name) if path.is_dir() else [path]
    columns = ("input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids")
    rows = []
    for shard in (s for s in shards if s.suffix in (".hdf5", ".hdf")):
        with h5py.File(shard) as file:
            rows += zip(*(file[column][()] for column in columns))
    rows = rows[:most_samples or len(rows)]
    batches = []
    for begin in range(0, len(rows), batch_sequences):
        ids, segments, masked, labels = zip(*rows[begin:begin + batch_sequences])
        starts = numpy.cumsum([0] + [len(row) for row in ids]).astype(numpy.int32)
        batches.append({
            "cu_seqlens": starts, "input_ids": numpy.concatenate(ids).astype(numpy.int32),
            "token_type_ids": numpy.concatenate(segments).astype(numpy.int32),
            "position_ids": numpy.concatenate([numpy.arange(len(row), dtype=numpy.int32) for row in ids]),
            "masked_positions": numpy.concatenate(
                [row.astype(numpy.int32) + start for row, start in zip(masked, starts)]),
            "masked_labels": numpy.concatenate(labels).astype(numpy.int32)})
    return batches


def prefetched(files, padding, pin, ahead=16):
    """The batches of these files, read by a thread; pinned for copies to a GPU."""
    made = queue.Queue(maxsize=ahead)

    def read():
        try:
            for path in files:
                batch = padding.apply(load_file(path))
                if pin:
                    batch["tensors"] = {n: t.pin_memory() for n, t in batch["tensors"].items()}
                made.put(batch)
            made.put(None)
        except Exception as error:  # the reader of the queue has to hear of it
            made.put(error)

    threading.Thread(target=read, daemon=True).start()
    while (batch := made.get()) is not None:
        if isinstance(batch, Exception):
            raise batch
        yield batch
