"""metrics.jsonl as a run writes it: one object a line with "kind" (run, data, step, eval, event, stop).

A resumed run appends; what it did again replaces what stood there of the same steps. A killed process
may leave one unfinished line.
"""
import dataclasses
import json
import pathlib

from bertha_tools.errors import DATA, Refused, warn

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
        self.last_time_ms = max(self.last_time_ms, int(record["time_ms"]))
        if kind == "run":
            if not self.run:
                self.first_step = int(record.get("first_step", 0))
            self.run, self.stop = record, None
        elif kind == "data":
            self.data = record
        elif kind == "step":
            drop_from(self.steps, int(record["step"]))
            drop_from(self.evals, int(record["step"]))
            self.steps.append(record)
        elif kind == "eval":
            drop_from(self.evals, int(record["step"]))
            self.evals.append(record)
        elif kind == "event":
            self.events.append(record)
        elif kind == "stop":
            self.stop = record


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
            with open(path, "rb") as file:
                status = path.stat()
                if self.inode != status.st_ino or status.st_size < self.read_bytes:
                    self.metrics, self.inode, self.read_bytes = Metrics(path), status.st_ino, 0
                file.seek(self.read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError as error:
            raise Refused(DATA, f"{path}: cannot be read ({error.strerror}); give the folder of a run") \
                from None
        self.read_bytes += len(whole) + len(newline)
        for line in whole.split(b"\n") if whole else ():
            try:
                self.metrics.take(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError):
                self.metrics.unreadable_lines += 1
        return self.metrics


def path_of(run):
    """The file of a run folder, or the file itself."""
    path = pathlib.Path(run)
    return path / FILE_NAME if path.is_dir() or path.name != FILE_NAME else path


def read(run):
    """Of a run folder or a metrics.jsonl, with a warning for lines that are no record."""
    metrics = Follower(path_of(run)).look()
    if metrics.unreadable_lines:
        warn(f"{metrics.path}: {metrics.unreadable_lines} lines are no record of a run and are left out")
    if not (metrics.run or metrics.steps or metrics.evals):
        raise Refused(DATA, f"{metrics.path}: holds no record of a run; give the folder of a run")
    return metrics
