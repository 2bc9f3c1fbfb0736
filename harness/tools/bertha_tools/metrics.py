"""metrics.jsonl as a run writes it: an object a line, of kind run, data, step, eval, event or stop.

A resumed run appends; what it did again replaces what stood there of the same steps. A killed
process may leave one unfinished line. Any field of a record may be missing or odd: it is read with
number(), count_of() and text().
"""
import dataclasses
import json
import math
import pathlib

from bertha_tools.errors import DATA, Refused, warn

FILE_NAME = "metrics.jsonl"
MOST_LINE_BYTES = 1 << 20


@dataclasses.dataclass
class Metrics:
    path: pathlib.Path
    run: dict = dataclasses.field(default_factory=dict)     # of the newest start
    data: dict = dataclasses.field(default_factory=dict)
    steps: list = dataclasses.field(default_factory=list)   # records in step order
    evals: list = dataclasses.field(default_factory=list)
    events: list = dataclasses.field(default_factory=list)  # of all starts
    stop: dict | None = None                                # None: it is running, or was killed
    first_step: int = 0                                     # above 0 if it begins with a resume
    last_time_ms: int = 0
    unreadable_lines: int = 0

    def take(self, record):
        kind = record["kind"]
        self.last_time_ms = max(self.last_time_ms, whole(record.get("time_ms", 0)))
        if kind in ("step", "eval"):
            record |= {name: whole(record[name]) for name in ("step", "samples")}
            drop_from(self.evals, record["step"] + (kind == "step"))  # it comes after its step
        if kind == "run":
            if not self.run:
                self.first_step = whole(record.get("first_step", 0))
            self.run, self.stop = record, None
        elif kind == "data":
            self.data = record
        elif kind == "step":
            drop_from(self.steps, record["step"])
            self.steps.append(record)
        elif kind == "eval":
            self.evals.append(record)
        elif kind == "event":
            self.events.append(record)
        elif kind == "stop":
            self.stop = record

    @property
    def target(self):
        """The accuracy to reach; 0 without one. A target may depend on the data of a start."""
        of_run = number(self.run, "target_accuracy", 0)
        is_current = number(self.data, "time_ms", 0) >= number(self.run, "time_ms", 0)
        return max(0.0, number(self.data, "target_accuracy", of_run) if is_current else of_run)

    def warn_of_unreadable_lines(self):
        if self.unreadable_lines:
            warn(f"{self.path}: {self.unreadable_lines} lines are not records of a run and are left "
                 "out")


def whole(value):
    """A whole number in 64 bits: readers compute with it."""
    count = int(value)
    if abs(count) >= 2**63:
        raise ValueError(f"{value} is too large")
    return count


def drop_from(records, step):
    while records and records[-1]["step"] >= step:
        records.pop()


def number(record, name, otherwise=math.nan):
    """A figure of a record; `otherwise` if it is not a number."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    try:
        return float(value)
    except OverflowError:
        return math.inf


def count_of(record, name):
    value = number(record, name, 0)
    return int(value) if abs(value) < 2**63 else 0


def text(record, name):
    value = record.get(name)
    return value if isinstance(value, str) else ""


class Follower:
    """A file that may still be written: each look reads what was appended, up to the last whole
    line. A file that was replaced or cut is read anew.
    """

    def __init__(self, run):
        """run: its folder, or the file itself."""
        path = pathlib.Path(run)
        is_file = path.exists() and not path.is_dir()
        self.metrics = Metrics(path if is_file else path / FILE_NAME)
        self.inode = None
        self.read_bytes = 0

    def look(self):
        path = self.metrics.path
        try:
            status = path.stat()
            if not path.is_file():  # reading a pipe would block
                raise OSError(0, "not a file")
            if self.inode != status.st_ino or status.st_size < self.read_bytes:
                self.metrics, self.inode, self.read_bytes = Metrics(path), status.st_ino, 0
            with open(path, "rb") as file:
                file.seek(self.read_bytes)
                while (line := file.readline(MOST_LINE_BYTES)).endswith(b"\n"):
                    self.read_bytes += len(line)
                    self.take(line)
        except OSError as error:
            raise Refused(DATA, f"{path}: cannot be read ({error.strerror}); give the folder of a "
                                "run") from None
        if len(line) == MOST_LINE_BYTES:
            raise Refused(DATA, f"{path}: contains a line of more than {MOST_LINE_BYTES} bytes, "
                                "which no run writes; give another run")
        return self.metrics

    def take(self, line):
        if line == b"\n":
            return
        try:
            self.metrics.take(json.loads(line))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self.metrics.unreadable_lines += 1


def read(run):
    """Reads a run folder or a metrics.jsonl and warns of lines that are not records."""
    metrics = Follower(run).look()
    metrics.warn_of_unreadable_lines()
    if not (metrics.run or metrics.steps or metrics.evals):
        raise Refused(DATA, f"{metrics.path}: contains no record of a run; give a run's folder")
    return metrics
