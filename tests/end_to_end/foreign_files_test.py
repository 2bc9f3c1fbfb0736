"""Files that no version of this program wrote end a command with one sentence that names them."""

import shutil

from support import EndToEnd, bertha, main

LEVELS = 200_000  # far more than any stack has room for


def nested(before="", after=""):
    return before + "[" * LEVELS + "]" * LEVELS + after


class ForeignFiles(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        _, cls.good = cls.train_once()

    def check(self, arguments, *texts):
        self.assert_failure(bertha(*arguments), 4, *texts)

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


if __name__ == "__main__":
    main()
