"""Benchmark logs for the tests of check and submit: one of a real run, and ways to change it."""

import json

from tool_case import ToolCase

TOKEN = ":::MLLOG "


class Log:
    """The lines of a log, to be broken."""

    def __init__(self, text):
        self.lines = text.splitlines()

    def text(self):
        return "".join(line + "\n" for line in self.lines)

    def at(self, key, last=False):
        found = [i for i, line in enumerate(self.lines) if f'"key": "{key}"' in line]
        return found[-1 if last else 0]

    def record(self, key, last=False):
        return json.loads(self.lines[self.at(key, last)].partition(TOKEN)[2])

    def without(self, key):
        self.lines = [line for line in self.lines if f'"key": "{key}"' not in line]
        return self

    def edited(self, key, last=False, **fields):
        """Fields of a record replaced; `...` takes a field out."""
        record = {**self.record(key, last), **fields}
        kept = {name: value for name, value in record.items() if value is not ...}
        self.lines[self.at(key, last)] = TOKEN + json.dumps(kept)
        return self

    def moved(self, key, before):
        line = self.lines.pop(self.at(key))
        self.lines.insert(self.at(before), line)
        return self

    def repeated(self, key, **fields):
        """The first record with this key once more, at the end and at its time."""
        fields = {"time_ms": json.loads(self.lines[-1].partition(TOKEN)[2])["time_ms"], **fields}
        self.lines.append(Log(self.lines[self.at(key)]).edited(key, **fields).lines[0])
        return self

    def glued(self, key):
        i = self.at(key)
        self.lines[i:i + 2] = [self.lines[i] + self.lines[i + 1]]
        return self

    def torn(self, key):
        self.lines[self.at(key)] = self.lines[self.at(key)][:-9]
        return self

    def cut(self, key):
        """Ends in the middle of this record, as a killed run's may."""
        self.lines[self.at(key):] = [self.lines[self.at(key)][:60]]
        return self

    def with_lines(self, *lines):
        self.lines += lines
        return self

    def accuracy(self, value):
        return self.edited("eval_accuracy", last=True, value=value)

    def init_minutes(self, minutes):
        begin = self.record("init_stop")["time_ms"] - minutes * 60_000
        return self.edited("init_start", time_ms=begin).edited("cache_clear", time_ms=begin)

    def as_run(self, seed, samples=2_500_000, batch_seqs=448, status="success", accuracy=0.7203,
               minutes=15.0, change=None):
        """One of ten runs at full size."""
        place = self.record("eval_accuracy", last=True)["metadata"]
        self.edited("eval_accuracy", last=True, value=accuracy, metadata={**place, "epoch_num": samples})
        stop_ms = self.record("run_start")["time_ms"] + int(minutes * 60_000)
        stop = self.record("run_stop")["metadata"]
        self.edited("run_stop", time_ms=stop_ms, metadata={**stop, "status": status})
        self.edited("global_batch_size", value=batch_seqs).edited("seed", value=seed)
        return change(self) if change else self


def ten(samples, batch_seqs=448, spread=40_000, runs=10, **changes):
    """Arguments of as_run() around a mean; `changes` are {number: {field: value}} as run_N=dict."""
    made = [dict(seed=100 + i, samples=samples + spread * (2 * i - runs + 1) // 2, batch_seqs=batch_seqs,
                 minutes=10 + (i * 7 % runs) * 0.25) for i in range(runs)]
    for name, fields in changes.items():
        made[int(name.removeprefix("run_"))].update(fields)
    return made


class MllogCase(ToolCase):
    """self.run_dir: a finished run of a small model; self.good: its log with the target reached."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_dir = cls.train("mlperf.division=closed")
        cls.real = cls.run_dir / "mllog" / "result_0.txt"
        cls.good = Log(cls.real.read_text()).accuracy(0.7202).text()
