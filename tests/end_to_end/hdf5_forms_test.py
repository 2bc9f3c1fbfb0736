"""Every command reads shards as the published scripts and h5py store them, filters included."""

import hashlib
import pathlib
import shutil

from support import EndToEnd, bertha, main, must, steps

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
# The same rows: lists without a filter, in the form that the published shuffling writes, and others.
FORMS = ("h5py_varlen", "h5py_forms/varlen_level_0", "h5py_forms/fixed_level_0",
         "h5py_forms/packed_level_0", "h5py_forms/varlen_shuffle_gzip", "h5py_forms/varlen_lzf",
         "h5py_forms/varlen_compact", "h5py_forms/fixed_scaleoffset_shuffle_lzf")


class Hdf5Forms(EndToEnd):
    needs_data = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folders = []
        for form in FORMS:
            folder = cls.new_folder("data")
            folder.mkdir()
            shutil.copy(GOLDEN / f"{form}.hdf5", folder / "part_0.hdf5")
            cls.folders.append(folder)

    def of_each_form(self, work, without="none"):
        """What `work` gives of the folder of each form must be equal."""
        forms = [form for form in FORMS if without not in form]
        results = [work(self.folders[FORMS.index(form)]) for form in forms]
        for form, result in zip(forms, results):
            self.assertEqual(result, results[0], form)

    @staticmethod
    def settings(folder):
        values = {"model.name": "tiny", "model.layers": 1, "model.hidden": 16, "model.heads": 1,
                  "model.feed_forward": 16, "data.train": folder, "data.eval": folder,
                  "train.backend": "cpu", "train.threads_per_rank": 1, "train.max_steps": 1,
                  "train.global_batch_seqs": 6, "train.target_accuracy": 0,
                  "train.log_every_steps": 1, "eval.every_samples": 6, "eval.batch_seqs": 6,
                  "optimizer.schedule_steps": 20}
        return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]

    def test_data_commands(self):
        def histogram(folder):
            must("data", "verify", folder)
            lines = must("data", "stats", folder).out.splitlines()
            return [line for line in lines if "tokens" in line or line.startswith("samples")]

        self.of_each_form(histogram)

    def test_a_flipped_bit_that_ends_the_library_is_found_by_verify(self):
        folder = self.new_folder("data")
        folder.mkdir()
        shard = bytearray((GOLDEN / "h5py_forms/varlen_level_0.hdf5").read_bytes())
        shard[2530] ^= 2  # ends HDF5 1.10.8 by a division by zero
        (folder / "part_0.hdf5").write_bytes(shard)
        done = bertha("data", "verify", folder)
        self.assertEqual(done.code, 4, done)
        self.assertIn("part_0.hdf5: ", done.out)

    def test_conversion_and_packing(self):
        def digest_after(command, folder):
            output = self.new_folder(command)
            must("data", command, folder, "--output", output)
            (shard,) = output.glob("part*")
            return hashlib.md5(shard.read_bytes()).hexdigest()

        self.of_each_form(lambda folder: digest_after("convert", folder))
        self.of_each_form(lambda folder: digest_after("pack", folder), without="packed")

    def test_batches_and_training(self):
        def batches(folder):
            output = self.new_folder("dump")
            must("data", "dump-batches", *self.settings(folder), "--output", output)
            return {file.name: file.read_bytes() for file in output.glob("*.safetensors")}

        def loss(folder):
            run = self.new_folder()
            must("train", *self.settings(folder), "--set", f"log.run_dir={run}")
            return steps(run)[1]["loss"]

        self.assertNotEqual(batches(self.folders[0]), {})
        self.of_each_form(batches)
        self.of_each_form(loss)


if __name__ == "__main__":
    main()
