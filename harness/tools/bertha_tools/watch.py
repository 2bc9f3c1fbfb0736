"""Shows a run in the terminal while it trains, only from the files in its folder.

Whether the run is live is read from its lock, which only its process can hold: a shared lock
that is not waited for, and given back at once, disturbs no run and needs no permission to write. A
folder whose lock cannot be read is judged by the age of its last record.
"""
import fcntl
import itertools
import math
import os
import pathlib
import statistics
import textwrap
import time

from bertha_tools import diagnose
from bertha_tools import metrics as records
from bertha_tools.errors import (INTERNAL, NUMERIC, REQUEUE, SUCCESS, TARGET_MISSED, printable,
                                 within)
from bertha_tools.metrics import count_of, number, text
from bertha_tools.output import counted, duration, exponent, fixed, memory, scaled

DESCRIPTION = "Shows a run while it trains: curves, speed, ranks, alarms, time left."
EXAMPLES = ("bertha-tools watch", "bertha-tools watch runs/quickstart",
            "bertha-tools watch runs/quickstart --once",
            "ssh -t login bertha-tools watch /runs/a")
LOST = 137  # the exit code for a process that ended without a record
ENDINGS = {SUCCESS: "ended as planned", TARGET_MISSED: "ended without reaching the target",
           REQUEUE: "checkpoint saved and stopped; rerun the command to resume",
           NUMERIC: "stopped: its numbers were not finite"}
LEAST_SILENCE_MS = 600_000  # without a lock, a run is over after this time without a record,
SILENT_INTERVALS = 10       # and after as many times the longest one between two records
NAME_COLUMNS = 12
BARS = "▁▂▃▄▅▆▇█"


