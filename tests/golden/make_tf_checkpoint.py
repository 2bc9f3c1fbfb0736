#!/usr/bin/env python3
"""Writes the weights of bert_tiny.json as TensorFlow checkpoints, under the official names.

    python3 tests/golden/make_tf_checkpoint.py tests/golden

Into tf/: `saver.ckpt-7.*`, by tf.compat.v1.train.Saver (format V2) with LAMB's slots, as the
benchmark's initial checkpoint has them; `sharded.ckpt.*`, the weights alone, by the same in two data
files; and `objects-1.*`, by tf.train.Checkpoint. Needs tensorflow; run make_bert_golden.py before.
"""
import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

LAYER_NAMES = {"attention.self": "attention/self", "attention.output": "attention/output",
               "intermediate": "intermediate", "output": "output"}


def official(name):
    """The name in the official TensorFlow code, and whether the matrix is stored [in, out]."""
    if name == "cls.predictions.bias":
        return "cls/predictions/output_bias", False
    if name == "cls.seq_relationship.weight":
        return "cls/seq_relationship/output_weights", False
    if name == "cls.seq_relationship.bias":
        return "cls/seq_relationship/output_bias", False
    stem, kind = name.rsplit(".", 1)
    stem = stem.replace(".layer.", ".layer_").replace(".", "/")
    if stem.endswith("_embeddings"):
        return stem, False
    if stem.endswith("LayerNorm"):
        return f"{stem}/{'gamma' if kind == 'weight' else 'beta'}", False
    return (f"{stem}/kernel", True) if kind == "weight" else (f"{stem}/bias", False)


def official_weights(golden):
    weights = {}
    for name, tensor in golden["parameters"].items():
        values = np.array(tensor["weight"], np.float32).reshape(tensor["shape"])
        new_name, transposed = official(name)
        weights[new_name] = np.ascontiguousarray(values.T) if transposed else values
    return weights


def save_with_saver(weights, path, slots, devices=1):
    rng = np.random.default_rng(7)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = []

        def variable(name, value):
            with tf.device(f"/cpu:{len(variables) % devices}"):
                variables.append(tf.compat.v1.get_variable(name, initializer=tf.constant(value)))

        for name, value in weights.items():
            variable(name, value)
            for slot in ("LAMB", "LAMB_1") if slots else ():
                variable(f"{name}/{slot}", rng.random(value.shape, np.float32))
        if slots:
            variable("beta1_power", np.float32(0.9))
            variable("beta2_power", np.float32(0.999))
            variable("global_step", np.int64(7))
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables, sharded=devices > 1,
                                         write_version=tf.compat.v1.train.SaverDef.V2)
        saver.save(session, str(path), write_meta_graph=False, write_state=False)


def save_objects(weights, path):
    model = tf.Module()
    model.parts = [tf.Variable(value, name=name) for name, value in weights.items()]
    tf.train.Checkpoint(model=model).save(str(path))


def main():
    folder = pathlib.Path(sys.argv[1])
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()])
    weights = official_weights(json.loads((folder / "bert_tiny.json").read_text()))
    (folder / "tf").mkdir(exist_ok=True)
    save_with_saver(weights, folder / "tf" / "saver.ckpt-7", slots=True)
    save_with_saver(weights, folder / "tf" / "sharded.ckpt", slots=False, devices=2)
    save_objects(weights, folder / "tf" / "objects")
    (folder / "tf" / "checkpoint").unlink()  # a list of paths on this machine
    print("tensorflow", tf.__version__, "numpy", np.__version__)


if __name__ == "__main__":
    main()
