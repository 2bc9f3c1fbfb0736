"""bertha-tools diagnose finds the bad shapes of curves, and compares evaluations with published runs."""

import math
import re

from tool_case import (BERT_LARGE, ESCAPES, SMALL_MODEL, ToolCase, evaluations, main, metrics_of, run_records,
                       step, write)
from published_runs import PUBLISHED_RUNS
from bertha_tools import diagnose

RISE = [0.372, 0.401, 0.455, 0.57]
FREQUENCIES = [(0.0512, 7.25, 0.55), (0.0521, 7.22, 0.56), (0.0519, 7.21, 0.55), (0.0523, 7.22, 0.57)]
SENTENCES = [(0.0512, 7.25, 0.93), (0.0521, 7.22, 0.95), (0.0519, 7.21, 0.96), (0.0523, 7.22, 0.97)]
# bert-medium from random weights, samples 920k to 1.08M, as measured.
COPIES = [(0.1530, 6.156, 0.937), (0.1532, 6.139, 0.930), (0.1527, 6.127, 0.938), (0.1537, 6.114, 0.941)]
# launch/quickstart on WordNet's glosses, from random weights.
QUICKSTART = [(0.046, 6.906, 0.5945), (0.0833, 6.6, 0.5945), (0.1048, 6.47, 0.5915), (0.1245, 6.42, 0.5945)]
SAME = (0.021, 8.31, 0.5)


def large(accuracies, steps=(), **more):
    """BERT-large's records from accuracies alone; its loss falls as they rise."""
    figures = [(one, 1.3 + 7 * (0.72 - one)) for one in accuracies]
    return [*run_records(BERT_LARGE, **more), *steps, *evaluations(figures)]


def small(figures=(), steps=(), every=6_400, **more):
    return [*run_records(SMALL_MODEL, **more), *steps, *evaluations(figures, every)]


def medium(figures):
    return small(figures, constant_answer=0.052)


def falling(*scales):
    return [step(i + 1, loss_scale=scale) for i, scale in enumerate(scales)]


def saturated(first, last, share):
    return [step(i, fp8_saturated=share if i > 30 else 1e-3 if i % 3 == 0 else 1e-7)
            for i in range(first, last + 1)]


POWERS = [2.0**(20 - i) for i in range(1, 18)]
NOT_LOADED = [step(1, 10.41), step(50, 9.2)]
# name: (records, shapes)
CURVES = {
    "the quickstart": (small(QUICKSTART, [step(1, 8.33), step(50, 7.95), step(100, 6.9)]), []),
    "the score of the start checkpoint, once": (large([0.3409]), []),
    "the same twice": (large([0.3409, 0.3412]), ["untouched weights"]),
    "and then more": (large([0.3409, 0.3412, 0.36]), []),
    "two evaluations that repeat": (small([SAME] * 2), []),
    "three that repeat": (small([SAME] * 3), ["untouched weights"]),
    "a loss that moves": (small([SAME, SAME, (0.021, 8.2, 0.5)]), []),
    "a short stay at 0.62": (large([*RISE, 0.615, 0.622]), []),
    "a long stay at 0.62": (large([*RISE, 0.615, 0.622, 0.626]), ["plateau at 0.62"]),
    "a stay that has ended": (large([*RISE, 0.615, 0.622, 0.626, 0.70]), []),
    "the stay of another model": (large([0.61, 0.62, 0.625, 0.626], parameters=500_000), []),
    "the loss of random weights": (large([], NOT_LOADED), ["checkpoint not loaded"]),
    "without a checkpoint": (large([], NOT_LOADED, start_weights=""), []),
    "of a resumed run": (large([], NOT_LOADED, first_step=400), []),
    "the loss of a checkpoint": (large([], [step(1, 4.05), step(50, 9.2)]), []),
    "word frequencies": (medium(FREQUENCIES), ["word frequencies only"]),
    "a loss that falls": (medium([*FREQUENCIES[:3], (0.0523, 7.05, 0.57)]), []),
    "more words": (medium([*FREQUENCIES[:3], (0.08, 7.22, 0.57)]), []),
    "fewer words": (medium([*FREQUENCIES[:3], (0.03, 7.22, 0.57)]), []),
    "three evaluations": (medium(FREQUENCIES[:3]), []),
    "next sentences": (medium(SENTENCES), ["next sentences only"]),
    "next sentences unknown": (medium([*SENTENCES[:3], (0.0523, 7.22, None)]), ["word frequencies only"]),
    "next sentences and more": (medium([*SENTENCES[:3], (0.2, 7.22, None)]), []),
    "copied words": (medium(COPIES), ["context not used"]),
    "copied words and more": (medium([*COPIES[:3], (0.17, 6.114, 0.55)]), []),
    "not yet copied": (medium([*COPIES[:3], (0.11, 6.114, 0.55)]), []),
    "copied, and falling": (medium([*COPIES[:3], (0.1540, 5.9, 0.55)]), []),
    "a scale that is found": (small(steps=falling(*POWERS[:12])), []),
    "a scale that falls": (small(steps=falling(*POWERS)), ["collapsing loss scale"]),
    "a scale that stays": (small(steps=falling(*POWERS, POWERS[-1])), []),
    "a scale below 1": (small(steps=falling(0.5)), ["collapsing loss scale"]),
    "no scale": (small(steps=falling(*[1.0] * 30)), []),
    "saturation now and then": (small(steps=saturated(1, 30, 0)), []),
    "lasting saturation": (small(steps=saturated(1, 40, 2e-5)), ["fp8 saturation"]),
    "too few records": (small(steps=saturated(31, 40, 2e-5)), []),
    "a loss near guessing": (small(steps=[step(40, 16.6)]), []),
    "a loss far above it": (small(steps=[step(40, 16.7)]), ["divergence"]),
    "an infinite number": (small([(None, None, None)] * 5, [step(i, None) for i in range(1, 21)]), []),
}


