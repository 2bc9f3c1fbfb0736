#!/usr/bin/env python3
"""Makes the golden files of the pre-training data generator: texts, a vocabulary and samples.

Usage: make_pretraining_golden.py FOLDER      (committed: tests/golden/prepare)

A transcription of the published algorithm, independent of the C++: Python strings and lists
throughout, CPython's random.Random, Unicode from unicodedata. Standard library only.
The committed files were made with CPython 3.11.7 (Unicode 14.0.0); the texts keep to characters
whose properties have not changed since Unicode 6, so that other versions make the same files; README.md beside this file names those checked.

A line of a sample file is:  label | tokens of [CLS] A [SEP] | ids | masked positions | labels
"""
import collections
import pathlib
import random
import sys
import unicodedata

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

STORY = """\
The lighthouse keeper woke before the gulls. He lit the stove, and the room smelled of pine.
Nobody had climbed the stairs since Tuesday\u2014not even the cat!
"Are you there?" he asked; the wind said nothing.

Café owners in Málaga, Zürich and Łódź serve naïve tourists crème brûlée.
The façade of the Hôtel d'Été was repainted in 1987 (at a cost of £3,200.50).
Ångström's résumé mentions São Paulo, Kraków and Đà Nẵng.
ΟΔΥΣΣΕΥΣ sailed home; ΣΟΦΙΑ, ΛΟΓΟΣ and the word ΣΑΣ end in sigma.
Привет, мир! Ёлка стоит в углу.

東京は日本の首都です。
The sign read 北京 and below it 한국어 in small letters.
北京大学

One.

Why?

A sentence that stands alone in its document is paired with a random one every time it is drawn.

Words like unaffable, internationalisation and pneumonoultramicroscopic are split into pieces.
Tabs\tand\u00a0no-break spaces\u3000separate; zero\u200bwidth ones\u00ad vanish.
E-mail: someone@example.org, price: 100%, path: C:\\temp\\x_y, maths: 2^10 = 1024 ~ 10^3 {ok} `code`.
The tokens [MASK], [CLS] and [unused3] are plain text here.
Control\u0001characters\u007f and a replacement \ufffd mark go away.
\u201cQuotes\u201d \u2018like\u2019 these\u2026 and a dash \u2013 are punctuation; \u00ab so \u00bb too. \u00a7 \u20ac \u2122
\u200b
İstanbul'da Iğdır ILIK STRASSE straße ﬁn Ǆ ǅ
e\u0301te\u0301 a\u0327\u0301 c\u0327 \u0301\u0302 o\u0308
"""

PEOPLE = ["The miller", "A young doctor", "Her brother", "The old captain", "My neighbour",
          "The librarian", "An engineer from Leeds", "The schoolteacher", "Nobody", "The gardener"]
DEEDS = ["counted", "carried", "repaired", "painted", "forgot", "measured", "borrowed", "sold",
         "admired", "described"]
THINGS = ["seven sacks of flour", "the broken clock", "a wooden bridge", "two letters",
          "the harbour wall", "a map of the northern islands", "the organ", "three red lanterns",
          "an unfinished novel", "the waterwheel"]
TIMES = ["before noon", "in the rain", "after the long winter", "without a word", "twice",
         "while the others slept", "on the last day of March", "for no reason at all",
         "as if it mattered", "at the edge of the town"]


def invented_sentence(rng):
    """One of many plain sentences, some short, some long."""
    words = [rng.choice(PEOPLE), rng.choice(DEEDS), rng.choice(THINGS)]
    while rng.random() < 0.6:
        words.append(rng.choice(TIMES) + rng.choice(["", ","]))
    return " ".join(words).rstrip(",") + rng.choice([".", ".", ".", "!", "?"])


def invented_document(rng, sentences):
    return "".join(invented_sentence(rng) + "\n" for _ in range(sentences))


def make_texts():
    rng = random.Random(7)
    lengths = [1, 2, 3, 70, 1, 9, 25, 4, 120, 2]
    many = STORY + "\n" + "\n".join(invented_document(rng, n) for n in lengths)
    single = invented_document(rng, 45)
    short = "\n\n \n".join(invented_document(rng, 1) for _ in range(12)).replace("\n", "\r\n")
    return {"many_documents": many, "single_document": single,
            "one_sentence_documents": short.rstrip("\r\n")}


# --- tokenizer -------------------------------------------------------------------------------

def is_punctuation(char):
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char).startswith("P")


def is_ideograph(char):
    code = ord(char)
    blocks = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
              (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]
    return any(low <= code <= high for low, high in blocks)


def clean(text):
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if char in "\t\n\r" or category == "Zs":
            kept.append(" ")
        elif char not in "\0\ufffd" and category not in ("Cc", "Cf"):
            kept.append(f" {char} " if is_ideograph(char) else char)
    return "".join(kept)


def basic_tokens(text):
    words = []
    for word in clean(text).split():
        decomposed = unicodedata.normalize("NFD", word.lower())
        bare = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        words.extend("".join(f" {c} " if is_punctuation(c) else c for c in bare).split())
    return words


def word_pieces(word, vocab):
    if len(word) > 200:
        return ["[UNK]"]
    pieces = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab:
                pieces.append(piece)
                start = end
                break
        else:
            return ["[UNK]"]
    return pieces


