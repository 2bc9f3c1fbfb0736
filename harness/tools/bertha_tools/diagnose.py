"""Recognizes known bad shapes in the curve of a run, and compares BERT-large with published runs.

Each shape is a function of the records that returns a text or None: the finding, and what to try
next. A figure that is missing or not a number never makes a shape.
"""
import itertools
import math

from bertha_tools import metrics as records
from bertha_tools.errors import SUCCESS, say, shortened
from bertha_tools.metrics import count_of, number, text
from bertha_tools.output import add_json_option, exponent, fixed, scaled, write_json

DESCRIPTION = "Finds known faults in a run's curve, and compares it with published runs."
EXAMPLES = ("bertha-tools diagnose runs/latest",
            "bertha-tools diagnose runs/seed-0 runs/seed-1",
            "bertha-tools diagnose runs/latest --published always --json -")

PUBLISHED_SAMPLES = 150_000   # between two evaluations
UNTRAINED_ACCURACY = 0.34085  # accuracy of the benchmark's start checkpoint before training
# (name, batch size, lowest and highest masked-token accuracy in ten-thousandths) of submissions of
# ten runs each, where a run that has ended keeps its last accuracy. Sources, eval_accuracy in
# github.com/mlcommons/training_results_v4.0,
# NVIDIA/results/h200_ngc23.09_pytorch/bert/result_{0..9}.txt, and in
# github.com/mlcommons/training_results_v2.0,
# Baidu/results/XMan4.0_1_node_8_A100_PaddlePaddle/bert/result_{0..9}.txt.
PUBLISHED = (
    ("NVIDIA v4.0, 8 H200", 768, """
3734 3986 4677 6272 6964 7064 7103 7123 7134 7150 7157 7168 7175 7181 7188 7191 7198 7200
3800 4075 5085 6678 7038 7094 7122 7140 7151 7163 7169 7181 7188 7195 7203 7205 7205 7205
"""),
    ("Baidu v2.0, 8 A100", 448, """
3715 3945 4342 4931 5902 6958 7073 7107 7119 7139 7147 7156 7165 7174 7181 7186 7188 7197 7199 7199
3780 4167 5707 6864 7072 7108 7125 7143 7159 7170 7173 7184 7189 7201 7206 7206 7206 7206 7206 7206
"""))


def band_of(published):
    """Numbers of samples, with the lowest and the highest accuracy of the runs after them."""
    low, high = ([UNTRAINED_ACCURACY, *(int(value) / 10_000 for value in line.split())]
                 for line in published[2].strip().split("\n"))
    return [PUBLISHED_SAMPLES * i for i in range(len(low))], low, high


def band_name(published):
    return f"{published[0]}, batch {published[1]}"


def is_benchmark_run(metrics):
    """Whether it is BERT-large, whose parameters depend on padding of the vocabulary, with a target
    near the benchmark's, so that published runs are comparable."""
    parameters = number(metrics.run, "parameters", 0)
    return 336_000_000 <= parameters <= 336_500_000 and metrics.target >= 0.70


def published_for(metrics, wanted):
    """The submission with the nearest batch size, or None; wanted: "auto", "always" or "never"."""
    if wanted == "always" or (wanted == "auto" and is_benchmark_run(metrics)):
        batch = max(count_of(metrics.run, "global_batch_seqs"), 1)
        return min(PUBLISHED, key=lambda one: abs(math.log(batch / one[1])))
    return None


def latest(metrics, count, name):
    """A figure of the last evaluations, at most as many as exist."""
    return [number(one, name) for one in metrics.evals[-count:]]


def newest(metrics, name, digits=4):
    """A figure of the last evaluation, as text."""
    return fixed(*latest(metrics, 1, name), digits)


def are_within(metrics, count, name, low, high):
    """Whether a figure of the last evaluations is within bounds; False with fewer evaluations."""
    values = latest(metrics, count, name)
    return len(values) == count and all(low <= value <= high for value in values)


def are_steady(metrics, count, name, share):
    """Whether a figure of the last evaluations varies by at most this share of itself."""
    highest = max(latest(metrics, count, name), default=math.nan)
    return are_within(metrics, count, name, highest - share * abs(highest), highest)


def samples_within(metrics, low, high):
    """(first, last) samples of the newest evaluations whose accuracy is within bounds."""
    inside = list(itertools.takewhile(lambda one: low <= number(one, "mlm_accuracy") <= high,
                                      reversed(metrics.evals)))
    return (inside[-1]["samples"], inside[0]["samples"]) if inside else (0, 0)


def constant_answer(metrics):
    """Accuracy of the best constant answer on the evaluation set; 0 if unknown."""
    return number(metrics.data, "constant_answer_accuracy", 0)


def score_as_a_constant(metrics, count, least=-math.inf):
    """No evaluation predicts more than the most frequent word, within chance."""
    constant = constant_answer(metrics)
    most = 1.1 * constant + 0.002
    return constant > 0 and are_within(metrics, count, "mlm_accuracy", least, most)


