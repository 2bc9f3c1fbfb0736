#!/usr/bin/env python3
"""Runs the official scripts on the golden texts and keeps what they write, in all published forms.

    python3 tests/golden/make_official_fixtures.py SCRIPTS tests/golden

SCRIPTS is a folder with the official scripts under the names of SHA256 below; README.md says where
each is published. They are not changed, but for one line: see SEGMENTS. Scripts of TensorFlow 1 run
under TensorFlow 2 with its names of version 1; random numbers that a script does not seed are
seeded here. Writes official/ and needs tensorflow, h5py and tqdm.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import zlib

import h5py
import numpy as np

SHA256 = {
    "chop_hdf5_files.py":
        "ab17645e618cd5b3ecfcd3be8c8f749b283f55619dbbbcd63e1acae31ca64c73",
    "convert_fixed2variable.py":
        "532203398ac2fedaf681043f72fb0547bfa15d14127ba5935612d007809f5700",
    "create_packed_trainset.py":
        "d46321adf170aebbb893b7daea1392eba335f18b14db48a30c4f24613d66f363",
    "gather_per_seqlength_data.py":
        "2ca5a3242fc76d1e1adef15580f7e8fcbc1c2ccb699b2eb6c0e4a254b3e4f3a1",
    "mlcommons_create_pretraining_data.py":
        "f7fd3b15af660994862ba64fdd3e6eab6175f116626c65c7286c7594a2605d5d",
    "modeling.py":
        "c00c4ea3c8108154179f87855e2eb22529e7a2296e378fea791cf5bd9d793832",
    "nvidia_create_pretraining_data.py":
        "f9e230f8611fb165da7f7f16036ad9d90d16f0d6a4517646d754d06703d7d1c9",
    "pick_eval_samples.py":
        "432f2dcab40433782afb6eb48b33026d7c7eed676e4b2b67de4d6cb38012f207",
    "run_pretraining.py":
        "7de3635f637c17b959552894edd930bd4ce5ee0a66c9d12a415a5e27195b805f",
    "shuffle_samples.py":
        "4e2a88c3bfad42ca6b62d562d57d7f7e3b323d41ac0356e42fa075834a503e2b",
    "tokenization.py":
        "956abaf59f22f50979f9b974e8f2b818b4a9bcce5d8ffaf163240f4a383c01c7",
    "write_shuffled_shards.py":
        "2cb2b7b1f6b209e77334d86ff73fab537bfbf6132e0ff535fcfb24e57e31df8b",
}
SEQ, MASKED, SHARDS = 64, 10, 3
SETTINGS = [f"--max_seq_length={SEQ}", f"--max_predictions_per_seq={MASKED}",
            "--masked_lm_prob=0.15", "--random_seed=12345", "--dupe_factor=1",
            "--do_lower_case=True"]
# This version of the script allocates segment_ids and never fills them.
SEGMENTS = ("    h5_writers[writer_index]['masked_lm_ids'][inst_index] = masked_lm_ids\n",
            "    h5_writers[writer_index]['segment_ids'][inst_index] = segment_ids\n")
RUNNER = """
import random, runpy, sys
script, is_tensorflow = sys.argv[1], sys.argv[2] == "tf1"
sys.argv = [script, *sys.argv[3:]]
random.seed(20)
if is_tensorflow:
    import tensorflow.compat.v1 as tf
    sys.modules["tensorflow"] = tf
