"""Predicts steps of a recipe on any number of H200s: the model of step_model.py over the report of
`bertha plan --json -`, which a saved one replaces.
"""
import json
import math
import os

from bertha_tools import program, run_folder, seq_lengths, step_model
from bertha_tools.errors import DATA, USAGE, Refused
from bertha_tools.output import check_picture, new_figure, print_table, write_figure

DESCRIPTION = "Predicts steps and runs of a recipe on 1 to thousands of H200s from measured steps."
EXAMPLES = (
    "bertha-tools scale --config configs/mlperf_closed_3472gpu_13888.yaml --ranks 8,512,3472",
    "bertha-tools scale --config configs/mlperf_closed_64gpu_4608.yaml --network 46:4 --plot s.svg",
    "bertha-tools scale --config configs/models/large.yaml --tokens-per-rank 24576 --ranks 1,2,4")
# Bytes per second of a GPU, each way, 92 % of the line rate, and microseconds of a hop.
NETWORKS = {"ib-ndr400x8": (46e9, 4), "ib-hdr200x8": (23e9, 4), "ib-ndr400x1": (5.8e9, 4),
            "eth-100x1": (1.4e9, 25)}
USUAL_RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3472)
MOST_RANKS = 1 << 20
MOST_COPY_RANKS = 8
SHAPE_KEYS = ("layers", "hidden", "feed_forward", "vocab_size", "max_positions", "segment_types")


def add_arguments(parser):
    program.add_options(parser)
    parser.add_argument("--plan", metavar="FILE",
                        help="a saved report of `bertha plan --json FILE`")
    parser.add_argument("--ranks", metavar="N[,..]",
                        help="numbers of GPUs (default: those up to 3,472 that divide the batch)")
    parser.add_argument("--ranks-per-node", metavar="N", type=int, default=8,
                        help="GPUs of a node, all connected by NVLink (default %(default)s)")
    parser.add_argument("--network", metavar="NAME", default="ib-ndr400x8",
                        help=f"what connects nodes: {', '.join(NETWORKS)}, or GB/s of a GPU and us "
                        "of a hop (4 if left out), such as 46:4 (default %(default)s)")
    parser.add_argument("--tokens-per-rank", metavar="N", type=int,
                        help="tokens of every micro-batch, as `bench step` makes them, instead of "
                        "train.global_batch_seqs sequences")
    run_folder.add_json_option(parser)
    parser.add_argument("--plot", metavar="FILE", help="picture: .svg, .png or .pdf")


def network_of(text):
    if text in NETWORKS:
        return NETWORKS[text]
    try:
        rate, colon, latency = text.partition(":")
        rate, latency = float(rate), float(latency) if colon else 4
        if 0 < rate <= 1e6 and 0 <= latency <= 1e6:
            return 1e9 * rate, latency
    except ValueError:
        pass
    raise Refused(USAGE, f"--network: found \"{run_folder.printable(text)}\", want "
                  f"{', '.join(NETWORKS)}, or GB/s per GPU and us of a hop, such as 46:4")


def read_plan(options):
    """The report of plan and the configuration as {key: value}."""
    words = program.configuration(options)
    if options.plan and words:
        raise Refused(USAGE, "--plan: a saved report has its configuration; leave out --config and --set")
    if not options.plan:
        plan = program.report_of([program.find(options.bertha), "plan", *words, "--json", "-"])
    elif os.path.isfile(options.plan):
        with open(options.plan, "rb") as file:
            plan = json.load(file)
    else:
        raise Refused(DATA, f"{run_folder.printable(options.plan)}: is not a file; write it with "
                      "`bertha plan --json FILE`")
    return plan, plan["config"]


def recipe_of(config, histogram):
    if config["train.precision"] == "fp32":
        raise Refused(USAGE, "train.precision is fp32, but only steps of 16 bits and fp8 on H200s "
                      "have been measured; set it to bf16 or fp8")
    mean, squared = seq_lengths.means_of(histogram, config["data.max_seq_tokens"])
    shape = step_model.Shape(*(config[f"model.{key}"] for key in SHAPE_KEYS))
    if not 0 < shape.elements() < 1 << 40 or config["train.global_batch_seqs"] > 1 << 26:
        raise ValueError("more weights or sequences than a run has")
    return step_model.Recipe(shape, "fp8" if config["train.precision"] == "fp8" else "16 bits",
                             config["train.accumulation_steps"], config["optimizer.bucket_mib"],
                             config["optimizer.clip"] == "before", mean, squared / mean)


