"""bertha-tools scale: the figures of `bertha plan` and of kernels/measured/scale.md, and refusals.

usage: scale_test.py BERTHA
"""

import json
import pathlib
import subprocess
import sys
import unittest

from tool_case import ToolCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
BERTHA = sys.argv[1]
NETWORK = "ib-ndr400x8"
# (recipe, ranks, network, ranks of a node, settings)
CASES = (("mlperf_closed_3472gpu_13888", 3472, NETWORK, 8),
         ("mlperf_closed_512gpu_3072", 512, NETWORK, 8),
         ("mlperf_closed_512gpu_3072", 64, "ib-hdr200x8", 8, "train.precision=fp8"),
         ("mlperf_closed_64gpu_4608", 64, "eth-100x1", 8, "train.accumulation_steps=9"),
         ("mlperf_closed_64gpu_4608", 64, NETWORK, 8, "train.max_steps=600"),
         ("mlperf_closed_8gpu_768", 8, NETWORK, 8),
         ("mlperf_closed_8gpu_448", 1, NETWORK, 8),
         ("mlperf_closed_8gpu_448", 16, "12:30", 8, "optimizer.shard_group=world",
          "cuda.exchange=nccl", "optimizer.clip=before"),
         ("mlperf_closed_8gpu_448", 8, "46", 1, "data.exchange_padding=off"),
         ("medium_from_scratch", 1, NETWORK, 8), ("quickstart_gpu", 2, NETWORK, 8),
         ("models/large", 4, NETWORK, 8, "data.synthetic=true", "train.global_batch_seqs=64"))
EXCHANGE = ("gradient sums", "weight gathers", "slowed by them", "norms over ranks")


def configured(recipe, *settings):
    words = ["--config", CONFIGS / f"{recipe}.yaml"]
    for setting in settings:
        words += ["--set", setting]
    return words


