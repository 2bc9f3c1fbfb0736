"""The weights and first moments in a checkpoint of Bertha, as arrays of numpy."""
import json

import numpy


def read_safetensors(path):
    """What it says of itself, and its tensors: {name: f32 array} in the order of the file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = numpy.frombuffer(file.read(), numpy.uint8)
    about = header.pop("__metadata__", {})
    ordered = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    return about, {name: data[slice(*entry["data_offsets"])].view("<f4").reshape(entry["shape"])
                   for name, entry in ordered}


def in_flat_order(names):
    """The file has query, key and value one by one; the optimizer has one weight, then one bias."""
    for name in names:
        stem, is_self, part = name.partition(".self.")
        if not is_self:
            yield name
        elif part == "query.weight":
            yield from (f"{stem}.self.{which}.{kind}" for kind in ("weight", "bias")
                        for which in ("query", "key", "value"))


def read_weights_and_moments(checkpoint):
    """Weights and first moments, {Hugging Face's name: array} each.

    The moments lie in one flat buffer: each tensor begins at a multiple of 64 elements, and the rows
    of the vocabulary are padded to a multiple of 8. That the weights of the buffer are those of the
    model's file proves the places."""
    _, weights = read_safetensors(checkpoint / "model.safetensors")
    flat = {}
    for path in sorted(checkpoint.glob("optimizer-*.safetensors")):
        about, tensors = read_safetensors(path)
        begin = 0
        for low, high in (map(int, word.split("-")) for word in about["ranges"].split()):
            for part in ("master", "m"):
                whole = flat.setdefault(part, numpy.zeros(int(about["table_elements"]), "<f4"))
                whole[low:high] = tensors[part][begin:begin + max(0, min(high, whole.size) - low)]
            begin += high - low
    place, moments = 0, {}
    for name in in_flat_order(weights):
        values = weights[name]
        if not name.endswith(("key.weight", "value.weight", "key.bias", "value.bias")):
            place = -(-place // 64) * 64
        moments[name] = flat["m"][place:place + values.size].reshape(values.shape)
        if not numpy.array_equal(flat["master"][place:place + values.size], values.ravel()):
            raise ValueError(f"{checkpoint}: {name} is not at element {place} of the optimizer's files")
        place += values.size
        if name.endswith(("word_embeddings.weight", "predictions.bias")):
            place += -len(values) % 8 * (values.size // len(values))
    return weights, moments
