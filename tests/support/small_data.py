"""A small text, and a small model and data for tests: config.yaml, made by the program."""

import random
import subprocess


def make_text(seed, documents):
    """Documents of sentences with a grammar to learn: the words of a sentence follow its subject."""
    draw = random.Random(seed)
    subjects = "river mountain farmer teacher winter garden engine letter harbor forest".split()
    verbs = "carries watches follows remembers crosses answers builds keeps".split()
    qualities = "old quiet bright narrow heavy gentle distant hidden early silver".split()
    objects = "stone window basket market lantern bridge meadow story machine island".split()
    places = "near the water, behind the house, under the tree, beyond the road".split(", ")

    def pick(words):
        return words[int(draw.random() * len(words))]

    lines = []
    for _ in range(documents):
        for _ in range(3 + int(draw.random() * 6)):
            index = int(draw.random() * len(subjects))
            sentence = f"the {pick(qualities)} {subjects[index]} {pick(verbs)} the "
            sentence += f"{pick(qualities)} {objects[index]}"
            if draw.random() < 0.5:
                sentence += " " + pick(places)
            if draw.random() < 0.3:
                sentence += f" and {int(draw.random() * 900) + 100} {pick(objects)}s"
            lines.append(sentence + " .")
        lines.append("")
    return "\n".join(lines) + "\n"


def must(bertha, *words):
    done = subprocess.run([bertha, *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout.decode())


def make_small_data(bertha, folder, entries=322):
    """Makes config.yaml and what it names. The entries are no multiple of 8, the width is none of 64."""
    (folder / "text.txt").write_text(make_text(1, 120), encoding="utf-8")
    must(bertha, "data", "vocab", "--size", entries, "--output", folder / "vocab.txt", "--text",
         folder / "text.txt")
    for part in ("train", "eval"):
        must(bertha, "data", "prepare", "--vocab", folder / "vocab.txt", "--max-seq-tokens", 32,
             "--max-masked-per-seq", 5, "--duplication", 1, "--output", folder / part,
             "--text", folder / "text.txt")
    (folder / "config.yaml").write_text(f"""\
model: {{layers: 2, hidden: 48, heads: 2, feed_forward: 96, vocab_size: {entries}, max_positions: 32,
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
