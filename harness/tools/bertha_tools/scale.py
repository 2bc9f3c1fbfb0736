"""Predicts steps of a recipe on any number of H200s: the model of step_model.py over the report of
`bertha plan --json -`, which a saved one replaces.
"""
import json
import math
import os
import re

import numpy

from bertha_tools import output, program, step_model
from bertha_tools.errors import DATA, SUCCESS, USAGE, Refused, say, shortened, within

DESCRIPTION = "Predicts steps and runs of a recipe on 1 to thousands of H200s from measured steps."
EXAMPLES = (
    "bertha-tools scale --config configs/mlperf_closed_3472gpu_13888.yaml --ranks 8,496,3472",
    "bertha-tools scale --config configs/mlperf_closed_64gpu_4608.yaml --network 46:4 --plot s.svg",
    "bertha-tools scale --config configs/models/large.yaml --tokens-per-rank 24576 --ranks 1,2,4")
# GB/s of a GPU, each way, 92 % of the line rate, and microseconds of a hop.
NETWORKS = {"ib-ndr400x8": "46:4", "ib-hdr200x8": "23:4", "ib-ndr400x1": "5.8:4",
            "eth-100x1": "1.4:25"}
USUAL_RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3472)
MOST_RANKS = 1 << 20
MOST_COPY_RANKS = 8
DRAWN_STEPS = 32
ROW_MULTIPLE = 256  # of token rows on a GPU
WATTS = 690         # of an H200 at its power limit


def add_arguments(parser):
    program.add_options(parser)
    parser.add_argument("--plan", metavar="FILE",
                        help="a saved report of `bertha plan --json FILE`")
    parser.add_argument("--ranks", metavar="N[,..]",
                        help="numbers of GPUs (default: those up to 3,472 that divide the batch)")
    parser.add_argument("--ranks-per-node", metavar="N", type=within(1), default=8,
                        help="GPUs per node, all connected by NVLink (default %(default)s)")
    parser.add_argument("--network", metavar="NAME", default="ib-ndr400x8",
                        help=f"network between nodes: {', '.join(NETWORKS)}, or GB/s per GPU and us "
                        "per hop (4 if omitted), such as 46:4 (default %(default)s)")
    parser.add_argument("--tokens-per-rank", metavar="N", type=within(1),
                        help="tokens of every micro-batch, as in `bench step`, instead of "
                        "train.global_batch_seqs sequences")
    output.add_json_option(parser)
    parser.add_argument("--plot", metavar="FILE", type=output.picture,
                        help=f"picture: {', '.join(output.PICTURES)}")


def network_of(word):
    """Bytes per second and microseconds of a hop."""
    found = re.fullmatch(r"(\d+\.?\d*)(?::(\d+\.?\d*))?", NETWORKS.get(word, word), re.ASCII)
    if not found or not float(found[1]):
        raise Refused(USAGE, f"--network: found \"{shortened(word)}\", want {', '.join(NETWORKS)}, "
                      "or GB/s per GPU and us per hop, such as 46:4")
    return 1e9 * float(found[1]), float(found[2] or 4)


def read_plan(options):
    """The report of plan, whose "config" is the configuration as {key: value}."""
    words = program.configuration(options)
    if options.plan and words:
        raise Refused(USAGE, "--plan: a saved report contains its configuration; omit --config and "
                      "--set")
    if not options.plan:
        return program.report_of([program.find(options.bertha), "plan", *words, "--json", "-"])
    if not os.path.isfile(options.plan):
        raise Refused(DATA, f"{options.plan}: is not a file; write it with bertha plan --json FILE")
    with open(options.plan, "rb") as file:
        return json.load(file)


def why_not(config, ranks, options):
    """Why this number of GPUs cannot train the recipe; "" if it can."""
    per_node, batch = options.ranks_per_node, config["train.global_batch_seqs"]
    if ranks > per_node and ranks % per_node:
        return (f"--ranks: found {ranks}, want whole nodes of {per_node} GPUs; set the GPUs per node "
                "with --ranks-per-node")
    if not options.tokens_per_rank and batch % (ranks * config["train.accumulation_steps"]):
        return (f"train.global_batch_seqs = {batch} is not divisible by {ranks} ranks x "
                f"train.accumulation_steps = {config['train.accumulation_steps']}; choose others")
    return ""


def ranks_of(config, options):
    if not options.ranks:
        return [ranks for ranks in USUAL_RANKS if not why_not(config, ranks, options)]
    words = options.ranks.split(",")
    if not all(word.isdecimal() and 1 <= int(word) <= MOST_RANKS for word in words):
        raise Refused(USAGE, f"--ranks: found \"{shortened(options.ranks)}\", want numbers from 1 "
                      f"to {MOST_RANKS:,}, separated by commas")
    for reason in filter(None, (why_not(config, int(word), options) for word in words)):
        raise Refused(USAGE, reason)
    return [int(word) for word in words]


