"""What ranks ask of files and send to each other grows with their number W no faster than stated.

Files are counted by a library that is preloaded, messages by Open MPI's own monitoring.
"""

import collections
import math
import pathlib
import sys

from support import EndToEnd, command, main, messages, monitoring, run

COUNT_FILES = sys.argv[5]
RANKS = (2, 8, 64)
SEQS_PER_RANK = 4
SHARDS = max(RANKS)
STEPS, MORE_STEPS = 2, 12

# How a number may follow W, up to a factor: a rank's, or with ALL that of all ranks together.
ALL = "all"
LAWS = {
    "1": lambda w: 1.0,
    "1/W": lambda w: 1.0 / w,
    "(W-1)(1/W+1/100)": lambda w: (w - 1.0) * (1.0 / w + 0.01),
    "W": float,
    "W-1": lambda w: w - 1.0,
    "W log W": lambda w: w * math.log2(w),
}
SLACK = 1.1


def most_of_shards(_):
    """Each shard is checked and counted by one rank, and read by one in up to three windows; its
    superblock is looked at before."""
    return (3 + 3 * 4) * SHARDS


def most_messages(w):
    """Of a step: two sums over a binomial tree, of lengths and of requests to stop, and samples."""
    return 2 * (math.log2(w) + 1) + SEQS_PER_RANK


