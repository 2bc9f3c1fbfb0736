#!/usr/bin/env python3.7
"""Prints the basic tokens of every code point as CPython 3.7 (Unicode 11.0.0) splits it.

Usage: make_unicode_11_golden.py > tests/golden/unicode_11.txt

A line is: the first of 4096 code points, the MD5 of the tokens of their lines. Code point c has the
line `Ac1 AcΣ AΣcA c`: inside a word, before and after a capital sigma, alone. Tokens are joined by
spaces, lines end with "\n". Planes 4 to 13, unassigned throughout, are left out.
"""
import hashlib
import sys
import unicodedata

from make_pretraining_golden import basic_tokens

BLOCK = 4096


def main():
    if unicodedata.unidata_version != "11.0.0":
        sys.exit("found Unicode %s, want 11.0.0: run CPython 3.7" % unicodedata.unidata_version)
    for first in list(range(0, 0x40000, BLOCK)) + list(range(0xE0000, 0x110000, BLOCK)):
        lines = []
        for code in range(first, first + BLOCK):
            if 0xD800 <= code < 0xE000:
                continue
            c = chr(code)
            tokens = basic_tokens("A" + c + "1 A" + c + "\u03a3 A\u03a3" + c + "A " + c)
            lines.append(" ".join(tokens) + "\n")
        print("%06x %s" % (first, hashlib.md5("".join(lines).encode()).hexdigest()))


if __name__ == "__main__":
    main()
