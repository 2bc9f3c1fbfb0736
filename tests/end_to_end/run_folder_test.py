"""What a run leaves behind can be read, is complete, and keeps the rules of the benchmark's log."""

import json
import math

from support import EndToEnd, bertha, checkpoints, main, must, mllog, records, steps, tree, with_tools


class RunFolder(EndToEnd):
    TARGET = 0.02

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = cls.new_folder()
        cls.done = cls().train(cls.folder, ranks=2, mlperf__division="closed",
                               train__target_accuracy=cls.TARGET,
                               train__max_steps=200, optimizer__schedule_steps=400,
                               optimizer__warmup_steps=5, optimizer__base_learning_rate=0.02)
        cls.last = max(steps(cls.folder))

    def test_the_log_complies_with_the_rules(self):
        tools = with_tools(self.new_folder("tools"))
        done = must("check", self.folder, "--target-accuracy", self.TARGET, extra=tools)
        for said in (done.out, self.done.err):
            self.assertNotIn("curve:", said)
        done = bertha("check", self.folder / "mllog" / "result_0.txt", extra=tools)
        self.assertEqual(done.code, 8, done)  # the benchmark's own target was not reached
        self.assertIn("eval_accuracy", done.out)

    def test_the_log_has_one_run_in_order(self):
        log = mllog(self.folder / "mllog" / "result_0.txt")
        times = [record["time_ms"] for record in log]
        self.assertEqual(times, sorted(times))
        keys = [record["key"] for record in log]
        for key in ("init_start", "init_stop", "run_start", "run_stop"):
            self.assertEqual(keys.count(key), 1, key)
        places = [keys.index(key) for key in ("init_start", "submission_benchmark", "init_stop",
                                              "run_start", "eval_accuracy", "run_stop")]
        self.assertEqual(places, sorted(places))
        values = {record["key"]: record["value"] for record in log}
        self.assertEqual(values["submission_benchmark"], "bert")
        self.assertEqual(values["global_batch_size"], 12)
        self.assertEqual(values["opt_base_learning_rate"], 0.02)
        self.assertEqual(values["seed"], 3)
        self.assertEqual(values["eval_samples"], 37)
        self.assertEqual(values["train_samples"], 12 * self.last)
        stop = log[keys.index("run_stop")]
        self.assertEqual(stop["metadata"]["status"], "success")
        # One accuracy per evaluation, at the samples that the interval asks for.
        accuracies = [r for r in log if r["key"] == "eval_accuracy"]
        self.assertEqual([r["metadata"]["epoch_num"] for r in accuracies],
                         [72 * (i + 1) for i in range(len(accuracies))])
        self.assertEqual([r["value"] for r in accuracies],
                         [e["mlm_accuracy"] for e in records(self.folder, "eval")])

    def test_the_ranks_of_a_node_share_a_log(self):
        log, = (self.folder / "logs").iterdir()
        for rank in (0, 1):
            self.assertIn(f" [rank {rank}] debug: rank {rank} of 2 on ", log.read_text())
        folder = self.new_folder()
        self.train(folder, ranks=2, code=4, checkpoint__init="/nowhere")
        log, = (folder / "logs").iterdir()
        self.assertIn("error: /nowhere", log.read_text())

    def test_metrics_have_a_record_per_step_and_evaluation(self):
        self.assertEqual([r["step"] for r in records(self.folder, "step")],
                         list(range(1, self.last + 1)))
        for record in records(self.folder, "step"):
            self.assertEqual(record["samples"], 12 * record["step"])
            self.assertAlmostEqual(record["loss"], record["mlm_loss"] + record["nsp_loss"], 12)
            for key in ("step_ms", "data_wait_ms", "forward_ms", "backward_ms",
                        "communication_ms", "optimizer_ms", "seqs_per_second",
                        "tokens_per_second", "gradient_norm"):
                self.assertTrue(math.isfinite(record[key]) and record[key] >= 0, key)
        for step in range(1, 6):  # linear warm-up from 0
            self.assertAlmostEqual(steps(self.folder)[step]["learning_rate"],
                                   0.02 * (step - 1) / 5, 7)
        self.assertAlmostEqual(steps(self.folder)[6]["learning_rate"], 0.02 * (1 - 5 / 400), 7)
        self.assertEqual(records(self.folder, "stop")[-1]["status"], "success")

    def test_the_first_loss_is_that_of_guessing(self):
        first = steps(self.folder)[1]
        self.assertAlmostEqual(first["mlm_loss"], math.log(320), delta=0.1)
        self.assertAlmostEqual(first["nsp_loss"], math.log(2), delta=0.1)

    def test_event_files_have_the_curves(self):
        (path,) = (self.folder / "tb").glob("events.out.tfevents.*")
        data = path.read_bytes()
        for tag in (b"loss", b"learning_rate", b"accuracy"):
            self.assertIn(tag, data)

    def test_the_resolved_configuration_repeats_the_run(self):
        resolved = self.folder / "resolved.yaml"
        text = resolved.read_text()
        for line in ("hidden: 32", "global_batch_seqs: 12", "beta_2: 0.999", "seed: 3"):
            self.assertIn(line, text)  # what was given, and defaults too
        must("config", "check", "--config", resolved, "--ranks", 2)
        again = self.new_folder("again")
        must("train", "--config", resolved, "--output-dir", again, "--max-steps", 5,
             "--target-accuracy", 0, ranks=2)
        for step in range(1, 6):
            self.assertEqual(steps(again)[step]["loss"], steps(self.folder)[step]["loss"])

    def test_the_environment_is_recorded(self):
        env = json.loads((self.folder / "env.json").read_text())
        self.assertIn("train", env["command_line"])
        self.assertIn("bertha", json.dumps(env))

    def test_no_other_variables_than_those_of_the_page_are_written(self):
        folder = self.new_folder()
        secret, public = "correct horse battery staple", {"OMP_DYNAMIC": "0", "NCCL_DEBUG": "WARN",
                                                          "MASTER_ADDR": "a", "SLURM_JOB_NAME": "b"}
        names = ("AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "BERTHA_PASSWORD", "SLURM_CONF", "MY_OMP_X",
                 "MASTER_KEY", "NCCL_TOKEN", "SLURM_JOB_TOKEN", "CUDA_PASSWORD", "OMPI_MCA_token")
        self.train(folder, ranks=2, train__max_steps=1,
                   extra={**public, **{name: secret for name in names}})
        recorded = json.loads((folder / "env.json").read_text())["environment"]
        self.assertEqual({name: recorded.get(name) for name in public}, public)
        for name, data in tree(folder).items():
            self.assertNotIn(secret.encode(), data, name)

    def test_the_checkpoint_is_one_of_hugging_face(self):
        (name,) = checkpoints(self.folder)
        place = self.folder / "ckpt" / name
        config = json.loads((place / "config.json").read_text())
        self.assertEqual((config["hidden_size"], config["num_hidden_layers"],
                          config["vocab_size"], config["intermediate_size"]), (32, 2, 320, 64))
        self.assertEqual((place / "vocab.txt").read_bytes(), self.data.vocab.read_bytes())

    def test_a_resumed_run_keeps_the_records_of_the_first_part(self):
        folder = self.new_folder("resumed")
        self.train(folder, train__max_steps=3)
        before = {p: p.read_bytes() for p in (folder / "metrics.jsonl", folder / "resolved.yaml",
                                              folder / "env.json",
                                              folder / "mllog" / "result_0.txt")}
        self.train(folder, train__max_steps=5)
        for path, data in before.items():
            self.assertTrue(path.read_bytes().startswith(data), path)
        self.assertEqual([r["step"] for r in records(folder, "step")], [1, 2, 3, 4, 5])
        self.assertEqual(len(list(folder.glob("resolved*.yaml"))), 2)

    def test_a_start_that_is_refused_leaves_no_settings(self):
        folder = self.new_folder("refused")
        self.train(folder, train__max_steps=2)
        for code, changes in ((2, {"train__global_batch_seqs": 24}), (2, {"data__max_seq_tokens": 8}),
                              (4, {"data__max_seq_tokens": 8, "data__verify_manifest": False})):
            done = bertha("train", *self.data.config(log__run_dir=folder, train__max_steps=4,
                                                     optimizer__base_learning_rate=0.02, **changes))
            self.assert_failure(done, code)
        self.assertEqual(must("config", "diff", folder / "resolved.yaml", folder).out,
                         "no key differs\n")
        done = self.train(folder, train__max_steps=4, optimizer__base_learning_rate=0.02)
        self.assertIn("optimizer.base_learning_rate 0.01 -> 0.02", done.err)
        self.assertNotIn("global_batch_seqs", done.err)

    def test_a_curve_that_does_not_move_is_named_with_what_to_try(self):
        folder = self.new_folder()
        done = self.train(folder, train__max_steps=24, optimizer__base_learning_rate=1e-30)
        words = "curve: untouched weights: the evaluations stay at "
        self.assertEqual(done.err.count(words), 1, done)
        self.assertEqual([words in r["text"] for r in records(folder, "event")].count(True), 1)

    def test_a_loss_that_leaves_all_bounds_is_named(self):
        folder = self.new_folder()
        done = self.train(folder, train__max_steps=4, optimizer__base_learning_rate=10,
                          optimizer__max_gradient_norm=0)
        self.assertEqual(done.err.count("warning: curve: divergence: "), 1, done)

    def test_the_console_tells_how_it_went(self):
        self.assertRegex(self.done.err, r"step   1/200  mlm loss .*learning rate .*norm .* seq.*/s ")
        for word in ("target", "reached", "baseline", "throughput", "checkpoint"):
            self.assertIn(word, self.done.out)


class LogOptions(EndToEnd):
    def test_quiet_prints_no_steps(self):
        done = must("train", "--quiet",
                    *self.data.config(log__run_dir=self.new_folder(), train__max_steps=2))
        self.assertNotIn("step 1/2", done.err)

    def test_steps_between_log_lines(self):
        folder = self.new_folder()
        self.train(folder, train__max_steps=10, train__log_every_steps=4)
        self.assertEqual([r["step"] for r in records(folder, "step")], [1, 4, 8, 10])


if __name__ == "__main__":
    main()