def tokenize(line, vocab):
    return [piece for word in basic_tokens(line) for piece in word_pieces(word, vocab)]


def make_vocabulary(texts):
    """Single characters, pieces of frequent words and some whole words; rare characters miss."""
    words = collections.Counter()
    for text in texts:
        for line in text.split("\n"):
            words.update(basic_tokens(line))
    chars = collections.Counter(c for word, n in words.items() for c in word * n)
    common = sorted(c for c, n in chars.items() if n >= 2)
    vocab = SPECIAL[:1] + ["[unused0]", "[unused1]"] + SPECIAL[1:] + ["[unused2]"]
    vocab += common + ["##" + c for c in common]
    ranked = sorted(words, key=lambda w: (-words[w], w))
    vocab += [w for w in ranked if len(w) > 1 and words[w] >= 5]
    vocab += ["##" + w[-3:] for w in ranked if len(w) > 5] + [w[:4] for w in ranked if len(w) > 5]
    return list(dict.fromkeys(vocab))


# --- pairs and masks -------------------------------------------------------------------------

Setting = collections.namedtuple("Setting", "name text seed dup max_seq max_masked masked short")

SETTINGS = [
    Setting("seq32", "many_documents", 12345, 1, 32, 5, 0.15, 0.1),
    Setting("seq64_dup3_short50", "many_documents", 12345, 3, 64, 10, 0.15, 0.5),
    Setting("seq128_seed7", "many_documents", 7, 1, 128, 20, 0.15, 0.1),
    Setting("seq512", "many_documents", 12345, 1, 512, 76, 0.15, 0.1),
    Setting("single_seq64_dup3", "single_document", 12345, 3, 64, 10, 0.15, 0.1),
    Setting("single_seq512", "single_document", 2**40 + 3, 1, 512, 7, 0.2, 0.5),
    Setting("one_sentence_seq32_dup3", "one_sentence_documents", 12345, 3, 32, 31, 0.9, 0.5),
    Setting("tiny_seq5", "one_sentence_documents", 1, 1, 5, 2, 0.15, 0.1),
]


def read_documents(text, vocab):
    documents = [[]]
    for line in text.split("\n"):
        line = line.strip()
        if not line:
            documents.append([])
        tokens = tokenize(line, vocab)
        if tokens:
            documents[-1].append(tokens)
    return [document for document in documents if document]


def random_tokens(documents, index, wanted, rng):
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    start = rng.randint(0, len(documents[other]) - 1)
    tokens = []
    for sentence in documents[other][start:]:
        tokens += sentence
        if len(tokens) >= wanted:
            break
    return tokens


def shorten(a, b, room, rng):
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if rng.random() < 0.5 else -1)


def mask(tokens, words, setting, rng):
    places = [i for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    rng.shuffle(places)
    count = min(setting.max_masked, max(1, int(round(len(tokens) * setting.masked))))
    masked = list(tokens)
    for place in places[:count]:
        if rng.random() < 0.8:
            masked[place] = "[MASK]"
        elif rng.random() < 0.5:
            masked[place] = tokens[place]
        else:
            masked[place] = words[rng.randint(0, len(words) - 1)]
    chosen = sorted(places[:count])
    return masked, chosen, [tokens[place] for place in chosen]


def document_samples(documents, index, words, setting, rng):
    room = setting.max_seq - 3
    target = room
    if rng.random() < setting.short:
        target = rng.randint(2, room)
    samples = []
    chunk = []
    document = documents[index]
    i = 0
    while i < len(document):
        chunk.append(document[i])
        if i == len(document) - 1 or sum(map(len, chunk)) >= target:
            split = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = sum(chunk[:split], [])
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                b = random_tokens(documents, index, target - len(a), rng)
                i -= len(chunk) - split
            else:
                b = sum(chunk[split:], [])
            shorten(a, b, room, rng)
            tokens = ["[CLS]"] + a + ["[SEP]"] + b + ["[SEP]"]
            samples.append((int(is_random), len(a) + 2) + mask(tokens, words, setting, rng))
            chunk = []
        i += 1
    return samples


def make_samples(text, vocab, setting):
    rng = random.Random(setting.seed)
    documents = read_documents(text, vocab)
    rng.shuffle(documents)
    words = list(vocab)
    samples = []
    for _ in range(setting.dup):
        for index in range(len(documents)):
            samples += document_samples(documents, index, words, setting, rng)
    rng.shuffle(samples)
    return samples


def main():
    folder = pathlib.Path(sys.argv[1])
    texts = make_texts()
    for name, text in texts.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
    pieces = make_vocabulary(texts.values())
    vocab = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.txt").write_bytes("".join(piece + "\n" for piece in pieces).encode())
    for setting in SETTINGS:
        lines = []
        for label, a_tokens, tokens, places, labels in make_samples(texts[setting.text], vocab,
                                                                    setting):
            fields = [[label], [a_tokens], [vocab[t] for t in tokens], places,
                      [vocab[t] for t in labels]]
            lines.append(" | ".join(" ".join(map(str, field)) for field in fields) + "\n")
        (folder / f"{setting.name}.samples").write_bytes("".join(lines).encode())


if __name__ == "__main__":
    main()
