#!/usr/bin/env python3
"""Writes the weights of bert_tiny.json as checkpoints of TensorFlow's model garden, by its own classes.

    python3 tests/golden/make_model_garden_checkpoint.py tests/golden

Into tf_garden/: `layers.*`, a bare BertEncoder, whose parts go by their numbers
(layer_with_weights-0); `items.*`, the items that a pre-training task saves, with the pooler of
the next-sentence head and another one in the encoder that nobody trains; and `model-1.*`, the
whole pre-training model with both heads and an optimizer; and `numbered.*`, the older pre-training
model, whose heads go by numbers too. Needs tensorflow, tf_keras and
tf-models-official; run make_bert_golden.py before.
"""
import importlib.metadata
import json
import os
import pathlib
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf-models-official is written for Keras 2

import numpy as np
import tensorflow as tf
from official.nlp.modeling import layers, models, networks

ANY_IDS = tf.zeros([1, 4], tf.int32)
INPUTS = {"input_word_ids": ANY_IDS, "input_mask": ANY_IDS, "input_type_ids": ANY_IDS}


class Golden:
    """The weights, in the forms that Keras has them in."""

    def __init__(self, path):
        golden = json.loads(path.read_text())
        self.shape = golden["shape"]
        self.tensors = {name: np.array(tensor["weight"], np.float32).reshape(tensor["shape"])
                        for name, tensor in golden["parameters"].items()}

    def table(self, variable, name):
        variable.assign(self.tensors[f"bert.embeddings.{name}_embeddings.weight"])

    def norm(self, layer, name):
        layer.gamma.assign(self.tensors[f"{name}.weight"])
        layer.beta.assign(self.tensors[f"{name}.bias"])

    def dense(self, layer, name):
        """Kernels are [in, out]; those of attention have a dimension for the heads."""
        layer.kernel.assign(self.tensors[f"{name}.weight"].T.reshape(layer.kernel.shape))
        layer.bias.assign(self.tensors[f"{name}.bias"].reshape(layer.bias.shape))


def fill_encoder(encoder, golden, pooler):
    golden.table(encoder._embedding_layer.embeddings, "word")
    golden.table(encoder._position_embedding_layer.trainable_weights[0], "position")
    golden.table(encoder._type_embedding_layer.embeddings, "token_type")
    golden.norm(encoder._embedding_norm_layer, "bert.embeddings.LayerNorm")
    for i, layer in enumerate(encoder._transformer_layers):
        stem = f"bert.encoder.layer.{i}."
        for part in ("query", "key", "value"):
            golden.dense(getattr(layer._attention_layer, f"_{part}_dense"),
                         f"{stem}attention.self.{part}")
        golden.dense(layer._attention_layer._output_dense, f"{stem}attention.output.dense")
        golden.norm(layer._attention_layer_norm, f"{stem}attention.output.LayerNorm")
        golden.dense(layer._intermediate_dense, f"{stem}intermediate.dense")
        golden.dense(layer._output_dense, f"{stem}output.dense")
        golden.norm(layer._output_layer_norm, f"{stem}output.LayerNorm")
    if pooler:
        golden.dense(encoder._pooler_layer, "bert.pooler.dense")


def sizes(golden):
    shape = golden.shape
    return {"vocab_size": shape["vocab_size"], "hidden_size": shape["hidden_size"],
            "num_layers": shape["num_hidden_layers"],
            "num_attention_heads": shape["num_attention_heads"],
            "max_sequence_length": shape["max_position_embeddings"],
            "type_vocab_size": shape["type_vocab_size"]}


def make_encoder(golden, dict_outputs=True):
    encoder = networks.BertEncoder(**sizes(golden), dict_outputs=dict_outputs,
                                   intermediate_size=golden.shape["intermediate_size"])
    encoder(INPUTS)
    fill_encoder(encoder, golden, pooler=True)
    return encoder


def make_pretrainer(golden):
    encoder = networks.BertEncoderV2(**sizes(golden), inner_dim=golden.shape["intermediate_size"])
    head = layers.ClassificationHead(inner_dim=golden.shape["hidden_size"], num_classes=2,
                                     name="next_sentence")
    pretrainer = models.BertPretrainerV2(encoder, classification_heads=[head],
                                         mlm_activation="gelu")
    pretrainer({**INPUTS, "masked_lm_positions": tf.zeros([1, 2], tf.int32)})
    fill_encoder(encoder, golden, pooler=False)
    golden.dense(head.dense, "bert.pooler.dense")
    golden.dense(head.out_proj, "cls.seq_relationship")
    golden.dense(pretrainer.masked_lm.dense, "cls.predictions.transform.dense")
    golden.norm(pretrainer.masked_lm.layer_norm, "cls.predictions.transform.LayerNorm")
    pretrainer.masked_lm.bias.assign(golden.tensors["cls.predictions.bias"])
    return pretrainer


def make_older_pretrainer(golden):
    pretrainer = models.BertPretrainer(make_encoder(golden, dict_outputs=False), num_classes=2,
                                       num_token_predictions=2, activation="gelu")
    head = pretrainer.masked_lm
    golden.dense(head.dense, "cls.predictions.transform.dense")
    golden.norm(head.layer_norm, "cls.predictions.transform.LayerNorm")
    head.bias.assign(golden.tensors["cls.predictions.bias"])
    logits = next(layer for layer in pretrainer.classification.layers if layer.weights)
    golden.dense(logits, "cls.seq_relationship")
    return pretrainer


def make_optimizer(variables):
    """With its moments, which one step without an effect creates."""
    optimizer = tf.keras.optimizers.legacy.Adam(0.0)
    optimizer.apply_gradients([(tf.ones_like(v), v) for v in variables])
    return optimizer


def main():
    tf.keras.utils.set_random_seed(7)  # for what is not from bert_tiny.json
    folder = pathlib.Path(sys.argv[1])
    golden = Golden(folder / "bert_tiny.json")
    output = folder / "tf_garden"
    output.mkdir(exist_ok=True)
    tf.train.Checkpoint(model=make_encoder(golden)).write(str(output / "layers"))
    tf.train.Checkpoint(model=make_older_pretrainer(golden)).write(str(output / "numbered"))
    pretrainer = make_pretrainer(golden)
    tf.train.Checkpoint(**pretrainer.checkpoint_items).write(str(output / "items"))
    tf.train.Checkpoint(model=pretrainer, optimizer=make_optimizer(pretrainer.trainable_variables)
                        ).save(str(output / "model"))
    (output / "checkpoint").unlink()  # a list of paths on this machine
    print("tensorflow", tf.__version__, "tf_keras", importlib.metadata.version("tf_keras"),
          "tf-models-official", importlib.metadata.version("tf-models-official"),
          "numpy", np.__version__)


if __name__ == "__main__":
    main()
