"""Copies the curves of a run to a CSV file, to Weights & Biases or to MLflow, also while it trains.

A value of a record that is not a number is left out. If a run was resumed below its last step, the
later record of a step counts; a copy that follows the run has already sent the earlier one.
"""
import contextlib
import csv
import functools
import importlib
import io
import os
import pathlib
import re
import time
import typing

from bertha_tools.errors import (DATA, ENVIRONMENT, SUCCESS, TARGET_MISSED, USAGE, Refused,
                                 warn)
from bertha_tools.metrics import Follower, path_of
from bertha_tools.run_folder import make_folder, number, printable, text, write_whole
from bertha_tools.watch import LOST, is_locked, state_of

DESCRIPTION = "Copies the curves of a run to CSV, Weights & Biases or MLflow, also while it trains."
EXAMPLES = (
    "bertha-tools export runs/latest --csv metrics.csv",
    "bertha-tools export runs/latest --follow --wandb DIR",
    "bertha-tools export runs/latest --wandb-offline DIR",
    "             then: wandb sync DIR/wandb/offline-run-*",
    "bertha-tools export runs/latest --follow --mlflow http://server:5000",
    "bertha-tools export runs/latest --mlflow DIR",
    "             then: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR")
METRICS_PER_CALL = 1000  # the most that MLflow accepts
PLACE_NAMES = ("kind", "time_ms", "step", "samples")


class Point(typing.NamedTuple):
    step: int
    samples: int
    time_ms: int
    values: dict  # {"train/loss": 6.5}


def add_arguments(parser):
    parser.add_argument("run", metavar="RUN", help="folder of a run, which holds metrics.jsonl")
    parser.add_argument("--csv", metavar="FILE", help="a row for each step")
    parser.add_argument("--wandb", metavar="DIR",
                        help="send to Weights & Biases after `wandb login`; DIR keeps its files")
    parser.add_argument("--wandb-offline", metavar="DIR", help="folder of an offline run of W&B")
    parser.add_argument("--mlflow", metavar="PLACE", help="folder of a file store, or tracking URI")
    parser.add_argument("--follow", action="store_true", help="go on until the run has stopped")
    parser.add_argument("--every", metavar="SECONDS", type=float, default=5,
                        help="with --follow: time between looks (default %(default)s)")


def point_of(prefix, record):
    """Names are those that a run writes; services refuse others."""
    values = {f"{prefix}/{name}": value for name, value in record.items()
              if name not in PLACE_NAMES and re.fullmatch(r"\w+", name, re.ASCII)
              and abs(number(record, name)) < float("inf")}
    return Point(record["step"], record["samples"], int(number(record, "time_ms", 0)), values)


def points_of(metrics, last):
    """In the order of the run, those after the last steps that were sent."""
    found = [(record["step"], 0, point_of("train", record)) for record in metrics.steps
             if record["step"] > last["train"]]
    # A step that was trained again has no evaluation yet.
    trained = {record["step"]: number(record, "time_ms", 0) for record in metrics.steps}
    found += [(record["step"], 1, point_of("eval", record)) for record in metrics.evals
              if record["step"] > last["eval"]
              and number(record, "time_ms", 0) >= trained.get(record["step"], 0)]
    return [point for _, _, point in sorted(found, key=lambda one: one[:2])]


def settings_of(run):
    """What the run says of itself."""
    return {name: value for name, value in run.items()
            if name not in ("kind", "time_ms") and re.fullmatch(r"\w+", name, re.ASCII)
            and isinstance(value, (str, int, float)) and value != ""}


def package(name, install):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Refused(ENVIRONMENT, f"the Python package {name} is not installed; install it: pip "
                      f"install {install}") from None


@contextlib.contextmanager
def sentences(place):
    """What a service's package raises, as a sentence."""
    try:
        yield
    except Refused:
        raise
    except OSError as error:
        raise Refused(DATA, f"{printable(error.filename or place)}: cannot be written "
                      f"({error.strerror}); give another place") from None
    except Exception as error:  # each package has its own classes
        raise Refused(ENVIRONMENT, f"{printable(place)}: {type(error).__name__}: "
                      f"{printable(' '.join(str(error).split()))}; check the place and its "
                      "server") from None


def output_folder(path):
    """A folder whose entries are not links, which would lead the files of a service elsewhere."""
    make_folder(path)
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise Refused(DATA, f"{printable(entry.path)}: is a link, and files are written to "
                              "this folder alone; remove the link, or choose another folder")
    return str(path)


class Csv:
    def __init__(self, path, run):
        self.place, self.rows = path, {}

    def add(self, points):
        for point in points:
            row = self.rows.setdefault(point.step, {"step": point.step})
            row.update(samples=point.samples, time_ms=point.time_ms, **point.values)

    def finish(self, status):
        places = ("step", "samples", "time_ms")
        names = sorted({name for row in self.rows.values() for name in row} - set(places))
        table = io.StringIO()
        writer = csv.DictWriter(table, [*places, *names], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows.values())
        write_whole(self.place, table.getvalue().encode())


