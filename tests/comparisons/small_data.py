"""A small model and data for tests: config.yaml, made by the program."""

import subprocess

from gpu_evidence_test import invented_text


def must(bertha, *words):
    done = subprocess.run([bertha, *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout.decode())


def make_small_data(bertha, folder):
    """Makes config.yaml and what it names. The entries are no multiple of 8, the width is none of 64."""
    (folder / "text.txt").write_text(invented_text(), encoding="utf-8")
    must(bertha, "data", "vocab", "--size", 322, "--output", folder / "vocab.txt", "--text",
         folder / "text.txt")
    for part in ("train", "eval"):
        must(bertha, "data", "prepare", "--vocab", folder / "vocab.txt", "--max-seq-tokens", 32,
             "--max-masked-per-seq", 5, "--duplication", 1, "--output", folder / part,
             "--text", folder / "text.txt")
    (folder / "config.yaml").write_text(f"""\
model: {{layers: 2, hidden: 48, heads: 2, feed_forward: 96, vocab_size: 322, max_positions: 32,
        hidden_dropout: 0, attention_dropout: 0}}
data: {{train: {folder}/train, eval: {folder}/eval, vocab: {folder}/vocab.txt,
       max_seq_tokens: 32, max_masked_per_seq: 5}}
train: {{global_batch_seqs: 16, max_steps: 20, target_accuracy: 0, threads_per_rank: 1,
        log_every_steps: 1, backend: cpu}}
optimizer: {{base_learning_rate: 8e-3, warmup_steps: 4}}
eval: {{max_samples: 40, every_samples: 160}}
log: {{tensorboard: false}}
""", encoding="utf-8")
    return folder / "config.yaml"
