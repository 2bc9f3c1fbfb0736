"""A run folder that Bertha 1.0.0 left goes on in this program as it would have gone on in that one.

tests/golden/run_of_1_0_0.tar.xz has a run of two ranks that 1.0.0 stopped at step 6, the data of it,
and the records of the same run that went on to step 16 (golden/README.md).
"""

import json
import pathlib
import shutil
import tarfile

from support import EndToEnd, bertha, checkpoints, main, must, records, steps, tree, with_tools

ARCHIVE = pathlib.Path(__file__).resolve().parents[1] / "golden" / "run_of_1_0_0.tar.xz"
STOPPED, LAST = 6, 16


class OldRun(EndToEnd):
    needs_data = False

    def unpack(self):
        place = self.new_folder()
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(place)
        return place

    def go_on(self, place, ranks):
        return bertha("train", "--config", "run/resolved.yaml", "--set", f"train.max_steps={LAST}",
                      ranks=ranks, cwd=place)

    def test_it_goes_on_at_the_same_sample_with_the_same_losses(self):
        place = self.unpack()
        done = self.go_on(place, 2)
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.err.count("log.plots is retired"), 1, done)
        self.assertIn("continues with train.last_layer all_rows, with which this run began", done.out + done.err)
        self.assertEqual([r["first_step"] for r in records(place / "run", "run")], [0, STOPPED])
        self.assert_same_steps(place / "uninterrupted", place / "run", LAST)
        self.assertIn(f"step_{LAST:08d}", checkpoints(place / "run"))
        ends = [records(place / folder, "eval")[-1] for folder in ("uninterrupted", "run")]
        self.assertEqual(ends[0]["mlm_accuracy"], ends[1]["mlm_accuracy"])

    def test_it_goes_on_with_other_numbers_of_ranks(self):
        for ranks in (1, 4):  # their dropout differs
            place = self.unpack()
            done = self.go_on(place, ranks)
            self.assertEqual(done.code, 0, done)
            found, wanted = (steps(place / folder) for folder in ("run", "uninterrupted"))
            self.assertEqual([found[step]["samples"] for step in sorted(found)],
                             [wanted[step]["samples"] for step in sorted(wanted)])

    def test_other_data_are_refused(self):
        place = self.unpack()
        shutil.copytree(place / "eval", place / "other")
        before = tree(place / "run" / "ckpt")
        done = bertha("train", "--config", "run/resolved.yaml", "--set", "data.train=other",
                      "--set", f"train.max_steps={LAST}", cwd=place)
        self.assert_failure(done, 2, "was trained on other shards")
        self.assertEqual(tree(place / "run" / "ckpt"), before)

    def test_it_is_read_by_every_command_and_tool(self):
        place = self.unpack()
        shown = must("checkpoint", "show", "run", cwd=place).out
        for text in (f"step         {STOPPED}", "all files have the size and hash"):
            self.assertIn(text, shown)
        must("checkpoint", "verify", "run", cwd=place)
        must("checkpoint", "export", "run", "--output", "model", cwd=place)
        must("config", "diff", "run", "run/resolved.yaml", cwd=place)
        must("eval", "--config", "run/resolved.yaml", "--checkpoint", "run", "--json", "eval.json",
             cwd=place)
        found = json.loads((place / "eval.json").read_text())
        last = records(place / "run", "eval")[-1]
        if last["step"] == STOPPED:
            self.assertAlmostEqual(found["mlm_loss"], last["mlm_loss"], delta=1e-4)
        shutil.copytree(place / "run", place / "again")
        tools = with_tools(self.new_folder("tools"))
        for words in (("watch", "run", "--once"), ("diagnose", "run"), ("export", "run", "--csv", "csv"),
                      ("compare", "run", "again")):
            done = bertha(*words, cwd=place, extra=tools)
            self.assertEqual(done.code, 0, f"{words}: {done}")


if __name__ == "__main__":
    main()
