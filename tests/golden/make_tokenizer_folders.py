"""Tokenizer folders as transformers saves them, and the ids that it gives to texts.

usage: python3 tests/golden/make_tokenizer_folders.py tests/golden/tokenizer_folders

One folder per tokenizer: tokenizer.json and tokenizer_config.json as today's transformers saves
them, vocab.txt and added_tokens.json in "NAME-slow" as versions up to 4 saved them, and in
texts.json the texts with their ids, without [CLS] and [SEP]. Versions: tests/golden/README.md.
"""

import json
import os
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AddedToken, BertTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
WORDS = ["the", "un", "##want", "##ed", "heart", "H", "Heart", "é", "##é", "心", "!", "[", "]"]
TEXTS = [
    "The heart, unwanted hearts", "a [MASK] b[SEP]c [CLS]", "[mask] [MASK ] [PAD][UNK]", "Élan é É",
    "心心 heart心", "a" * 100, "a" * 101, "z" * 200 + " z", "a\ue000b \uf8ff c\u00adc", "",
    "NewDrug newdrug Newdrugs xnewdrug NEWDRUG", "troponin Troponin troponins atroponin troponin.",
    "<note>heart</note>", "<NOTE>", "a\u2028b\u00a0c\u0085d", "\U000f0000a", "mask [ MASK ]",
]


def vocabulary(cased):
    words = SPECIAL + LETTERS + ["##" + letter for letter in LETTERS] + WORDS
    if cased:
        words += [letter.upper() for letter in LETTERS if letter.upper() not in words]
    return {word: place for place, word in enumerate(words)}


def make(cased):
    vocab = vocabulary(cased)
    fast = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    fast.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.BertProcessing(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    tokenizer = BertTokenizerFast(tokenizer_object=fast, do_lower_case=not cased)
    tokenizer.add_tokens(["newdrug", AddedToken("troponin", single_word=True)])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<note>"]})
    return tokenizer, vocab


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main(root):
    for name in ("cased", "uncased"):
        tokenizer, vocab = make(name == "cased")
        folder = os.path.join(root, name)
        tokenizer.save_pretrained(folder)
        texts = [{"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in TEXTS]
        write(os.path.join(folder, "texts.json"), json.dumps(texts, indent=0) + "\n")
        slow = folder + "-slow"
        os.makedirs(slow, exist_ok=True)
        write(os.path.join(slow, "vocab.txt"), "".join(word + "\n" for word in vocab))
        added = {token: place for token, place in tokenizer.get_vocab().items() if token not in vocab}
        write(os.path.join(slow, "added_tokens.json"), json.dumps(added, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