def is_locked(folder):
    """Whether a process holds the lock of a run folder; None if that cannot be seen."""
    try:
        # Non-blocking, because opening a pipe instead of the lock would wait.
        lock = os.open(pathlib.Path(folder) / "run.lock", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others may watch, too
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(lock)


def is_silent(metrics, now_ms):
    """Whether the last record is much older than records of this run are apart."""
    times = sorted(number(one, "time_ms", 0) for one in metrics.steps + metrics.evals)
    longest = max((b - a for a, b in itertools.pairwise(times)), default=0)
    return now_ms - metrics.last_time_ms > max(LEAST_SILENCE_MS, SILENT_INTERVALS * longest)


def state_of(metrics, locked, now_ms):
    """(text, whether the run is live, its exit code). locked: observed before reading the records,
    because a run that ends in between has then written its last record."""
    if metrics.stop and not locked:
        success = metrics.stop.get("status") == "success"
        code = number(metrics.stop, "exit_code", SUCCESS if success else TARGET_MISSED)
        code = int(code) if 0 <= code < 256 else INTERNAL
        return ENDINGS.get(code, f"stopped with exit code {code}"), False, code
    if locked is False:
        return "its process ended without a recorded reason; see logs/ in its folder", False, LOST
    if locked is None and is_silent(metrics, now_ms):
        return "its records have stopped, and its lock is unreadable; see logs/", False, LOST
    return "running", True, SUCCESS


def crossing(x, y, target):
    """(low, middle, high) of where the least-squares line through five points reaches the target;
    None unless its slope is three times its standard error, which is a correlation of 0.866."""
    if not statistics.correlation(x, y) > 0.866:
        return None
    slope, base = statistics.linear_regression(x, y)
    at = (target - base) / slope
    deviation = math.sqrt(sum((b - base - slope * a) ** 2 for a, b in zip(x, y)) / 3)
    # Twice the error of the line there, and the scatter of the evaluation that has to reach it.
    away = (at - statistics.fmean(x)) / (2 * statistics.stdev(x))
    error = deviation * (1 + 2 * math.hypot(math.sqrt(0.2), away)) / slope
    return at - error, at, at + error


def samples_to_target(evals, target):
    """(low, middle, high): samples from the last evaluation to the target, if the curve continues.

    Of the last five evaluations a straight line gives the lower end, a line over -1 / samples,
    which bends as learning curves do, the rest. None while there are fewer, while the rise is not
    clear or breaks off, and when the target is further away than twice what these evaluations
    span. On the published runs, 98 of 100 ranges contained the evaluation that reached the target.
    """
    x = [float(one["samples"]) for one in evals[-5:]]
    y = [number(one, "mlm_accuracy") for one in evals[-5:]]
    bent = [-1 / one for one in x if one > 0]
    rises = len(bent) == 5 and all(a < b for a, b in itertools.pairwise(bent))
    if not rises or not all(0 <= one <= 1 for one in y) or not y[4] < target:
        return None
    early, late = (y[2] - y[0]) / (x[2] - x[0]), (y[4] - y[2]) / (x[4] - x[2])
    if not (y[2] - y[0] > 1e-9 and late > 0.4 * early):
        return None
    line, curve = crossing(x, y, target), crossing(bent, y, target)
    if not (line and curve):
        return None
    middle, high = (-1 / one if one < 0 else math.inf for one in curve[1:])
    middle, high = max(middle - x[4], 0), max(high, line[2]) - x[4]
    furthest = 2 * (x[4] - x[0])
    if not (middle <= furthest and high <= 3 * furthest):
        return None
    return min(max(line[0] - x[4], 0), middle), middle, max(high, middle)


def time_to_target(metrics):
    """The same in time from the last step on, at its speed and with evaluations as before."""
    left, last = samples_to_target(metrics.evals, metrics.target), metrics.steps[-1]
    speed = number(last, "seqs_per_second")
    if not left or not speed > 0:
        return ""
    before, newest = metrics.evals[-2:]
    interval = newest["samples"] - before["samples"]
    each = 1 / speed + number(newest, "seconds", 0) / interval
    done = last["samples"] - newest["samples"]
    low, middle, high = (duration(max(samples - done, 0) * each) for samples in left)
    return middle if low == high else f"{middle} ({low} to {high})"


def percent(share):
    return f"{fixed(100 * share, 0)} %"


def three(value):
    return fixed(value, 3)


def milliseconds(value):
    return f"{fixed(value, 1 if abs(value) < 9.95 else 0)} ms"


def some(count, noun):
    return f"{scaled(count)} {noun}{'s' * (count != 1)}"


def grouped(value):
    return f"{value:,.0f}"


def filled_in(record, *fields):
    """Texts from (words, name of the figure, function that writes it). With a question mark after
    its name, a figure is left out unless it is known and above 0."""
    return [words.format(said(number(record, name.rstrip("?")))) for words, name, said in fields
            if not name.endswith("?") or number(record, name[:-1]) > 0]


def progress(metrics, goes_on, columns):
    if not metrics.steps:
        return ["no step yet"]
    last, most = metrics.steps[-1], count_of(metrics.run, "max_steps")
    share = min(max(last["step"] / most, 0), 1) if most > 0 else 0
    cells = 10 if columns < 100 else 20
    bar = "█" * int(share * cells)
    left = max(most - last["step"], 0) * number(last, "step_ms") / 1e3
    target = time_to_target(metrics) if goes_on else ""
    return [f"step {last['step']:,} of {most:,}", f"{bar.ljust(cells, '░')} {percent(share)}",
            counted(last["samples"], "sample"), f"end in {duration(left)}" if goes_on else "",
            f"target in {target}" if target else ""]


def evaluation(metrics):
    if not metrics.evals:
        return ["none yet"]
    wanted = f", target {fixed(metrics.target, 4)}" if metrics.target else ""
    return filled_in(metrics.evals[-1],
                     ("accuracy {}" + wanted, "mlm_accuracy", lambda value: fixed(value, 4)),
                     ("mlm loss {}", "mlm_loss", three),
                     ("nsp accuracy {}", "nsp_accuracy?", three),
                     ("at step {}", "step", grouped),
                     ("{} s", "seconds", lambda seconds: fixed(seconds, 1)))


def last_step(metrics):
    """[(name, fields)] of the newest step record."""
    last, ranks = metrics.steps[-1], count_of(metrics.run, "world_size")
    step_ms, slowest = number(last, "step_ms"), number(last, "slowest_rank_compute_ms")
    peak = number(metrics.run, "peak_flops_per_second", 0) or math.nan

    def with_share(ms):
        return f"{milliseconds(ms)}, {percent(ms / (step_ms or math.nan))}"

    yield "training", filled_in(
        last, ("mlm loss {}", "mlm_loss", three), ("accuracy {}", "mlm_accuracy", three),
        ("nsp loss {}", "nsp_loss?", three), ("learning rate {}", "learning_rate", exponent),
        ("gradient norm {}", "gradient_norm", scaled),
        ("{} skipped", "skipped_steps?", lambda count: some(count, "update")),
        ("{} of the norm", "spikes?", lambda count: some(count, "spike")))
    yield "evaluation", evaluation(metrics)
    yield "speed", filled_in(
        {**last, "mfu": number(last, "flops_per_second") / peak},
        ("{} sequences/s", "seqs_per_second", scaled), ("{} tokens/s", "tokens_per_second", scaled),
        ("{} per step", "step_ms", milliseconds), ("MFU {}", "mfu?", percent),
        ("{} watts", "power_watts?", scaled),
        (f"{'lowest ' * (ranks > 1)}clock {{}} MHz", "lowest_sm_mhz?", grouped),
        ("{} of device memory", "memory_bytes?", memory))
    yield "a step", filled_in(
        last, ("waiting for data {}", "data_wait_ms", with_share),
        ("forward {}", "forward_ms", with_share), ("backward {}", "backward_ms", with_share),
        ("communication {}", "communication_ms", with_share),
        ("optimizer {}", "optimizer_ms", with_share))
    if ranks > 1 and slowest > 0:
        yield "ranks", [
            f"forward + backward longest on rank {count_of(last, 'slowest_rank')}: "
            f"{milliseconds(slowest)}, the others "
            f"{milliseconds(number(last, 'other_ranks_compute_ms'))}",
            f"data waited for longest by rank {count_of(last, 'longest_waiting_rank')}: "
            f"{milliseconds(number(last, 'longest_data_wait_ms'))}, mean "
            f"{milliseconds(number(last, 'mean_data_wait_ms'))}"]


def curve_line(label, found, field, columns):
    """The course of a figure in one line, from the first record to the last."""
    values = [value for one in found if abs(value := number(one, field)) < 1e30]
    if not values:
        return ""
    ends = f"{scaled(values[0])} to {scaled(values[-1])}"
    count = min(max(columns - len(label) - len(ends) - 4, 1), 60, len(values))
    picked = [values[(2 * i + 1) * len(values) // (2 * count)] for i in range(count)]
    low, width = min(picked), max(picked) - min(picked) or 1
    return f"{label}  {''.join(BARS[int(7 * (one - low) / width)] for one in picked)}  {ends}"


def event_line(event):
    seconds = min(max(number(event, "time_ms", 0) / 1e3, 0), 1e11)
    at = time.strftime("%H:%M:%S", time.localtime(seconds))
    return printable(f"{at} {text(event, 'text')}".partition("\n")[0])


def frame_of(metrics, folder, state, goes_on, columns, now_ms):
    """[(name, lines)]: the frame, in lines that fit the columns."""
    wide = max(columns - NAME_COLUMNS, 1)

    def filled(fields):
        # Lines break between fields, and inside of one only if it is longer than a line.
        joined = "   ".join(printable(field).replace(" ", "\0") for field in fields if field)
        return [line.replace("\0", " ") for line in textwrap.wrap(joined, wide)]

    run, silence = metrics.run, max(now_ms - metrics.last_time_ms, 0) / 1e3
    ranks = counted(count_of(run, "world_size") or 1, "rank")
    parts = {"run": [str(folder), text(run, "model"),
                     f"{scaled(number(run, 'parameters', 0))} parameters",
                     f"{ranks} on {text(run, 'device')}"],
             "state": [state, metrics.last_time_ms and f"last record {duration(silence)} ago"],
             "progress": progress(metrics, goes_on, columns),
             **dict(last_step(metrics) if metrics.steps else ())}
    lines = [(name, filled(fields)) for name, fields in parts.items()]
    curves = [curve_line(f"{kind} {name}".ljust(10), found, field, wide)
              for name, field in (("loss", "mlm_loss"), ("acc.", "mlm_accuracy"))
              for kind, found in (("train", metrics.steps), ("eval", metrics.evals))]
    alarms = [line for shape, said in diagnose.examine(metrics)
              for line in textwrap.wrap(printable(f"{shape}: {said}"), wide)]
    return [*lines, ("alarms", alarms or ["none"]),
            ("curves", [line[:wide] for line in curves if line]),
            ("events", [event_line(event)[:wide] for event in metrics.events[-3:]])]


def add_arguments(parser):
    parser.description += """

Ends with the run, with its exit code; 137 if its process is gone, 0 while it runs. Ctrl-C ends
only the view. In a pipe, one frame is printed."""
    parser.add_argument("run", nargs="?", default="runs/latest", metavar="RUN",
                        help="run folder (default runs/latest)")
    parser.add_argument("--once", action="store_true", help="print one frame and exit")
    parser.add_argument("--every", type=within(0.01, 1e6, float), default=2, metavar="SECONDS",
                        help="time between two frames (default 2)")


def run(options):
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text
    console = Console(highlight=False)
    follower = records.Follower(options.run)

    def look():
        locked, now_ms = is_locked(follower.metrics.path.parent), time.time() * 1e3
        metrics = follower.look()
        state, goes_on, code = state_of(metrics, locked, now_ms)
        grid = Table.grid()
        grid.add_column(width=NAME_COLUMNS, no_wrap=True)
        grid.add_column(no_wrap=True)
        for name, lines in frame_of(metrics, options.run, state, goes_on, console.width, now_ms):
            style = "bold red" if name == "alarms" and lines != ["none"] else ""
            if lines:
                grid.add_row(Text(name, style="bold"), Text("\n".join(lines), style=style))
        return grid, goes_on, code

    frame, goes_on, code = look()
    if options.once or not console.is_terminal or not goes_on:
        console.print(frame)
        return code
    with Live(frame, console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while goes_on:
            time.sleep(options.every)
            frame, goes_on, code = look()
            live.update(frame, refresh=True)
    return code
