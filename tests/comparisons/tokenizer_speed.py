#!/usr/bin/env python3
"""MB of text per second of CPU time: WordPiece by Hugging Face's tokenizers, one thread, which returns
tokens alone, and `bertha data prepare --workers 1`, which writes shards of pairs and masks.

    python3 tests/comparisons/tokenizer_speed.py build/release/bertha vocab.txt text/*.txt

needs the package tokenizers. Medians of three runs each, in turns.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path


def tokenize(texts: list[Path], vocabulary: Path, lower_case: bool) -> None:
    os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=lower_case)
    for text in texts:
        tokenizer.encode_batch(text.read_text("utf-8").splitlines(), add_special_tokens=False)


def prepare(program: Path, texts: list[Path], vocabulary: Path, lower_case: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "vocab")
        source.mkdir()
        (source / "vocab.txt").write_bytes(vocabulary.read_bytes())
        (source / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower_case}))
        command = [program, "data", "prepare", "--text", *texts, "--vocab", source / "vocab.txt",
                   "--output", Path(folder, "out"), "--duplication", "1", "--workers", "1",
                   "--hold-out", "0"]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)


def cpu_seconds(task) -> float:
    """CPU time of a child process that runs `task`, and of its own children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            task()
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        raise SystemExit("a run failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--cased", action="store_true", help="keep letter case and accents")
    args = parser.parse_args()
    megabytes = sum(text.stat().st_size for text in args.texts) / 1e6
    lower_case = not args.cased
    tasks = {
        "tokenizers, tokens alone": lambda: tokenize(args.texts, args.vocabulary, lower_case),
        "bertha data prepare": lambda: prepare(args.program, args.texts, args.vocabulary, lower_case),
    }
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(3):
        for name, task in tasks.items():
            seconds[name].append(cpu_seconds(task))
    for name, runs in seconds.items():
        print(f"{name:26} {megabytes / statistics.median(runs):6.2f} MB/s "
              f"({megabytes / max(runs):.2f} to {megabytes / min(runs):.2f})")


if __name__ == "__main__":
    main()