def lengths_of(plan):
    """Sequence lengths, their probabilities, and the means of lengths and of their squares."""
    counts = numpy.array(plan["token_length_histogram"], dtype=float)
    lengths = numpy.minimum(numpy.arange(len(counts)), plan["config"]["data.max_seq_tokens"])
    shares = counts / counts.sum()
    return lengths, shares, shares @ lengths, shares @ lengths**2


def balance_of(plan, ranks):
    """Tokens of a rank and micro-batch: the mean, and those of the fullest rank in whole rows. How
    far they lie apart is that of drawn steps, assigned to ranks as the program assigns them.
    """
    config, (lengths, shares, mean_tokens, _) = plan["config"], lengths_of(plan)
    micro_batches, seqs = config["train.accumulation_steps"], config["train.global_batch_seqs"]
    # The numbers of this generator are the same in every version of numpy.
    drawn = numpy.random.RandomState(0).choice(lengths, (DRAWN_STEPS, seqs), p=shares)
    if config["data.exchange_padding"] == "off":
        tokens = drawn.reshape(DRAWN_STEPS, ranks, -1).sum(axis=2)
    else:  # falling lengths, from the first micro-batch of the ranks to the last and back
        rows = -numpy.sort(-drawn).reshape(DRAWN_STEPS, -1, micro_batches * ranks)
        rows[:, 1::2] = rows[:, 1::2, ::-1].copy()
        tokens = rows.sum(axis=1).reshape(DRAWN_STEPS, micro_batches, ranks).sum(axis=1)
    most_rows = numpy.ceil(tokens.max(axis=1) / micro_batches / ROW_MULTIPLE) * ROW_MULTIPLE
    mean = mean_tokens * seqs / ranks / micro_batches
    return mean, mean + most_rows.mean() - tokens.mean() / micro_batches


def samples_to_target(plan):
    """Samples that the benchmark's reference needs; infinite if they are unknown."""
    config = plan["config"]
    if not (336.0e6 <= plan["parameters"] <= 336.5e6 and config["train.target_accuracy"] >= 0.7):
        return math.inf
    from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker
    points = sorted((point["BS"], point["RCP Mean"]) for point in
                    RCP_Checker("training", "4.0.0", "bert", False).pruned_rcp_data.values())
    samples = numpy.interp(config["train.global_batch_seqs"], *zip(*points), right=math.inf)
    return round(samples) if math.isfinite(samples) else samples


