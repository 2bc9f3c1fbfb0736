"""Ranks on several nodes divide the optimizer's state inside a node, or over all in two levels.

The nodes are pretended: NCCL_HOSTID tells apart what is one machine.
"""

import os
import signal
import time

from support import (ON_A_SMALL_DISK, EndToEnd, Running, checkpoints, command, main, messages,
                     monitoring, open_mpi_version, per_rank, rank_of, records, run, tree)

STEPS = 8
MIDDLE = 4
TWO_NODES = [2, 2]
# Of all small vectors of a step: norms of each tensor, losses, counts.
SMALL_BYTES = 8192


class Groups(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.flat = cls.new_folder("flat")
        cls().train_in(cls.flat, 4)

    def train_in(self, folder, ranks, **changes):
        settings = dict(train__max_steps=STEPS, optimizer__bucket_mib=0.05)
        return self.train(folder, ranks=ranks, **{**settings, **changes})

    @staticmethod
    def optimizer_files(folder):
        last = folder / "ckpt" / checkpoints(folder)[-1]
        return sorted(path.name for path in last.glob("optimizer-*"))

    def test_nodes_with_copies_of_the_state(self):
        folder = self.new_folder("node")
        done = self.train_in(folder, TWO_NODES)
        self.assertIn("2 nodes of 2 ranks: each node has the whole state", done.out + done.err)
        self.assert_same_steps(self.flat, folder, STEPS)
        self.assertEqual(self.optimizer_files(folder), [
            "optimizer-00000-of-00002.safetensors", "optimizer-00001-of-00002.safetensors"])

    def test_two_levels(self):
        folder = self.new_folder("levels")
        done = self.train_in(folder, TWO_NODES, optimizer__shard_group="world")
        self.assertIn("divided among all ranks, with sums by node first", done.out + done.err)
        self.assert_same_steps(self.flat, folder, STEPS)
        self.assertEqual(len(self.optimizer_files(folder)), 4)

    def check_as_flat(self, **settings):
        flat, folder = self.new_folder("flat"), self.new_folder("node")
        self.train_in(flat, 4, **settings)
        self.train_in(folder, TWO_NODES, **settings)
        self.assert_same_steps(flat, folder, STEPS)

    def test_clipping_before_the_reduction(self):
        self.check_as_flat(optimizer__clip="before", optimizer__max_gradient_norm=0.3)

    def test_adamw(self):
        self.check_as_flat(optimizer__name="adamw")

    def test_the_same_run_has_the_same_bytes(self):
        for group in ("node", "world"):
            folders = [self.new_folder(group) for _ in range(2)]
            for folder in folders:
                self.train_in(folder, TWO_NODES, optimizer__shard_group=group)
            ours, theirs = (tree(folder / "ckpt" / f"step_{STEPS:08d}") for folder in folders)
            for name in ours:
                if name.endswith(".safetensors"):
                    self.assertEqual(ours[name], theirs[name], f"{name} of {group}")

    def check_resume(self, *parts):
        """Each part with other ranks or another group, a step or more each."""
        folder = self.new_folder("resumed")
        for number, (ranks, group) in enumerate(parts, start=1):
            last = STEPS if number == len(parts) else MIDDLE + number - 1
            self.train_in(folder, ranks, train__max_steps=last, optimizer__shard_group=group)
        self.assertEqual([run["first_step"] for run in records(folder, "run")],
                         [0, *range(MIDDLE, MIDDLE + len(parts) - 1)])
        self.assert_same_steps(self.flat, folder, STEPS)

    def test_resume_with_other_groups(self):
        self.check_resume((TWO_NODES, "node"), (2, "auto"), (TWO_NODES, "world"), ([1, 1, 1], "node"))

    def test_resume_of_a_flat_run_in_groups(self):
        self.check_resume((4, "auto"), (TWO_NODES, "node"), (TWO_NODES, "world"))

    def test_unequal_nodes(self):
        done = self.train_in(self.new_folder("refused"), [2, 1], code=2,
                             optimizer__shard_group="node")
        self.assertIn("optimizer.shard_group is node, but nodes have 1 to 2 ranks",
                      done.out + done.err)
        done = self.train_in(self.new_folder("flat"), [2, 1], train__max_steps=1)
        self.assertIn("3 ranks on nodes of 1 to 2: ", done.out + done.err)
        self.assertIn("with sums over all", done.out + done.err)

    def bytes_per_step(self, group):
        """What each rank sends to each other rank in a step, beside MPI's own collectives."""
        counts = []
        for last in (2, 8):
            output = self.new_folder("counts")
            output.mkdir()
            done = run(command(["train", *self.data.config(
                log__run_dir=self.new_folder("counted"), train__max_steps=last,
                eval__every_samples=10**9, checkpoint__at_end=False,
                optimizer__shard_group=group)], TWO_NODES), monitoring(output))
            self.assertEqual(done.code, 0, done)
            counts.append([{m.to: m.bytes for m in messages(output, rank) if m.is_own}
                           for rank in range(4)])
        return [{to: (more[to] - less.get(to, 0)) / 6 for to in more}
                for less, more in zip(*counts)]

    def test_only_the_shard_goes_to_other_nodes(self):
        weights = [path for name, path in self.files_of_last(self.flat) if name == "model.safetensors"]
        elements = weights[0].stat().st_size / 4
        for group in ("node", "world"):
            for rank, sent in enumerate(self.bytes_per_step(group)):
                neighbour, peer = rank ^ 1, rank ^ 2
                # Between two ranks of a level: half a view for its sum, half for its gather.
                self.assertGreater(sent[neighbour], 4 * elements * 0.9, f"{group}: {sent}")
                self.assertLess(sent[peer], 2 * elements * 1.1 + SMALL_BYTES, f"{group}: {sent}")
                self.assertGreater(sent[peer], 2 * elements * 0.9, f"{group}: {sent}")
                self.assertLess(sent.get(peer ^ 1, 0), SMALL_BYTES, f"{group}: {sent}")

    @staticmethod
    def files_of_last(folder):
        return [(path.name, path) for path in (folder / "ckpt" / checkpoints(folder)[-1]).iterdir()]

    def check_lost(self, killed_ranks, *texts):
        folder = self.new_folder("lost")
        words = self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                 checkpoint__every_steps=20, eval__every_samples=10**9)
        # As launch/run_mpirun.sh sets it.
        with Running("train", *words, ranks=TWO_NODES,
                     extra={"OMPI_MCA_odls_base_sigkill_timeout": "4"}) as job:
            job.wait_for(lambda: checkpoints(folder), "a checkpoint")
            time.sleep(2)  # by then nodes have exchanged their statuses
            ours = sorted(job.rank_processes(), key=rank_of)
            for rank in killed_ranks:
                os.kill(ours[rank], signal.SIGKILL)
            killed = time.monotonic()
            done = job.wait()
        self.assertLess(time.monotonic() - killed, 10, done)
        self.assertEqual(done.code, 137, done)
        # The mpirun of Open MPI 5 kills all half a second after a loss: there is no time to agree on who
        # says it, and the last line of a script takes the rank from what mpirun says.
        if open_mpi_version() < 5 or done.errors():
            self.assertEqual(len(done.errors()), 1, done)
            for text in texts:
                self.assertIn(text, done.errors()[0])
        self.assertEqual(job.rank_processes(), [])

    def test_a_lost_rank_of_another_node_is_named(self):
        self.check_lost([3], "error: rank 3 of 4 on ")

    def test_an_error_on_another_node_is_said_once(self):
        words = command(["train", *self.data.config(
            log__run_dir=self.new_folder("full"), train__max_steps=2,
            optimizer__shard_group="world")], 0)
        nodes = [f"export NCCL_HOSTID=pretended{node}" for node in (0, 0, 1, 1)]
        nodes[3] += f"; {ON_A_SMALL_DISK}"
        done = run(per_rank(nodes, words), {"OMPI_MCA_odls_base_sigkill_timeout": "4"})
        self.assert_failure(done, 4, "(rank 3 of 4 on ", "optimizer-00003-of-00004")

    def test_a_lost_node_is_named_by_another(self):
        self.check_lost([2, 3], "error: ranks 2-3 on ", "have not answered since the launcher")
        # Of the first node, the others know rank 0.
        self.check_lost([0, 1], "error: rank 0 on ", "has not answered since the launcher")


if __name__ == "__main__":
    main()
