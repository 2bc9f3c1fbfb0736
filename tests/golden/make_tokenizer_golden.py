#!/usr/bin/env python3
"""Tokenizes random strings with three programs that have to agree, and keeps hashes of the ids.

    python3 tests/golden/make_tokenizer_golden.py PACKAGE tests/golden/tokenizer.json

PACKAGE is the unpacked wheel bert-tensorflow 1.0.4, whose tokenization.py is google-research's; it
needs of TensorFlow a reader of lines alone, and gets one. The others are transformers' tokenizer in
Rust, which AutoTokenizer chooses, and the one in Python, which composes characters (NFC) before all
else: it is compared on strings that this leaves alone. No part has a capital sigma (only Python
knows the one at the end of a word) or a character for private use (the one in Rust removes it).

String i of a list is made of randrange(12) parts, each parts[randrange(len(parts))], by one
random.Random(SEED). A hash is the MD5 of the ids of 1,000 strings, joined by blanks, then "\\n".
"""
import hashlib
import importlib.util
import json
import pathlib
import random
import sys
import tempfile
import types
import unicodedata

from transformers import AutoTokenizer

SEED, BLOCKS, STRINGS = 11, 8, 1000
CONFIGS = ({}, {"do_lower_case": False},
           {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": False},
           {"do_lower_case": False, "strip_accents": True},
           {"do_lower_case": True, "strip_accents": False})
PARTS = (*"aZeEQq9 \t.'_$^-", "Par", "is", "IS", "\x02", "\x7f", "\x0b", "\x85", "\xa0", "\xad",
         "\u00e9", "\u00c9", "\u0301", "\u0323", "\u0130", "\u01c5", "\u1e9e", "\u212b", "\u0416",
         "\u0439", "\u03a9", "\u05d0\u05b8", "\u0627\u064e", "\u0928\u093f\u0902", "\u0e01\u0e33",
         "\ud55c", "\u304c", "\u4e00", "\uf900", "\U00020000", "\uff21", "\ufb01", "\u200b",
         "\ufeff", "\u2028", "\u3000", "\ufffd", "\u2026", "\u201c", "\u20ac", "\U0001f600")
LEFT_OUT = "Qq"  # [UNK]


def vocabulary():
    forms = set()
    for part in PARTS:
        for text in (part, part.lower(), unicodedata.normalize("NFD", part),
                     unicodedata.normalize("NFD", part.lower())):
            forms.update(c for c in text if c.isprintable() and not c.isspace())
    singles = sorted(forms - set(LEFT_OUT))
    # A line of nothing but white space has an id too: bert-base-chinese has this one.
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *singles, "\u2028",
            *("##" + c for c in singles), "Par", "par", "##is", "##IS"]


def google_tokenizer(package):
    class File:
        def __init__(self, path, mode):
            self.open = lambda: open(path, mode, encoding="utf-8", newline="\n")

        def __enter__(self):
            self.file = self.open()
            return self.file

        def __exit__(self, *_):
            self.file.close()

    names = ("tensorflow", "tensorflow.compat", "tensorflow.compat.v1")
    sys.modules.update({name: types.ModuleType(name) for name in names})
    sys.modules[names[1]].v1 = sys.modules[names[2]]
    sys.modules[names[2]].gfile = types.SimpleNamespace(GFile=File)
    spec = importlib.util.spec_from_file_location("google", package / "bert/tokenization.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.FLAGS(sys.argv[:1])
    return module.FullTokenizer


def ids_of(config, words, strings, full_tokenizer):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        (place / "config.json").write_text('{"model_type": "bert"}')
        (place / "tokenizer_config.json").write_text(json.dumps(config))
        rust, python = (AutoTokenizer.from_pretrained(folder, use_fast=f) for f in (True, False))
        lowers = config.get("do_lower_case", True)
        google = full_tokenizer(str(place / "vocab.txt"), do_lower_case=lowers)
    has_google = (config.get("strip_accents") in (None, lowers)
                  and "tokenize_chinese_chars" not in config)
    found, compared = [], 0
    for text in strings:
        ids = rust(text, add_special_tokens=False)["input_ids"]
        if has_google:
            assert google.convert_tokens_to_ids(google.tokenize(text)) == ids, (config, text)
        kept = "".join(c for c in text
                       if unicodedata.category(c) not in ("Cc", "Cf") and c != "\ufffd")
        if unicodedata.normalize("NFC", kept) == kept:
            compared += 1
            assert python.convert_tokens_to_ids(python.tokenize(text)) == ids, (config, text)
        found.append(ids)
    print(config, len(strings), "strings,", compared, "also in Python",
          "and all by google-research" if has_google else "", file=sys.stderr)
    return found


def main():
    package, output = map(pathlib.Path, sys.argv[1:])
    full_tokenizer, words = google_tokenizer(package), vocabulary()
    draw = random.Random(SEED)
    strings = ["".join(PARTS[draw.randrange(len(PARTS))] for _ in range(draw.randrange(12)))
               for _ in range(BLOCKS * STRINGS)]
    lists = []
    for config in CONFIGS:
        ids = ids_of(config, words, strings, full_tokenizer)
        blocks = [ids[i:i + STRINGS] for i in range(0, len(ids), STRINGS)]
        lists.append({"tokenizer_config": config, "md5": [
            hashlib.md5("".join(" ".join(map(str, i)) + "\n" for i in block).encode()).hexdigest()
            for block in blocks]})
    output.write_text(json.dumps({"seed": SEED, "strings": STRINGS, "parts": PARTS,
                                  "vocabulary": words, "lists": lists}) + "\n")


if __name__ == "__main__":
    main()