def untouched_weights(metrics):
    """Evaluations repeat to the last digit, or BERT-large's stay at the score of its start."""
    first, last = samples_within(metrics, UNTRAINED_ACCURACY - 0.002, UNTRAINED_ACCURACY + 0.002)
    stays = is_benchmark_run(metrics) and first < last >= 100_000
    if stays or all(are_steady(metrics, 3, name, 1e-9) for name in ("mlm_accuracy", "mlm_loss")):
        start = ", the score of the start checkpoint without any training" if stays else ""
        return (f"the evaluations stay at {newest(metrics, 'mlm_accuracy')}{start}: "
                "updates do not reach the weights. Look in metrics.jsonl for a learning_rate of 0, "
                "a gradient_norm of 0 and skipped_steps that grow with the steps")


def plateau_at_062(metrics):
    """BERT-large stays where a healthy run passes within one interval."""
    first, last = samples_within(metrics, 0.60, 0.645)
    if is_benchmark_run(metrics) and last - first >= 300_000:
        return (f"the accuracy stays at {newest(metrics, 'mlm_accuracy')} for "
                f"{scaled(last - first)} samples, while published runs pass from 0.60 to 0.65 "
                "within 150k. In other projects, shards were copies of each other or not shuffled: "
                "run bertha data verify on the training data, which finds copies, and shuffle over "
                "more shards (data.window_shards)")


def checkpoint_not_loaded(metrics):
    """The first loss is that of random weights, although the run starts from a checkpoint."""
    start, vocabulary = text(metrics.run, "start_weights"), number(metrics.run, "vocab_size", 0)
    if not start or metrics.first_step != 0 or vocabulary <= 1 or not metrics.steps:
        return None
    first, random_loss = metrics.steps[0], math.log(vocabulary)
    loss = number(first, "mlm_loss")
    if first["step"] <= 10 and abs(loss - random_loss) < 0.05 * random_loss:
        return (f"the first masked-token loss is {fixed(loss, 2)}, that of random weights (ln "
                f"{fixed(vocabulary, 0)} = {fixed(random_loss, 2)}), although the run starts from "
                f"{shortened(start)}. Evaluate that checkpoint alone with bertha eval, and compare "
                "its vocab.txt with the vocabulary of the data: they must be the same")


def next_sentences_only(metrics):
    if (score_as_a_constant(metrics, 3) and are_steady(metrics, 3, "mlm_loss", 0.02)
            and are_within(metrics, 3, "nsp_accuracy", 0.8, math.inf)):
        return (f"next sentences are learned ({newest(metrics, 'nsp_accuracy', 3)}), "
                f"masked tokens are not ({newest(metrics, 'mlm_accuracy')}; the most frequent "
                f"token alone scores {fixed(constant_answer(metrics), 4)}). Wrong masks or labels "
                "look like this: run bertha data verify on the training data, and check that "
                "data.vocab is its vocabulary")


def word_frequencies_only(metrics):
    if (score_as_a_constant(metrics, 4, least=0.8 * constant_answer(metrics))
            and are_steady(metrics, 4, "mlm_loss", 0.01) and not next_sentences_only(metrics)):
        return (f"the masked-token loss stays at {newest(metrics, 'mlm_loss', 2)} and the "
                f"accuracy at {newest(metrics, 'mlm_accuracy')}, that of the most "
                "frequent token: only word frequencies have been learned. Try a smaller learning "
                "rate or a longer warm-up; from random weights, a larger batch or more steps also "
                "help")


def context_not_used(metrics):
    """The score of copied words, and of the most frequent one for [MASK]: of the masked tokens a
    tenth keep their word and a tenth show a random one (Devlin et al. 2018, section 3.1)."""
    constant = constant_answer(metrics)
    copying = 0.1 + 0.8 * constant
    if (constant > 0 and are_steady(metrics, 4, "mlm_loss", 0.01)
            and are_within(metrics, 4, "mlm_accuracy", 0.9 * copying, 1.1 * copying + 0.002)):
        drowned = (". Next sentences are learned, and their gradient can drown the other: try "
                   "train.nsp_weight: 0") if latest(metrics, 1, "nsp_accuracy")[0] >= 0.8 else ""
        return (f"the masked-token accuracy stays at {newest(metrics, 'mlm_accuracy')} and the "
                f"loss at {newest(metrics, 'mlm_loss', 2)}: copying the tenth of the masked tokens "
                f"that keep their word, and word frequencies for the rest, score "
                f"{fixed(copying, 4)}. "
                "From random weights this lasts for 200,000 samples or more; small batches and "
                f"AdamW at a low rate have ended it, see configs/medium_from_scratch.yaml{drowned}")