class Scale(ToolCase):
    def rows(self, *words):
        out, _ = self.tool("scale", "--bertha", BERTHA, *words, "--json", "-")
        return json.loads(out)["rows"]

    def refusal(self, *words, code=2):
        return self.tool("scale", "--bertha", BERTHA, *words, code=code)[1]

    def plan(self, *words):
        """The report of the C++ command, which also reports what it has not found."""
        done = subprocess.run([BERTHA, "plan", *map(str, words), "--json", "-"],
                              capture_output=True, check=False)
        self.assertIn(done.returncode, (0, 4), done.stderr)
        return json.loads(done.stdout)

    def test_figures_are_those_of_plan(self):
        for recipe, ranks, network, per_node, *settings in CASES:
            words = [*configured(recipe, *settings), "--ranks", ranks, "--network", network,
                     "--ranks-per-node", per_node]
            wanted, (found,) = self.plan(*words)["time"], self.rows(*words)
            self.assertEqual([part["name"] for part in found["parts"]],
                             [part["name"] for part in wanted["parts"]])
            for part, right in zip(found.pop("parts"), wanted.pop("parts")):
                for name in ("ms", "hidden_ms"):
                    self.assertAlmostEqual(part[name], right[name], 9, (words, part["name"]))
            for name, right in wanted.items():
                if isinstance(right, float):
                    self.assertAlmostEqual(found[name] / right, 1, 9, (words, name))
                else:
                    self.assertEqual(found[name], right, (words, name))

    def table_row(self, seen, seen_s, precision, *words):
        (row,) = self.rows(*words)
        part = {part["name"]: part["ms"] - part["hidden_ms"] for part in row["parts"]}
        run = f"{seen_s:.1f} | {row['seconds']:.1f}" if seen_s else " | "
        return (f"{precision} | {int(row['tokens_per_rank']):,} | {seen:.1f} | "
                f"{row['step_ms']:.1f} | {part['forward and backward']:.1f} | "
                f"{abs(part['uneven lengths'] + part['slowest GPU']):.1f} | "
                f"{sum(part.get(name, 0) for name in EXCHANGE):.1f} | {run} |")

    def test_the_table_of_the_document_is_the_models(self):
        document = (ROOT / "kernels" / "measured" / "scale.md").read_text()
        measured = ((1, 1024, 9.1, 9.2), (1, 2048, 12.0, 11.4), (1, 4096, 18.9, 15.8),
                    (1, 24576, 89.2, 65.0), (2, 24576, 90.4, 64.9), (4, 24576, 90.2, 65.8))
        for ranks, tokens, bf16_ms, fp8_ms in measured:
            for precision, key, seen in (("16 bits", "bf16", bf16_ms), ("fp8", "fp8", fp8_ms)):
                row = self.table_row(seen, 0, precision, *configured(
                    "models/large", f"train.precision={key}"), "--ranks", ranks,
                    "--tokens-per-rank", tokens)
                self.assertIn(f"| {ranks} | measured | {row}\n", document)
        published = (("mlperf_closed_8gpu_768", 8, "fp8", 90.0, 312.7, "v4.0, H200"),
                     ("mlperf_closed_64gpu_4608", 64, "fp8", 81, 53.9, "v4.0, H100"),
                     ("mlperf_closed_512gpu_3072", 512, "bf16", 21.2, 20.1, "v3.0, H100"),
                     ("mlperf_closed_3472gpu_13888", 3472, "bf16", 17.3, 7.16, "v4.0, H100"))
        for recipe, ranks, key, seen, seen_s, where in published:
            row = self.table_row(seen, seen_s, "fp8" if key == "fp8" else "16 bits", *configured(
                recipe, f"train.precision={key}"), "--ranks", ranks)
            self.assertIn(f"| {ranks} | NVIDIA {where} | {row}\n", document)

    def test_more_ranks_do_not_compute_more(self):
        rows = self.rows(*configured("mlperf_closed_512gpu_3072"))
        self.assertEqual([row["ranks"] for row in rows],
                         [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
        for before, row in zip(rows, rows[1:]):
            self.assertLess(row["parts"][0]["ms"], before["parts"][0]["ms"])
            self.assertGreater(row["seqs_per_second"], before["seqs_per_second"])
        for row in rows:
            for part in row["parts"]:
                self.assertLessEqual(0, part["hidden_ms"])
                self.assertLessEqual(part["hidden_ms"], part["ms"] + 1e-9)

    def test_prints_a_table_and_draws(self):
        words = configured("mlperf_closed_64gpu_4608")
        out, _ = self.tool("scale", "--bertha", BERTHA, *words, "--ranks", "8,64", "--plot",
                           self.folder / "scale.svg")
        time = self.plan(*words, "--ranks", 64, "--network", NETWORK)["time"]
        for text in (f"{time['step_ms']:.2f}", f"{time['seqs_per_second']:,.0f}",
                     f"64 GPUs: {time['bounded_by']}", "2,798,080 samples, as the benchmark's"):
            self.assertIn(text, out)
        self.assertIn("sequences/s", (self.folder / "scale.svg").read_text())

    def test_mistakes_are_sentences(self):
        recipe = configured("mlperf_closed_512gpu_3072")
        for words, said in ((["--ranks", 12], "found 12, want whole nodes of 8 GPUs"),
                            (["--ranks", 7], "3072 is not divisible by 7 ranks"),
                            (["--ranks", "8,x"], "want numbers from 1"),
                            (["--network", "46:x"], "found \"46:x\", want ib-ndr400x8"),
                            (["--ranks-per-node", 0], "want numbers above 0"),
                            (["--set", "train.precision=fp32"], "is fp32"),
                            (["--set", "train.no=1"], "train.no"),
                            (["--plot", "scale.gif"], "ends with .svg")):
            self.assertIn(said, self.refusal(*recipe, *words))
        self.assertIn("is not a program", self.tool("scale", "--bertha", self.folder, code=5)[1])

    def test_a_saved_report_needs_no_program(self):
        words = configured("mlperf_closed_512gpu_3072")
        wanted = self.rows(*words)
        done = subprocess.run([BERTHA, "config", "show", *map(str, words), "--json", "-"],
                              capture_output=True, check=True)
        config = {key: entry["value"] for key, entry in json.loads(done.stdout)["keys"].items()}
        report, saved = self.plan(*words), self.folder / "plan.json"
        saved.write_text(json.dumps(report))
        self.assertEqual(self.rows("--plan", saved, *words), wanted)
        self.assertIn("has no \"config\"", self.refusal("--plan", saved))
        saved.write_text(json.dumps({**report, "config": config}))
        out, _ = self.tool("scale", "--bertha", "none", "--plan", saved, "--json", "-")
        self.assertEqual(json.loads(out)["rows"], wanted)
        for key, odd in (("train.global_batch_seqs", "many"), ("train.global_batch_seqs", 10**30),
                         ("model.hidden", None), ("model.layers", 10**15), ("eval.batch_seqs", 0),
                         ("eval.every_samples", 1e-9), ("data.max_seq_tokens", -3),
                         ("optimizer.bucket_mib", float("nan"))):
            saved.write_text(json.dumps({**report, "config": {**config, key: odd}}))
            said = self.refusal("--plan", saved, "--ranks", "8", code=4)
            self.assertIn("is not what a prediction needs", said, key)
        for text in ("", "[" * 100_000, "7", "{\"config\": 7}", "null"):
            saved.write_text(text)
            self.assertIn("plan.json: ", self.refusal("--plan", saved, code=4), text[:9])
        self.assertIn("is not a file", self.refusal("--plan", self.folder, code=4))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
