"""metrics.jsonl as a run writes it: one object a line with "kind" (run, data, step, eval, event, stop).

A resumed run appends; what it did again replaces what stood there of the same steps. A killed process
may leave one unfinished line.
"""
import dataclasses
import json
import os
import pathlib
import stat

from bertha_tools.errors import DATA, Refused, warn
from bertha_tools.run_folder import printable

FILE_NAME = "metrics.jsonl"


@dataclasses.dataclass
class Metrics:
    path: pathlib.Path
    run: dict = dataclasses.field(default_factory=dict)     # of the newest start
    data: dict = dataclasses.field(default_factory=dict)
    steps: list = dataclasses.field(default_factory=list)   # records in step order
    evals: list = dataclasses.field(default_factory=list)
    events: list = dataclasses.field(default_factory=list)  # of all starts
    stop: dict | None = None                                # none: it goes on, or was killed
    first_step: int = 0                                     # above 0 where the file begins with a resume
    last_time_ms: int = 0
    unreadable_lines: int = 0

    def take(self, record):
        kind = record["kind"]
        self.last_time_ms = max(self.last_time_ms, whole(record.get("time_ms", 0)))
        if kind == "run":
            if not self.run:
                self.first_step = whole(record.get("first_step", 0))
            self.run, self.stop = record, None
        elif kind == "data":
            self.data = record
        elif kind == "step":
            place(record)
            drop_from(self.steps, record["step"])
            drop_from(self.evals, record["step"] + 1)  # an evaluation comes after its step
            self.steps.append(record)
        elif kind == "eval":
            place(record)
            drop_from(self.evals, record["step"])
            self.evals.append(record)
        elif kind == "event":
            self.events.append(record)
        elif kind == "stop":
            self.stop = record


def whole(value):
    """A whole number in 64 bits: readers compute with it."""
    number = int(value)
    if abs(number) >= 2**63:
        raise ValueError(f"{value} is too large")
    return number


def place(record):
    """Makes the place of a record in the run whole numbers."""
    record["step"], record["samples"] = whole(record["step"]), whole(record["samples"])


def drop_from(records, step):
    while records and records[-1]["step"] >= step:
        records.pop()


class Follower:
    """A file that may still be written: each look reads what was appended, up to the last whole line.

    A file that was replaced or cut is read anew.
    """

    def __init__(self, path):
        self.metrics = Metrics(pathlib.Path(path))
        self.inode = None
        self.read_bytes = 0

    def look(self):
        path = self.metrics.path
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
                raise OSError(0, "not a file")
            with open(path, "rb") as file:
                if self.inode != status.st_ino or status.st_size < self.read_bytes:
                    self.metrics, self.inode, self.read_bytes = Metrics(path), status.st_ino, 0
                file.seek(self.read_bytes)
                lines, newline, _ = file.read().rpartition(b"\n")
        except OSError as error:
            raise Refused(DATA, f"{printable(path)}: cannot be read ({error.strerror}); give the "
                                "folder of a run") from None
        self.read_bytes += len(lines) + len(newline)
        for line in filter(None, lines.split(b"\n")):
            try:
                self.metrics.take(json.loads(line))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                self.metrics.unreadable_lines += 1
        return self.metrics


def path_of(run):
    """The file of a run folder, or the file itself."""
    path = pathlib.Path(run)
    is_file = os.path.exists(path) and not os.path.isdir(path)
    return path if is_file else path / FILE_NAME


def read(run):
    """Of a run folder or a metrics.jsonl, with a warning for lines that are no record."""
    metrics = Follower(path_of(run)).look()
    if metrics.unreadable_lines:
        warn(f"{printable(metrics.path)}: {metrics.unreadable_lines} lines are no record of a run "
             "and are left out")
    if not (metrics.run or metrics.steps or metrics.evals):
        raise Refused(DATA, f"{printable(metrics.path)}: contains no record of a run; give the folder "
                            "of a run")
    return metrics