def collapsing_loss_scale(metrics):
    """A loss scale below 1, or one that falls in sixteen consecutive records."""
    scales = [number(step, "loss_scale") for step in metrics.steps[-17:]] or [math.nan]
    falls = len(scales) == 17 and all(b < a for a, b in itertools.pairwise(scales))
    if scales[-1] < 1 or falls:
        skipped = number(metrics.steps[-1], "skipped_steps", 0)
        return (f"the loss scale has fallen to {exponent(scales[-1])} with {fixed(skipped, 0)} "
                "updates skipped: gradients are not finite at any scale, and further training is "
                "lost time. Train with train.precision bf16, or look for the step whose loss jumps "
                "and lower the learning rate")


def saturation(metrics):
    """Most of the last sixteen records have more than one of 100,000 elements too large for fp8.

    Scales leave room for one to two times the last step's maximum: far fewer elements exceed that.
    """
    shares = [number(step, "fp8_saturated", 0) for step in metrics.steps[-16:]]
    if len(shares) == 16 and sum(share > 1e-5 for share in shares) > 8:
        return (f"{exponent(shares[-1])} of the elements rounded to fp8 at step "
                f"{metrics.steps[-1]['step']} were too large for it and became its largest number: "
                "activations or gradients grow from step to step. Lower the learning rate, or "
                "train with train.precision bf16")


def divergence(metrics):
    """A masked-token loss of more than twice the loss of guessing."""
    guessing = math.log(max(number(metrics.run, "vocab_size", 0), 1))
    last = metrics.steps[-1] if metrics.steps else {}
    loss = number(last, "mlm_loss")
    if loss > 2 * guessing > 0:
        return (f"the masked-token loss of step {last['step']} is {scaled(loss)}, more than "
                f"guessing, {fixed(guessing, 2)}: the updates are too large. Lower "
                "optimizer.base_learning_rate, lengthen optimizer.warmup_steps, or clip gradients "
                "with optimizer.max_gradient_norm")


SHAPES = {"untouched weights": untouched_weights, "plateau at 0.62": plateau_at_062,
          "checkpoint not loaded": checkpoint_not_loaded,
          "next sentences only": next_sentences_only,
          "word frequencies only": word_frequencies_only, "context not used": context_not_used,
          "collapsing loss scale": collapsing_loss_scale, "fp8 saturation": saturation,
          "divergence": divergence}


def examine(metrics):
    """All remarks on a run so far as [(shape, text)]: few, or none."""
    remarks = [(shape, found(metrics)) for shape, found in SHAPES.items()]
    return [(shape, said) for shape, said in remarks if said]


def remarks_on(path, metrics):
    """The same for reports."""
    return [{"path": str(path), "shape": shape, "text": said} for shape, said in examine(metrics)]


def print_remarks(remarks):
    for remark in remarks:
        say("{path}: curve: {shape}: {text}".format(**remark))


def compare_with_published(metrics, wanted):
    """A message that compares the evaluations with the published band; None without a comparison."""
    published = published_for(metrics, wanted)
    if not published:
        return None
    import numpy  # comes with matplotlib, and is slow to load
    at, lowest, highest = band_of(published)
    places, last = [], "none is comparable"
    for one in metrics.evals:
        accuracy, samples = number(one, "mlm_accuracy"), one["samples"]
        if samples > at[-1] or math.isnan(accuracy):
            continue
        low, high = numpy.interp(samples, at, lowest), numpy.interp(samples, at, highest)
        # The bounds have four decimals.
        places.append("below" if accuracy < low - 5e-5 else "above" if accuracy > high + 5e-5
                      else "within")
        last = (f"the last one, {fixed(accuracy, 4)} after {samples:,} samples, is {places[-1]} "
                f"{fixed(low, 4)} to {fixed(high, 4)}")
    return (f"of {len(places)} evaluations, {places.count('below')} are below, "
            f"{places.count('within')} within and {places.count('above')} above the published runs "
            f"({band_name(published)}); {last}")


def add_published_option(parser):
    parser.add_argument("--published", choices=("auto", "always", "never"), default="auto",
                        help="compare accuracy by samples with published runs of the benchmark "
                             "(default auto: for BERT-large with the benchmark's target)")


def add_arguments(parser):
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, or metrics.jsonl")
    add_published_option(parser)
    add_json_option(parser)


def run(options):
    runs = [(path, records.read(path)) for path in options.runs]
    remarks = [remarks_on(path, metrics) for path, metrics in runs]
    compared = [compare_with_published(metrics, options.published) for _, metrics in runs]
    if options.json != "-":
        for path, of_run, comparison in zip(options.runs, remarks, compared):
            print_remarks(of_run)
            if not of_run:
                say(f"{path}: curve: no known fault")
            if comparison:
                say(f"{path}: published: {comparison}")
    write_json(options.json, "diagnose", SUCCESS, {
        "curve_remarks": [remark for of_run in remarks for remark in of_run],
        "published": [{"path": path, "text": comparison}
                      for path, comparison in zip(options.runs, compared) if comparison]})
    return SUCCESS