class Wandb:
    def __init__(self, folder, run, mode="online"):
        self.place = folder
        wandb = package("wandb", "wandb")
        # The machine that exports is not the one that trained.
        settings = wandb.Settings(mode=mode, silent=True, console="off", x_disable_stats=True,
                                  x_disable_meta=True, disable_git=True, save_code=False)
        self.copy = wandb.init(project="bertha", name=text(run, "name") or None, settings=settings,
                               dir=output_folder(folder), config=settings_of(run))

    def add(self, points):
        for point in points:
            place = {"samples": point.samples, "time_ms": point.time_ms}
            self.copy.log({**place, **point.values}, step=point.step)

    def finish(self, status):
        self.copy.finish(exit_code=0 if status == "FINISHED" else 1)


class Mlflow:
    def __init__(self, place, run):
        self.place, self.last_ms = place, None
        package("mlflow", "mlflow-skinny")
        # A folder of files serves every version; newer ones want to be told that it is meant.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param
        address = place if "://" in place else pathlib.Path(output_folder(place)).resolve().as_uri()
        self.client = MlflowClient(tracking_uri=address)
        experiment = self.client.get_experiment_by_name("bertha")
        of = experiment.experiment_id if experiment else self.client.create_experiment("bertha")
        start = int(number(run, "time_ms", 0)) or None
        self.copy = self.client.create_run(of, start_time=start,
                                           run_name=text(run, "name") or None).info.run_id
        self.client.log_batch(self.copy, params=[Param(name, str(value)[:500])
                                                 for name, value in settings_of(run).items()])

    def add(self, points):
        from mlflow.entities import Metric
        found = [Metric(name, float(value), point.time_ms, point.step) for point in points
                 for name, value in {"samples": point.samples, **point.values}.items()]
        for first in range(0, len(found), METRICS_PER_CALL):
            self.client.log_batch(self.copy, metrics=found[first:first + METRICS_PER_CALL])
        self.last_ms = points[-1].time_ms if points else self.last_ms

    def finish(self, status):
        self.client.set_terminated(self.copy, status=status, end_time=self.last_ms)


SERVICES = {"csv": Csv, "wandb": Wandb, "mlflow": Mlflow,
            "wandb_offline": functools.partial(Wandb, mode="offline")}
REQUEUE = 75  # exit code of a run that has saved a checkpoint and stopped
# The status in MLflow by the exit code of the run.
STATUS = {SUCCESS: "FINISHED", TARGET_MISSED: "FINISHED", REQUEUE: "KILLED", LOST: "KILLED"}


class Copies:
    """The copies of a run, which begin with its first step or evaluation."""

    def __init__(self, places):
        self.places, self.services, self.points = places, [], 0
        self.last = {"train": -1, "eval": -1}  # steps sent

    def send(self, metrics):
        points = points_of(metrics, self.last)
        if points and not self.services:
            for name, place in self.places.items():
                with sentences(place):
                    self.services.append(SERVICES[name](place, metrics.run))
        for service in self.services:
            with sentences(service.place):
                service.add(points)
        for kind, records in (("train", metrics.steps), ("eval", metrics.evals)):
            self.last[kind] = max([self.last[kind], *(record["step"] for record in records[-1:])])
        self.points += len({point.step for point in points})

    def finish(self, status):
        for service in self.services:
            with sentences(service.place):
                service.finish(status)


def run(options):
    places = {name: getattr(options, name) for name in SERVICES if getattr(options, name)}
    if not places or not 0 < options.every < 1e6:
        raise Refused(USAGE, "want at least one of --csv, --wandb, --wandb-offline and --mlflow, "
                      "and --every above 0")
    path = path_of(options.run)
    follower, copies, status = Follower(path), Copies(places), "KILLED"
    try:
        goes_on = True
        while goes_on:
            # In this order: a run that ends meanwhile has written its last record.
            locked = is_locked(path.parent)
            metrics = follower.look()
            copies.send(metrics)
            _, goes_on, code = state_of(metrics, locked, 1000 * time.time())
            if not options.follow:
                break
            if goes_on:
                time.sleep(options.every)
        status = STATUS.get(code, "FAILED")
    finally:
        copies.finish(status)
    if metrics.unreadable_lines:
        warn(f"{printable(path)}: {metrics.unreadable_lines} lines are no record of a run and are "
             "left out")
    if not copies.services:
        raise Refused(DATA, f"{printable(path)}: holds no step and no evaluation; there is nothing "
                      "to export")
    for place in places.values():
        print(f"{printable(place)}: {copies.points} steps of {printable(options.run)}")
    return 0
