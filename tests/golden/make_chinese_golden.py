#!/usr/bin/env python3
"""Writes into a folder chinese.txt, made-up Chinese text with some Latin words and numbers, and
chinese_vocab.txt, the WordPiece vocabulary that Hugging Face's tokenizers trains on it.

The n-th of 400 ideographs is as frequent as 1 / n, as in real text, and each occurs at least once.
Made with Python 3.11.7, tokenizers 0.23.3.
"""
import pathlib
import random
import sys

from tokenizers import BertWordPieceTokenizer

IDEOGRAPHS = [chr(0x4E00 + 7 * i) for i in range(400)]
LATIN = ["bert", "berta", "gpu", "model", "models", "data", "2026", "12"]


def sentence(draw, new):
    weights = [1 / (n + 1) for n in range(len(IDEOGRAPHS))]
    words = draw.choices(IDEOGRAPHS, weights, k=draw.randint(6, 12)) + [new]
    if draw.random() < 0.3:
        words.insert(draw.randrange(len(words)), draw.choice(LATIN))
    words.insert(len(words) // 2, "，")
    return "".join(words) + draw.choice("。！？")


def main():
    folder = pathlib.Path(sys.argv[1])
    draw = random.Random(1)
    lines = [sentence(draw, new) for new in IDEOGRAPHS]
    text = folder / "chinese.txt"
    text.write_text("".join(line + " " * (n % 20 < 19) + "\n" * (n % 20 == 19)
                            for n, line in enumerate(lines)), encoding="utf-8")
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train([str(text)], vocab_size=30000, min_frequency=2, limit_alphabet=6000,
                    show_progress=False)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    (folder / "chinese_vocab.txt").write_text(" ".join(piece for piece, _ in vocabulary) + "\n",
                                              encoding="utf-8")
    unknown = sum(tokenizer.encode(line).tokens.count("[UNK]") for line in lines)
    print(len(vocabulary), "wordpieces,", unknown, "unknown tokens")


main()