def shapes_of(records):
    return [shape for shape, _ in diagnose.examine(metrics_of(records))]


def text_of(records):
    (_, text), = diagnose.examine(metrics_of(records))
    return text


class Shapes(ToolCase):
    def test_are_found_where_they_are(self):
        for name, (records, shapes) in CURVES.items():
            with self.subTest(name):
                out = self.tool("diagnose", write(self.folder, records))
                self.assertEqual(re.findall(r": curve: ([\w. ]+?)(?:: .*)?$", out, re.M),
                                 shapes or ["no known fault"])

    def test_are_not_in_any_published_run_at_any_point(self):
        for name, _, runs in PUBLISHED_RUNS:
            for run in runs:
                for count in range(len(run) + 1):
                    records = large(run[:count], [step(1, 4.05), step(50, 3.7)])
                    self.assertEqual(shapes_of(records), [], f"{name} after {count}")

    def test_say_what_was_found_and_what_to_try(self):
        for records, *words in (
                (large([0.3409, 0.3407, 0.3412]), "stay at 0.3412, the score of the start checkpoint"),
                (CURVES["a long stay at 0.62"][0], "0.6260 for 300k samples"),
                (large([], NOT_LOADED), "ln 30522 = 10.33", "ckpt/start"),
                (medium(FREQUENCIES), "7.22"), (medium(COPIES), "nsp_weight"),
                (small(steps=falling(*POWERS)), "8.0e0 with 17 updates skipped"),
                (small(steps=saturated(1, 40, 2e-5)), "at step 40"),
                (small(steps=[step(40, 16.7)]), "step 40 ", "more than guessing, 8.32",
                 "optimizer.max_gradient_norm")):
            for word in words:
                self.assertIn(word, text_of(records))
        without = [(accuracy, loss, 0.55) for accuracy, loss, _ in COPIES]
        self.assertNotIn("nsp_weight", text_of(medium(without)))

    def test_odd_records_have_none(self):
        for odd in (None, "text", True, [], math.nan, math.inf, 10**400):
            records = [*run_records(BERT_LARGE, vocab_size=odd, start_weights=odd),
                       *[step(i, odd, loss_scale=odd, fp8_saturated=odd) for i in range(1, 20)],
                       *evaluations([(odd, odd, odd)] * 5)]
            found = [shape for shape in shapes_of(records) if shape != "fp8 saturation"]
            self.assertEqual(found, [], odd)

    def test_names_in_records_cannot_steer_the_terminal(self):
        out = self.tool("diagnose", write(self.folder, large([], NOT_LOADED, start_weights=ESCAPES)))
        self.assert_cannot_steer(out)
        self.assertIn(r"\x1b[31mred", out)

    def test_files_without_a_run_are_refused(self):
        (self.folder / "metrics.jsonl").write_text("no record\n")
        for path, words in (("/nowhere", "cannot be read"), (self.folder, "no record of a run")):
            self.assertIn(words, self.tool("diagnose", path, code=4))


class PublishedRuns(ToolCase):
    def test_with_the_nearest_batch_size_are_compared(self):
        for batch, nearest in ((64, 448), (448, 448), (768, 768), (4096, 768)):
            run = metrics_of(large([], global_batch_seqs=batch))
            self.assertEqual(diagnose.published_for(run, "auto")[1], nearest)

    def test_are_compared_with_bert_large_or_when_asked_for(self):
        for changes, wanted, expected in (({}, "auto", True),
                                          ({"target_accuracy": 0}, "auto", False),
                                          ({"parameters": 110_106_428}, "auto", False),
                                          ({"parameters": 110_106_428}, "always", True),
                                          ({}, "never", False)):
            found = diagnose.published_for(metrics_of(large([], **changes)), wanted)
            self.assertEqual(found is not None, expected, (changes, wanted))

    def test_make_a_band_in_which_ended_runs_keep_their_accuracy(self):
        for published, runs in zip(diagnose.PUBLISHED, PUBLISHED_RUNS):
            self.assertEqual(published[:2], runs[:2])
            samples, low, high = diagnose.band_of(published)
            self.assertEqual(len(samples), 1 + max(map(len, runs[2])))
            self.assertEqual((low[0], high[0]), (diagnose.UNTRAINED_ACCURACY,) * 2)
            for i in range(1, len(samples)):
                accuracies = [run[min(i, len(run)) - 1] for run in runs[2]]
                self.assertEqual((low[i], high[i]), (min(accuracies), max(accuracies)))
        samples, low, high = diagnose.band_of(diagnose.PUBLISHED[0])
        self.assertEqual((samples[3], low[3], high[3]), (450_000, 0.4677, 0.5085))
        self.assertEqual((samples[-1], low[-1]), (2_700_000, 0.7200))

    def test_place_evaluations(self):
        for accuracies, words in (([0.3779], "0 are below, 1 within and 0 above"),
                                  ([0.36, 0.39, 0.60], "2 are below, 0 within and 1 above"),
                                  ([], "of 0 evaluations")):
            self.assertIn(words, self.tool("diagnose", write(self.folder, large(accuracies))))
        self.assertIn("Baidu v2.0", self.report("diagnose", self.folder)["published"][0]["text"])


if __name__ == "__main__":
    main()
