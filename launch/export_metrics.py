#!/usr/bin/env python3
"""Copies the curves of a run to a CSV file, to Weights & Biases or to MLflow.

examples:
  launch/export_metrics.py runs/latest --csv metrics.csv
  launch/export_metrics.py runs/latest --wandb-offline DIR    then: wandb sync DIR/wandb/offline-run-*
  launch/export_metrics.py runs/latest --mlflow DIR
                         then: MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR

Needs no network. --wandb-offline needs the Python package wandb, --mlflow the package mlflow or
mlflow-skinny. Where a run was resumed below its last step, the later record of a step counts.
"""
import argparse
import csv
import json
import os
import pathlib
import sys

PREFIXES = {"step": "train", "eval": "eval"}
METRICS_PER_CALL = 1000  # the most that MLflow takes


def stop(code, sentence):
    print(f"export_metrics.py: {sentence}", file=sys.stderr)
    sys.exit(code)


def package(name, install):
    try:
        return __import__(name)
    except ImportError:
        stop(5, f"the Python package {name} is not installed; install it: pip install {install}")


def read_run(folder):
    """What metrics.jsonl says of the run, and its points: {step: {"train/loss": value, ...}}."""
    path = pathlib.Path(folder) / "metrics.jsonl"
    run, points = {}, {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        stop(4, f"{path}: cannot be read ({error.strerror}); give the folder of a run")
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            prefix = PREFIXES.get(record["kind"])
            place = {name: record[name] for name in ("samples", "time_ms")} if prefix else {}
            step = record["step"] if prefix else 0
        except (ValueError, KeyError, TypeError) as error:  # a killed run may leave one unfinished
            print(f"export_metrics.py: {path}, line {number}: left out, is no record of a run ({error})",
                  file=sys.stderr)
            continue
        if record["kind"] == "run":
            run = record
        if prefix is None:
            continue
        # A resumed run starts again below the last step written: what was after that is void.
        first_void = step if prefix == "train" else step + 1
        while points and next(reversed(points)) >= first_void:
            points.popitem()
        point = points.setdefault(step, {})
        point.update(place)
        point.update({f"{prefix}/{name}": value for name, value in record.items()
                      if name not in ("kind", "time_ms", "step", "samples") and value is not None})
    if not points:
        stop(4, f"{path}: holds no step and no evaluation; there is nothing to export")
    return run, points


def write_csv(points, path):
    names = sorted({name for point in points.values() for name in point} - {"samples", "time_ms"})
    columns = ["step", "samples", "time_ms", *names]
    replaceable = os.path.islink(path) or os.path.isfile(path) or not os.path.exists(path)
    if not replaceable or os.path.dirname(path) == "/dev":  # where root would lose it
        stop(4, f"{path}: is a device, a pipe or a folder, which a file cannot replace; name a file")
    partial = f"{path}.partial"
    try:
        with open(partial, "w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            for step, point in points.items():
                writer.writerow({"step": step, **point})
        os.replace(partial, path)
    except OSError as error:  # that of a full disk names no file
        pathlib.Path(partial).unlink(missing_ok=True)
        stop(4, f"{path}: cannot be written ({error.strerror}); give another place")


def write_wandb(run, points, folder):
    wandb = package("wandb", "wandb")
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    # The machine that exports is not the one that trained.
    settings = wandb.Settings(mode="offline", silent=True, console="off", x_disable_stats=True,
                              x_disable_meta=True, disable_git=True, save_code=False)
    copy = wandb.init(project="bertha", name=run.get("name"), dir=str(folder), config=run,
                      settings=settings)
    for step, point in points.items():
        copy.log(point, step=step)
    copy.finish()


def write_mlflow(run, points, folder):
    package("mlflow", "mlflow-skinny")
    # A folder of files serves every version; newer ones want to be told that it is meant.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    client = MlflowClient(tracking_uri=pathlib.Path(folder).resolve().as_uri())
    experiment = client.get_experiment_by_name("bertha")
    number = experiment.experiment_id if experiment else client.create_experiment("bertha")
    times = [point["time_ms"] for point in points.values()]
    copy = client.create_run(number, start_time=min(times), run_name=run.get("name")).info.run_id
    client.log_batch(copy, params=[Param(name, str(value)) for name, value in run.items()
                                   if name not in ("kind", "time_ms") and value != ""])
    metrics = [Metric(name, float(value), point["time_ms"], step)
               for step, point in points.items() for name, value in point.items()
               if name != "time_ms"]
    for first in range(0, len(metrics), METRICS_PER_CALL):
        client.log_batch(copy, metrics=metrics[first:first + METRICS_PER_CALL])
    client.set_terminated(copy, end_time=max(times))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="folder of a run, which holds metrics.jsonl")
    parser.add_argument("--csv", metavar="FILE", help="a row for each step")
    parser.add_argument("--wandb-offline", metavar="DIR", help="folder for an offline run of W&B")
    parser.add_argument("--mlflow", metavar="DIR", help="folder of an MLflow file store")
    options = parser.parse_args()
    if not (options.csv or options.wandb_offline or options.mlflow):
        parser.error("want at least one of --csv, --wandb-offline and --mlflow")
    run, points = read_run(options.run)
    try:
        if options.csv:
            write_csv(points, options.csv)
        if options.wandb_offline:
            write_wandb(run, points, options.wandb_offline)
        if options.mlflow:
            write_mlflow(run, points, options.mlflow)
    except OSError as error:
        stop(4, f"{error.filename or 'the copy'}: cannot be written ({error.strerror}); give another place")
    for place in filter(None, (options.csv, options.wandb_offline, options.mlflow)):
        print(f"{place}: {len(points)} steps of {options.run}")


if __name__ == "__main__":
    main()
