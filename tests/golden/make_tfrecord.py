#!/usr/bin/env python3
"""Makes tensorflow.tfrecord: the rows of h5py_rows.txt as the published generator writes them, by
TensorFlow's own writer and its own tf.train.Example.

usage: make_tfrecord.py FOLDER      needs tensorflow; FOLDER holds h5py_rows.txt; version in README.md
"""

import collections
import sys

import tensorflow as tf

TOKENS, MASKED = 512, 76


def integers(values, width):
    padded = list(values) + [0] * (width - len(values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=padded))


def floats(values, width):
    padded = list(values) + [0.0] * (width - len(values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=padded))


def main(folder):
    with open(f"{folder}/h5py_rows.txt") as f:
        lines = [[int(word) for word in line.split()] for line in f.read().splitlines()[2:]]
    with tf.io.TFRecordWriter(f"{folder}/tensorflow.tfrecord") as writer:
        for first in range(0, len(lines), 5):
            ids, segments, positions, labels, label = lines[first:first + 5]
            features = collections.OrderedDict()
            features["input_ids"] = integers(ids, TOKENS)
            features["input_mask"] = integers([1] * len(ids), TOKENS)
            features["segment_ids"] = integers(segments, TOKENS)
            features["masked_lm_positions"] = integers(positions, MASKED)
            features["masked_lm_ids"] = integers(labels, MASKED)
            features["masked_lm_weights"] = floats([1.0] * len(labels), MASKED)
            features["next_sentence_labels"] = integers(label, 1)
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1])