def why_not(config, ranks, options):
    """Why so many GPUs cannot train the recipe; "" if they can."""
    per_node, batch = options.ranks_per_node, config["train.global_batch_seqs"]
    if ranks > per_node and ranks % per_node:
        return (f"--ranks: found {ranks}, want whole nodes of {per_node} GPUs; --ranks-per-node "
                "says how many a node has")
    if not options.tokens_per_rank and batch % (ranks * config["train.accumulation_steps"]):
        return (f"train.global_batch_seqs = {batch} is not divisible by {ranks} ranks x "
                f"train.accumulation_steps = {config['train.accumulation_steps']}; choose others")
    return ""


def ranks_of(config, options):
    if not options.ranks:
        return [ranks for ranks in USUAL_RANKS if not why_not(config, ranks, options)]
    words = options.ranks.split(",")
    if not all(word.isdecimal() and 1 <= int(word) <= MOST_RANKS for word in words):
        raise Refused(USAGE, f"--ranks: found \"{run_folder.printable(options.ranks)}\", want "
                      f"numbers from 1 to {MOST_RANKS:,}, separated by commas")
    for reason in filter(None, (why_not(config, int(word), options) for word in words)):
        raise Refused(USAGE, reason)
    return [int(word) for word in words]


def planned_evals(config, last_step):
    """{step: samples}, without the evaluation at the end."""
    batch, most = config["train.global_batch_seqs"], config["train.max_samples"] or math.inf
    # The benchmark's rule, 5 % of (230.23 x batch + 3,000,000) in multiples of 25,000, in integers.
    by_rule = (115_115 * batch + 1_500_000_000) // 250_000_000 * 25_000
    every = config["eval.every_samples"] or by_rule
    samples, evals = config["eval.start_samples"] or every, {}
    if not 0 <= last_step * batch < 1e7 * every:
        raise ValueError(f"evaluations every {every} of {last_step * batch} samples")
    while samples <= min(last_step * batch, most - 1):
        evals.setdefault(-(-samples // batch), samples)
        samples += every
    return evals


def samples_to_target(plan, config):
    """Samples that the benchmark's reference needs; infinite if it does not say."""
    if not (336.0e6 <= plan["parameters"] <= 336.5e6 and config["train.target_accuracy"] >= 0.7):
        return math.inf
    import numpy
    from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker
    points = sorted((point["BS"], point["RCP Mean"]) for point in
                    RCP_Checker("training", "4.0.0", "bert", False).pruned_rcp_data.values())
    samples = numpy.interp(config["train.global_batch_seqs"], *zip(*points), right=math.inf)
    return round(samples) if math.isfinite(samples) else samples


def run_of(plan, config, recipe, ranks, step_ms):
    """A run to the target if the reference says when that is, else to the last step."""
    evals, target = planned_evals(config, plan["steps"]), samples_to_target(plan, config)
    to_target = target <= plan["samples"]
    samples = target if to_target else plan["samples"]
    steps = (samples - 1) // config["train.global_batch_seqs"] + 1 if to_target else plan["steps"]
    count = sum(at <= samples for at in evals.values()) if to_target \
        else len(evals) + (steps not in evals)
    of_rank, batch = math.ceil(plan["eval_seqs"] / ranks), config["eval.batch_seqs"]
    rows = step_model.round_up(min(of_rank, batch) * recipe.mean_tokens, step_model.ROW_MULTIPLE)
    forward_ms = step_model.FORWARD_SHARE * step_model.pass_ms(
        recipe.shape, rows, recipe.squared_per_token, recipe.precision)
    eval_seconds = 1e-3 * math.ceil(of_rank / batch) * forward_ms
    seconds = 1e-3 * step_ms * steps + count * eval_seconds
    return {"to_target": to_target, "samples": samples, "steps": steps, "evals": count,
            "eval_seconds": eval_seconds, "seconds": seconds,
            "most_megajoules": 1e-6 * step_model.WATTS * seconds * ranks}


def predict(plan, config, histogram, ranks, options):
    """A row of the report."""
    recipe = recipe_of(config, histogram)
    may_copy = min(ranks, options.ranks_per_node) <= MOST_COPY_RANKS
    cluster = step_model.Cluster(ranks, options.ranks_per_node, *network_of(options.network),
                                 copies=may_copy and config["cuda.exchange"] != "nccl",
                                 state_in_each_node=config["optimizer.shard_group"] != "world")
    mean = most = options.tokens_per_rank
    if not mean:
        mean, most = seq_lengths.balance_of(histogram, config, ranks, step_model.ROW_MULTIPLE)
    parts = step_model.step_parts(recipe, cluster, mean, most)
    step_ms = step_model.exposed_ms(parts)
    if not (0 < step_ms < math.inf and 0 < recipe.mean_tokens):
        raise ValueError(f"steps of {step_ms} ms")
    tokens = mean * recipe.micro_batches
    return {"ranks": ranks, "step_ms": step_ms,
            "parts": [{"name": name, "ms": ms, "hidden_ms": hidden}
                      for name, (ms, hidden) in parts.items()],
            "shares_ms": step_model.shares_ms(parts),
            "bounded_by": step_model.bound_of(parts, recipe, mean), "tokens_per_rank": tokens,
            "seqs_per_second": 1e3 * tokens / recipe.mean_tokens * ranks / step_ms,
            **({} if options.tokens_per_rank else run_of(plan, config, recipe, ranks, step_ms))}


def print_rows(rows, config, options):
    precision = "fp8" if config["train.precision"] == "fp8" else "16 bits"
    print(f"predicted from measured steps: H200s in {precision}, {options.ranks_per_node} on a "
          f"node, {options.network}; tokens of a GPU, milliseconds of a step")
    columns = ["GPUs", "tokens", "step", "compute", "waits", "LAMB", "exchange", "seqs/s"]
    table = [[f"{row['ranks']:,}", f"{row['tokens_per_rank']:,.0f}", f"{row['step_ms']:.2f}",
              *(f"{row['shares_ms'][name]:.2f}" for name in step_model.SHARES[:4]),
              f"{row['seqs_per_second']:,.0f}"] for row in rows]
    has_runs = "seconds" in rows[0]
    if has_runs:
        columns += ["run, s", "MJ"]
        for cells, row in zip(table, rows):
            cells += [f"{row['seconds']:.1f}", f"{row['most_megajoules']:.2f}"]
    print_table(columns, table)
    for row in rows:
        print(f"{row['ranks']:,} GPUs: {row['bounded_by']}")
    if has_runs:
        print(f"Runs take {rows[0]['samples']:,} samples, "
              + ("as the benchmark's reference needs, " if rows[0]["to_target"] else "")
              + "not counting initialization; MJ is an upper bound.")


def draw(rows):
    figure = new_figure(10, 4)
    speed, step = figure.subplots(1, 2)
    ranks = [row["ranks"] for row in rows]
    first = rows[0]["seqs_per_second"] / ranks[0]
    speed.loglog(ranks, [row["seqs_per_second"] for row in rows], "o-", label="predicted")
    speed.loglog(ranks, [first * count for count in ranks], "--", label="in proportion")
    speed.set(xlabel="GPUs", ylabel="sequences/s")
    step.stackplot(ranks, [[100 * row["shares_ms"][name] / row["step_ms"] for row in rows]
                           for name in step_model.SHARES], labels=step_model.SHARES)
    step.set(xscale="log", xlabel="GPUs", ylabel="% of a step", ylim=(0, 100))
    for axes in (speed, step):
        axes.legend(fontsize="small")
    return figure


def run(options):
    if options.plot:
        check_picture(options.plot)
    if options.ranks_per_node < 1 or (options.tokens_per_rank or 1) < 1:
        raise Refused(USAGE, "--ranks-per-node and --tokens-per-rank: want numbers above 0")
    try:
        plan, config = read_plan(options)
        histogram = plan["token_length_histogram"]
        rows = [predict(plan, config, histogram, ranks, options)
                for ranks in ranks_of(config, options)]
    # A saved report may hold anything.
    except (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RecursionError,
            TypeError, ValueError) as error:
        what = run_folder.printable(f"{type(error).__name__}: {error}")
        source = run_folder.printable(options.plan or "the report of plan")
        raise Refused(DATA, f"{source}: is not what a prediction needs ({what}); write it with "
                      "`bertha plan --json FILE`") from None
    if not rows:
        raise Refused(USAGE, "train.global_batch_seqs divides over none of the usual numbers of "
                      "GPUs; name some with --ranks")
    if options.json != "-":
        print_rows(rows, config, options)
    run_folder.write_json(options.json, "scale", 0, {"network": options.network, "rows": rows})
    if options.plot:
        write_figure(draw(rows), options.plot)
    return 0