runpy.run_path(script, run_name="__main__")
"""
FIELDS = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", "masked_lm_ids",
          "next_sentence_labels")
BERT = dict(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=24, max_position_embeddings=16, type_vocab_size=2)


def run(script, kind, *words, folder):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(script.parent)}
    done = subprocess.run([sys.executable, "-c", RUNNER, str(script), kind, *map(str, words)],
                          cwd=folder, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{script.name}: exit code {done.returncode}\n{done.stdout.decode()}")


def check(scripts):
    for name, wanted in SHA256.items():
        found = hashlib.sha256((scripts / name).read_bytes()).hexdigest()
        if found != wanted:
            sys.exit(f"{scripts / name}: SHA-256 {found}, want {wanted}; take the version that "
                     "README.md names")


def group_by_length(source, folder):
    """What create_per_seqlength_data.py leaves: a file per number of tokens, of the fixed form."""
    with h5py.File(source) as file:
        rows = {name: file[name][:] for name in FIELDS}
    lengths = rows["input_mask"].sum(axis=1)
    (folder / "part-00000").mkdir(parents=True)
    for length in range(1, SEQ + 1):
        with h5py.File(folder / f"part-00000/seqlength_{length:03d}.hdf5", "w") as file:
            for name in FIELDS:
                file.create_dataset(name, data=rows[name][lengths == length])
    return lengths


def packs(lengths):
    """Rows as generate_packing_strategy.py names them, (tokens, number among those of that length),
    at most three to a pack: each row goes to the first pack that has room."""
    counts, found = {}, []
    for length in map(int, lengths):
        row = (length, counts.setdefault(length, 0))
        counts[length] += 1
        for pack in found:
            if len(pack) < 3 and sum(n for n, _ in pack) + length <= SEQ:
                pack.append(row)
                break
        else:
            found.append([row])
    return found


def make_samples(scripts, golden, work, out):
    text, vocab = golden / "prepare/many_documents.txt", golden / "prepare/vocab.txt"
    common = [f"--input_file={text}", f"--vocab_file={vocab}", *SETTINGS]
    run(scripts / "mlcommons_create_pretraining_data.py", "tf1", *common,
        f"--output_file={out}/reference.tfrecord", folder=work)
    run(scripts / "nvidia_create_pretraining_data.py", "tf1", *common,
        f"--output_file={out}/nvidia_v0.7", folder=work)

    mended = scripts / "nvidia_with_segments.py"
    line, addition = SEGMENTS
    mended.write_text((scripts / "nvidia_create_pretraining_data.py").read_text().replace(
        line, line + addition))
    parts = work / "parts"
    parts.mkdir()
    run(mended, "tf1", *common, f"--output_file={parts}/part-00000-of-00500", folder=work)
    source = parts / "part-00000-of-00500.hdf5"

    run(scripts / "chop_hdf5_files.py", "plain", "--num_shards", SHARDS, "--max_seq_length", SEQ,
        "--max_predictions_per_seq", MASKED, "--input_hdf5_dir", parts, "--output_hdf5_dir", work,
        folder=work)
    fixed = work / f"hdf5_{SHARDS}_shards_uncompressed"
    shutil.copytree(fixed, out / "fixed")
    (out / "variable").mkdir()
    for shard in sorted(fixed.iterdir()):
        run(scripts / "convert_fixed2variable.py", "plain", "--input_hdf5_file", shard,
            "--output_hdf5_file", out / "variable" / shard.name, folder=work)
    (out / "eval").mkdir()
    run(scripts / "pick_eval_samples.py", "plain", "--input_hdf5_file", source,
        "--output_hdf5_file", out / "eval/part_eval_10k", "--num_examples_to_pick", 20,
        "--max_seq_length", SEQ, "--max_predictions_per_seq", MASKED, folder=work)

    shuffled = work / "shuffled"
    shuffled.mkdir()
    run(scripts / "shuffle_samples.py", "plain", "--input_hdf5", fixed, "--output_hdf5", shuffled,
        folder=work)
    run(scripts / "write_shuffled_shards.py", "plain", "--input_hdf5", fixed, "--output_hdf5",
        shuffled, folder=work)
    shutil.copytree(shuffled, out / "shuffled")
    return source


def make_packed(scripts, source, work, out):
    per_length, merged = work / "per_seqlen_parts", work / "per_seqlen"
    merged.mkdir()
    found = packs(group_by_length(source, per_length))
    for length in range(1, SEQ + 1):
        run(scripts / "gather_per_seqlength_data.py", "plain", "--input_hdf5", per_length,
            "--output_hdf5", merged, "--seq_length", length, folder=work)
    packed = out / "packed"
    packed.mkdir()
    half = (len(found) + 1) // 2
    for shard, part in enumerate((found[:half], found[half:])):
        (packed / f"shard_list_{shard:05}.lst").write_text(str([list(map(list, p)) for p in part]))
    # It writes where it is started.
    run(scripts / "create_packed_trainset.py", "plain", "--input_hdf5", merged, "--assignment_file",
        packed, "--max_seq_length", SEQ, folder=packed)


def value_of(name, shape):
    """What a variable is set to: weights_test.py makes the same from the name."""
    numbers = zlib.crc32(name.encode()) + 7919 * np.arange(int(np.prod(shape)))
    return ((numbers % 2001 - 1000) / 1024).astype(np.float32).reshape(shape)


def make_checkpoint(scripts, out):
    """The variables of the official model and its heads, saved by the Saver of TensorFlow 1."""
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()

    def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):
        """tf.contrib's, which TensorFlow 2 does not have: the variables are what is looked at."""
        with tf.variable_scope(scope, "LayerNorm"):
            shape = inputs.shape[-1:]
            beta = tf.get_variable("beta", shape, initializer=tf.zeros_initializer())
            gamma = tf.get_variable("gamma", shape, initializer=tf.ones_initializer())
            mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
            return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)

    def dense(inputs, units, activation=None, name="dense", kernel_initializer=None):
        """tf.layers', which Keras 3 does not have."""
        with tf.variable_scope(name):
            kernel = tf.get_variable("kernel", [inputs.shape[-1], units],
                                     initializer=kernel_initializer)
            bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
            outputs = tf.tensordot(inputs, kernel, 1) + bias
            return outputs if activation is None else activation(outputs)

    layers = types.ModuleType("tensorflow.contrib.layers")
    layers.layer_norm = layer_norm
    contrib = types.ModuleType("tensorflow.contrib")
    contrib.layers = layers
    sys.modules.update({"tensorflow.contrib": contrib, "tensorflow.contrib.layers": layers})
    tf.layers = types.SimpleNamespace(dense=dense)
    bert = types.ModuleType("bert")
    sys.path.insert(0, str(scripts))
    import modeling
    bert.modeling = modeling
    bert.optimization = None
    sys.modules["bert"] = bert
    import run_pretraining

    config = modeling.BertConfig(**BERT)
    ids = tf.placeholder(tf.int32, [2, 16])
    model = modeling.BertModel(config, is_training=False, input_ids=ids)
    positions = tf.zeros([2, 3], tf.int32)
    run_pretraining.get_masked_lm_output(
        config, model.get_sequence_output(), model.get_embedding_table(), positions, positions,
        tf.zeros([2, 3]))
    run_pretraining.get_next_sentence_output(config, model.get_pooled_output(),
                                             tf.zeros([2, 1], tf.int32))
    tf.train.get_or_create_global_step()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for variable in tf.trainable_variables():
            variable.load(value_of(variable.op.name, variable.shape.as_list()), session)
        (out / "tf1").mkdir()
        tf.train.Saver().save(session, str(out / "tf1/model.ckpt-28252"), write_meta_graph=False)
    (out / "tf1/checkpoint").unlink()
    (out / "tf1/bert_config.json").write_text(config.to_json_string())


def main():
    scripts, golden = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    check(scripts)
    out = golden / "official"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        copied = work / "scripts"
        shutil.copytree(scripts, copied)
        source = make_samples(copied, golden, work, out)
        make_packed(copied, source, work, out)
    make_checkpoint(scripts, out)
    for file in sorted(out.rglob("*")):
        if file.is_file():
            print(f"{file.stat().st_size:8d}  {file.relative_to(golden)}")


if __name__ == "__main__":
    main()