FILES = "opens bytes lookups"
GROWTH = {
    "start": (
        (ALL, "first weights", FILES, "1"),
        (ALL, "training shards", "opens lookups", most_of_shards),
        # Each rank reads the whole files that hold its part of the evaluation set.
        ("", "evaluation shards", FILES, "1"),
        ("", "manifests, vocabulary", FILES, "1"),
        ("", "run folder", FILES, "1"),
        (ALL, "saved weights", FILES, "1"),
        ("", "optimizer files", "opens lookups", "1"),
        ("", "optimizer files", "bytes", "1/W"),
        # Open MPI gathers by a message to each other rank: lengths, then texts or counts.
        ("", "host messages", "count", "W-1"),
    ),
    "resume": (
        (ALL, "saved weights", FILES, "1"),
        ("", "optimizer files", "opens lookups", "1"),
        ("", "optimizer files", "bytes", "1/W"),
        # DONE has a line for each rank that saved.
        ("", "checkpoint", "bytes", "W-1"),
        ("", "checkpoint", "opens lookups", "1"),
        ("", "host messages", "count", "W-1"),
    ),
    "resume: auto": (
        # One rank looks for a checkpoint that is sound: it hashes all files before they are shared.
        ("", "optimizer files", "opens", "W"),
        ("", "optimizer files", "bytes", "1"),
        (ALL, "saved weights", FILES, "1"),
        ("", "host messages", "count", "W-1"),
    ),
    "step": (
        (ALL, "run folder", FILES, "1"),
        ("", "host messages", "count", most_messages),
        # The lengths of all sequences go through each level of the tree.
        ("", "host messages", "bytes", "W log W"),
        # The CPU's twin of NCCL: a message to every rank, of 1 / W of the bytes, and norms and losses
        # whole, which are a hundredth of the gradients of this small model.
        ("", "gradient messages", "count", "W-1"),
        ("", "gradient messages", "bytes", "(W-1)(1/W+1/100)"),
    ),
}
# A reader of a file takes a buffer at a time, whatever it wants.
BUFFERS = {("optimizer files", "bytes"): 4 * 8192,
           # On a busy machine a rank may be named as slow after each third of the MORE_STEPS records,
           # and waits for data once: a line and a lookup each, of which STEPS records have none.
           ("run folder", "lookups"): (MORE_STEPS // 3 + 1) / (MORE_STEPS - STEPS),
           ("run folder", "bytes"): 200 * (MORE_STEPS // 3 + 1) / (MORE_STEPS - STEPS)}


def subject_of(path, folders):
    """The kind of file, where it lies in one of the folders."""
    if path.name.startswith("optimizer-"):
        return "optimizer files"
    for name, folder in folders.items():
        if not path.is_relative_to(folder):
            continue
        if name == "run folder" and "ckpt" in path.parts:
            return "saved weights" if path.name.startswith("model.") else "checkpoint"
        if name.endswith("shards") and path.suffix != ".hdf5":
            return "manifests, vocabulary"
        return name
    return "manifests, vocabulary"


class RankGrowth(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data.train = cls.new_folder("shards")
        cls.data.prepare(cls.data.text, cls.data.train, "--duplication", 8, "--shards", SHARDS)
        cls.first = cls.new_folder("first")
        cls().train(cls.first, train__max_steps=1)
        cls.first = cls.first / "ckpt" / "step_00000001"
        cls.counts = {ranks: cls().count_phases(ranks) for ranks in RANKS}

    def count_phases(self, ranks):
        """Numbers of each phase by rank: (subject, what) to count."""
        folder = self.new_folder("short")
        start = self.measure(ranks, folder, STEPS, checkpoint__init=self.first)
        longer = self.measure(ranks, self.new_folder("long"), MORE_STEPS, checkpoint__init=self.first)
        for more, less in zip(longer, start):
            more.subtract(less)
            for key in more:
                more[key] /= MORE_STEPS - STEPS
        last = folder / "ckpt" / f"step_{STEPS:08}"
        resume = self.measure(ranks, folder, STEPS, checkpoint__resume=last)  # without a step
        auto = self.measure(ranks, folder, STEPS)
        return {"start": start, "step": longer, "resume": resume, "resume: auto": auto}

    def measure(self, ranks, folder, steps, **changes):
        output = self.new_folder("counts")
        output.mkdir()
        variables = {"LD_PRELOAD": COUNT_FILES, "COUNT_BELOW": self.scratch,
                     "COUNT_OUTPUT": output}
        options = [word for item in variables.items() for word in ("-x", "=".join(map(str, item)))]
        done = run(command(["train", *self.data.config(
            log__run_dir=folder, train__max_steps=steps, eval__every_samples=10**9,
            train__global_batch_seqs=SEQS_PER_RANK * ranks, optimizer__schedule_steps=MORE_STEPS,
            data__window_shards=SHARDS, **changes)], ranks, options), monitoring(output))
        self.assertEqual(done.code, 0, done)
        folders = {"run folder": folder, "first weights": self.first, "counts": output,
                   "training shards": self.data.train, "evaluation shards": self.data.eval}
        return [self.read_counts(output, rank, folders) for rank in range(ranks)]

    def read_counts(self, output, rank, folders):
        counts = collections.Counter()
        for line in (output / str(rank)).read_text().splitlines():
            *numbers, path = line.split(" ", 3)
            subject = subject_of(pathlib.Path(path), folders)
            for what, number in zip(("opens", "bytes", "lookups"), numbers):
                counts[subject, what] += int(number)
        for message in messages(output, rank):
            subject = "gradient messages" if message.is_own else "host messages"
            counts[subject, "bytes"] += message.bytes
            counts[subject, "count"] += message.count
        return counts

    def check(self, phase):
        for scope, subject, whats, law in GROWTH[phase]:
            for what in whats.split():
                self.check_growth(phase, scope, subject, what, law)

    def check_growth(self, phase, scope, subject, what, law):
        over_ranks = sum if scope == ALL else max
        found = {w: over_ranks(counts[subject, what] for counts in self.counts[w][phase])
                 for w in RANKS}
        name = law if isinstance(law, str) else law.__name__
        numbers = "".join(f"{number:10.0f}" for number in found.values())
        print(f"{phase:12} {subject:22} {what:8} {scope:4} {numbers}  {name}")
        for w, number in found.items():
            most = law(w) if callable(law) else (
                found[RANKS[0]] * LAWS[law](w) / LAWS[law](RANKS[0]) * SLACK)
            most += BUFFERS.get((subject, what), 0)
            self.assertLessEqual(number, most, f"{phase}: {what} of {subject} {scope}, by {name}: "
                                 f"{w} ranks, found {found}")

    def test_the_start_of_a_run(self):
        self.check("start")
        self.assertGreater(self.counts[2]["start"][0]["first weights", "opens"], 0)

    def test_a_resume(self):
        self.check("resume")

    def test_a_resume_from_the_newest_checkpoint(self):
        self.check("resume: auto")

    def test_a_step(self):
        self.check("step")


if __name__ == "__main__":
    main()
