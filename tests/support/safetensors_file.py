"""Files of safetensors, without a library."""

import json
import struct


def read_tensors(path):
    """{name: (dtype, shape, bytes)}"""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def tensor_bytes(path):
    """{name: bytes}"""
    return {name: data for name, (_, _, data) in read_tensors(path).items()}


def change_tensors(path, change):
    """Each tensor gets the bytes that change(name, bytes) returns."""
    write_tensors(path, {name: (dtype, shape, change(name, data))
                         for name, (dtype, shape, data) in read_tensors(path).items()})
