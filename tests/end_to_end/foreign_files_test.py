"""Files that no version of this program wrote end a command with one sentence that names them."""

import shutil

from support import EndToEnd, bertha, checkpoints, main

LEVELS = 200_000  # far more than any stack has room for


def nested(before="", after=""):
    return before + "[" * LEVELS + "]" * LEVELS + after


class ForeignFiles(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder = cls.new_folder("first")
        cls().train(cls.run_folder, train__max_steps=2, checkpoint__every_steps=2)
        cls.good = cls.run_folder / "ckpt" / checkpoints(cls.run_folder)[-1]

    def check(self, arguments, *texts, code=4):
        return self.assert_failure(bertha(*arguments), code, *texts)

    def test_json_that_is_nested_too_deep(self):
        data = self.new_folder("data")
        shutil.copytree(self.data.train, data)
        (data / "manifest.json").write_text(nested('{"format_version":', "}"))
        deep = "nested deeper than 64 levels"
        self.check(["data", "verify", data], data / "manifest.json", deep)
        self.check(["train", *self.data.config(log__run_dir=self.new_folder(), data__train=data)],
                   data / "manifest.json", deep)

        weights = self.new_folder("weights")
        weights.mkdir()
        (weights / "config.json").write_text(nested('{"model_type":', "}"))
        shutil.copy(self.good / "model.safetensors", weights)
        self.check(["eval", "--checkpoint", weights, *self.data.config()],
                   weights / "config.json", deep)
        header = nested('{"tensor":', "}").encode()
        (weights / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        (weights / "config.json").unlink()
        self.check(["eval", "--checkpoint", weights, *self.data.config()],
                   weights / "model.safetensors", deep)

    def test_a_log_line_that_is_nested_too_deep(self):
        log = self.scratch / "result_0.txt"
        good = (self.run_folder / "mllog" / "result_0.txt").read_text()
        log.write_text(good + ":::MLLOG " + nested('{"key":', "}") + "\n")
        done = bertha("log", "check", log)
        self.assertEqual(done.code, 8, done)
        self.assertIn("nested deeper than 64 levels", done.out + done.err)


if __name__ == "__main__":
    main()
