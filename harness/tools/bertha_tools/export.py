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

from bertha_tools.errors import (DATA, ENVIRONMENT, REQUEUE, SUCCESS, TARGET_MISSED, USAGE, Refused,
                                 say, shortened, within)
from bertha_tools.metrics import Follower, number, text
from bertha_tools.output import write_whole
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
METRICS_PER_CALL = 1000  # MLflow's maximum
PLACES = ("step", "samples", "time_ms")
# The status in MLflow by the exit code of the run; another code is a failure.
STATUS = {SUCCESS: "FINISHED", TARGET_MISSED: "FINISHED", REQUEUE: "KILLED", LOST: "KILLED"}


def add_arguments(parser):
    parser.add_argument("run", metavar="RUN", help="run folder, which contains metrics.jsonl")
    parser.add_argument("--csv", metavar="FILE", help="a row for each step")
    parser.add_argument("--wandb", metavar="DIR",
                        help="send to Weights & Biases after `wandb login`; DIR keeps its files")
    parser.add_argument("--wandb-offline", metavar="DIR", help="folder of an offline run of W&B")
    parser.add_argument("--mlflow", metavar="PLACE", help="folder of a file store, or tracking URI")
    parser.add_argument("--follow", action="store_true", help="continue until the run has stopped")
    parser.add_argument("--every", metavar="SECONDS", type=within(0.01, 1e6, float), default=5,
                        help="with --follow: time between polls (default %(default)s)")


def fields_of(record, *without):
    """Fields with names that a run writes; services refuse other names."""
    return {name: value for name, value in record.items()
            if name not in ("kind", *without) and re.fullmatch(r"\w+", name, re.ASCII)}


def points_of(metrics, last):
    """{"step": 1, "samples": 8, "time_ms": 2000, "train/loss": 6.5} in the order of the run, of the
    steps after the last ones that were sent.
    """
    # A step that was trained again has no evaluation yet.
    trained = {record["step"]: number(record, "time_ms", 0) for record in metrics.steps}
    found = [(record, "train") for record in metrics.steps if record["step"] > last["train"]]
    found += [(record, "eval") for record in metrics.evals if record["step"] > last["eval"]
              and number(record, "time_ms", 0) >= trained.get(record["step"], 0)]
    for record, prefix in sorted(found, key=lambda one: one[0]["step"]):  # an evaluation is last
        values = {f"{prefix}/{name}": value for name, value in fields_of(record, *PLACES).items()
                  if abs(number(record, name)) < float("inf")}
        yield {"step": record["step"], "samples": record["samples"],
               "time_ms": int(number(record, "time_ms", 0)), **values}


def settings_of(run):
    """The run's description of itself."""
    return {name: value for name, value in fields_of(run, "time_ms").items()
            if isinstance(value, (str, int, float)) and value != ""}


def package(name, install):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Refused(ENVIRONMENT, f"the Python package {name} is not installed; install it: pip "
                      f"install {install}") from None


@contextlib.contextmanager
def sentences(place):
    """Converts an exception of a service's package to a message."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:  # each package has its own classes
        raise Refused(DATA if isinstance(error, OSError) else ENVIRONMENT,
                      f"{place}: {type(error).__name__}: {shortened(' '.join(str(error).split()))};"
                      " check the location and its server") from None


def output_folder(path):
    """A folder whose entries are not links, which would redirect the files of a service."""
    os.makedirs(path, exist_ok=True)
    for entry in pathlib.Path(path).iterdir():
        if entry.is_symlink():
            raise Refused(DATA, f"{entry}: is a link, but files are written only to this folder; "
                                "remove the link, or choose another folder")
    return path


class Csv:
    def __init__(self, path, run):
        self.place, self.rows = path, {}

    def add(self, points):
        for point in points:
            self.rows.setdefault(point["step"], {}).update(point)

    def finish(self, status):
        names = sorted({name for row in self.rows.values() for name in row} - set(PLACES))
        table = io.StringIO()
        writer = csv.DictWriter(table, [*PLACES, *names], lineterminator="\n")
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
            self.copy.log({name: value for name, value in point.items() if name != "step"},
                          step=point["step"])

    def finish(self, status):
        self.copy.finish(exit_code=0 if status == "FINISHED" else 1)


class Mlflow:
    def __init__(self, place, run):
        self.place, self.last_ms = place, None
        package("mlflow", "mlflow-skinny")
        # A folder of files works with every version; newer ones require this confirmation.
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
        found = [Metric(name, float(value), point["time_ms"], point["step"]) for point in points
                 for name, value in point.items() if name not in ("step", "time_ms")]
        for first in range(0, len(found), METRICS_PER_CALL):
            self.client.log_batch(self.copy, metrics=found[first:first + METRICS_PER_CALL])
        self.last_ms = points[-1]["time_ms"] if points else self.last_ms

    def finish(self, status):
        self.client.set_terminated(self.copy, status=status, end_time=self.last_ms)


SERVICES = {"csv": Csv, "wandb": Wandb, "mlflow": Mlflow,
            "wandb_offline": functools.partial(Wandb, mode="offline")}


class Copies:
    """The copies of a run, which begin with its first step or evaluation."""

    def __init__(self, places):
        self.places, self.services, self.steps = places, [], set()
        self.last = {"train": -1, "eval": -1}  # steps sent

    def send(self, metrics):
        points = list(points_of(metrics, self.last))
        if points and not self.services:
            for name, place in self.places.items():
                with sentences(place):
                    self.services.append(SERVICES[name](place, metrics.run))
        for service in self.services:
            with sentences(service.place):
                service.add(points)
        for kind, records in (("train", metrics.steps), ("eval", metrics.evals)):
            self.last[kind] = max([self.last[kind], *(record["step"] for record in records[-1:])])
        self.steps |= {point["step"] for point in points}

    def finish(self, status):
        for service in self.services:
            with sentences(service.place):
                service.finish(status)


def run(options):
    places = {name: getattr(options, name) for name in SERVICES if getattr(options, name)}
    if not places:
        raise Refused(USAGE, "want at least one of --csv, --wandb, --wandb-offline and --mlflow")
    follower, copies, status = Follower(options.run), Copies(places), "KILLED"
    try:
        goes_on = True
        while goes_on:
            # In this order: a run that ends meanwhile has written its last record.
            locked = is_locked(follower.metrics.path.parent)
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
    metrics.warn_of_unreadable_lines()
    if not copies.services:
        raise Refused(DATA, f"{metrics.path}: contains no step and no evaluation; there is nothing to "
                            "export")
    for place in places.values():
        say(f"{place}: {len(copies.steps)} steps of {options.run}")
    return SUCCESS