def run_of(plan, recipe, ranks, step_ms, mean_tokens):
    """A run to the target if the reference says when that is, else to the last step."""
    config, samples = plan["config"], samples_to_target(plan)
    seqs, to_target = config["train.global_batch_seqs"], samples <= plan["samples"]
    if to_target:
        steps = math.ceil(samples / seqs)
        # The benchmark's rule, 5 % of (230.23 x batch + 3,000,000) in multiples of 25,000.
        every = config["eval.every_samples"] or \
            (115_115 * seqs + 1_500_000_000) // 250_000_000 * 25_000
        first = config["eval.start_samples"] or every
        evals = min(max(0, (samples - first) // every + 1), steps)
    else:
        samples, steps, evals = plan["samples"], plan["steps"], plan["evals"]
    of_rank, batch = math.ceil(plan["eval_seqs"] / ranks), config["eval.batch_seqs"]
    rows = math.ceil(min(of_rank, batch) * mean_tokens / ROW_MULTIPLE) * ROW_MULTIPLE
    eval_seconds = (1e-3 * math.ceil(of_rank / batch)
                    * step_model.FORWARD_SHARE * recipe.pass_ms(rows))
    seconds = 1e-3 * step_ms * steps + evals * eval_seconds
    return {"to_target": to_target, "samples": samples, "steps": steps, "evals": evals,
            "eval_seconds": eval_seconds, "seconds": seconds,
            "most_megajoules": 1e-6 * WATTS * seconds * ranks}


def bound_of(shares, recipe, tokens):
    """The two largest shares. Latencies of kernels bound a pass if one token takes at least 1.2
    times as long as in a micro-batch that is 16 times as large.
    """
    small = 16 * recipe.pass_ms(tokens) > 1.2 * recipe.pass_ms(16 * tokens)
    why = {"forward and backward": " (latencies of kernels that do not fill the GPU)" if small
           else " (GEMMs at the GPU's power limit)"}
    return ", then ".join(f"{100 * shares[share] / sum(shares.values()):.0f} % {share}"
                          + why.get(share, "")
                          for share in sorted(shares, key=shares.get, reverse=True)[:2])


def predict(plan, ranks, options):
    """A row of the report."""
    config, (*_, mean_tokens, squared) = plan["config"], lengths_of(plan)
    layers, hidden, feed_forward, vocab, positions, segments = (config[f"model.{key}"] for key in (
        "layers", "hidden", "feed_forward", "vocab_size", "max_positions", "segment_types"))
    vocab = -(-vocab // 8) * 8
    shape = step_model.Shape(layers, hidden, feed_forward, vocab,
                             hidden * (vocab + positions + segments + 2), plan["parameters"])
    recipe = step_model.Recipe(shape, precision_of(config), config["train.accumulation_steps"],
                               config["optimizer.bucket_mib"], config["optimizer.clip"] == "before",
                               squared / mean_tokens)
    may_copy = min(ranks, options.ranks_per_node) <= MOST_COPY_RANKS
    cluster = step_model.Cluster(ranks, options.ranks_per_node, *network_of(options.network),
                                 copies=may_copy and config["cuda.exchange"] != "nccl",
                                 state_in_each_node=config["optimizer.shard_group"] != "world")
    mean, most = (options.tokens_per_rank,) * 2 if options.tokens_per_rank else \
        balance_of(plan, ranks)
    parts = step_model.step_parts(recipe, cluster, mean, most)
    step_ms = sum(ms - hidden for ms, hidden in parts.values())
    if not (0 < step_ms < 1e9 and 0 < mean_tokens):
        raise ValueError(f"steps of {step_ms} ms")
    tokens, shares = mean * recipe.micro_batches, step_model.shares_of(parts)
    return {"ranks": ranks, "step_ms": step_ms,
            "parts": [{"name": name, "ms": ms, "hidden_ms": hidden}
                      for name, (ms, hidden) in parts.items()],
            "shares_ms": shares, "bounded_by": bound_of(shares, recipe, mean),
            "tokens_per_rank": tokens,
            "seqs_per_second": 1e3 * tokens / mean_tokens * ranks / step_ms,
            **({} if options.tokens_per_rank
               else run_of(plan, recipe, ranks, step_ms, mean_tokens))}


def precision_of(config):
    return "fp8" if config["train.precision"] == "fp8" else "16 bits"


def print_rows(rows, config, options):
    say(f"predicted from measured steps: H200s in {precision_of(config)}, {options.ranks_per_node} "
        f"on a node, {options.network}; tokens of a GPU, milliseconds of a step")
    columns = ["GPUs", "tokens", "step", "compute", "waits", "LAMB", "communication", "seqs/s"]
    table = [[f"{row['ranks']:,}", f"{row['tokens_per_rank']:,.0f}", f"{row['step_ms']:.2f}",
              *(f"{ms:.2f}" for ms in row["shares_ms"].values()), f"{row['seqs_per_second']:,.0f}"]
             for row in rows]
    has_runs = "seconds" in rows[0]
    if has_runs:
        columns += ["run, s", "MJ"]
        for cells, row in zip(table, rows):
            cells += [f"{row['seconds']:.1f}", f"{row['most_megajoules']:.2f}"]
    output.print_table(columns, table)
    for row in rows:
        say(f"{row['ranks']:,} GPUs: {row['bounded_by']}")
    if has_runs:
        say(f"Runs take {rows[0]['samples']:,} samples, "
            + ("as the benchmark's reference needs, " if rows[0]["to_target"] else "")
            + "not counting initialization; MJ is an upper bound.")


def draw(rows):
    figure = output.new_figure(10, 4)
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
    try:
        plan = read_plan(options)
        config = plan["config"]
        if config["train.precision"] == "fp32":
            raise Refused(USAGE, "train.precision is fp32, but only 16-bit and fp8 steps on "
                          "H200s have been measured; set it to bf16 or fp8")
        rows = [predict(plan, ranks, options) for ranks in ranks_of(config, options)]
    # A saved report may contain anything.
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
            ValueError) as error:
        raise Refused(DATA, f"{options.plan or 'the report of plan'}: lacks data for a prediction "
                      f"({type(error).__name__}: {shortened(error)}); write it with bertha "
                      "plan --json FILE") from None
    if not rows:
        raise Refused(USAGE, "train.global_batch_seqs does not divide over any of the usual numbers "
                      "of GPUs; give numbers with --ranks")
    if options.json != "-":
        print_rows(rows, config, options)
    output.write_json(options.json, "scale", SUCCESS, {"network": options.network, "rows": rows})
    if options.plot:
        output.write_figure(draw(rows), options.plot)
    return SUCCESS
