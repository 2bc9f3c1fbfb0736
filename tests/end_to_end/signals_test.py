"""SIGTERM and SIGUSR1 stop all ranks at a step's end with the state saved."""

import os
import pathlib
import signal
import time

from support import (MOST_FAILURE_SECONDS, EndToEnd, Running, bertha, checkpoints, main, parent,
                     records, steps, steps_so_far, with_tools)


def has_mpi(process):
    """MPI has threads of its own; nothing of a run is there before it. A library of Debian 13 has one
    too while it is loaded, before the program takes signals."""
    try:
        text = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:  # gone meanwhile
        return False
    status = dict(line.split(":", 1) for line in text.splitlines())
    takes_signals = int(status["SigCgt"], 16) >> signal.SIGTERM - 1 & 1
    return takes_signals and int(status["Threads"]) > 1


class Signals(EndToEnd):
    def words(self, folder):
        return self.data.config(log__run_dir=folder, train__max_steps=10**6,
                                eval__every_samples=10**9)

    def check(self, folder, run, stop):
        """The run, once under way, ends with its state saved after `stop(run)`."""
        run.wait_for(lambda: len(steps_so_far(folder)) >= 3, "three steps")
        stop(run)
        done = run.wait()
        self.assertEqual(done.code, 75, done)
        self.assertEqual(checkpoints(folder), [f"step_{max(steps(folder)):08d}"])
        self.assertEqual(done.errors(), [], done)
        self.assertEqual(run.rank_processes(), [])
        self.assertEqual(bertha("checkpoint", "show", folder).code, 0)

    def check_program(self, ranks, stop):
        folder = self.new_folder()
        with Running("train", *self.words(folder), ranks=ranks) as run:
            self.check(folder, run, stop)

    def check_script(self, script, *options, extra=None,
                     stop=lambda run: run.process.send_signal(signal.SIGTERM)):
        folder = self.new_folder()
        config = self.new_folder("config").with_suffix(".yaml")
        config.write_text("train: {seed: 3}\n")
        with Running(*options, config, *self.words(folder), script=script, extra=extra) as run:
            self.check(folder, run, stop)

    def test_a_signal_while_mpi_starts_ends_the_run_before_its_first_step(self):
        for stop in (signal.SIGTERM, signal.SIGUSR1):
            folder = self.new_folder()
            with Running("train", *self.words(folder), ranks=2) as run:
                found = []
                run.wait_for(lambda: found.extend(filter(has_mpi, run.rank_processes())) or found,
                             "a thread of MPI")
                self.assertFalse(folder.exists())
                os.kill(found[0], stop)
                done = run.wait()
            self.assertEqual(done.code, 75, done)
            self.assertIn("stopped before the first step, nothing to save", done.err)
            self.assertEqual(checkpoints(folder), [])
            self.train(folder, ranks=2, train__max_steps=2)
            self.assertEqual(checkpoints(folder), ["step_00000002"])

    def test_a_signal_while_the_program_is_loaded_leaves_nothing_behind(self):
        # Later ones find a program that saves; the last of these may.
        for seconds in (0, 0.002, 0.005, 0.01, 0.02):
            folder = self.new_folder()
            with Running("train", *self.words(folder)) as run:
                time.sleep(seconds)
                run.process.send_signal(signal.SIGTERM)
                done = run.wait()
            self.assertIn(done.code, (-signal.SIGTERM, 75), done)
            if done.code != 75:
                self.assertFalse(folder.exists(), seconds)

    def test_a_signal_while_it_warms_up_is_soon_obeyed(self):
        for ranks in (0, 2):
            folder = self.new_folder()
            words = self.data.config(log__run_dir=folder, train__init_warmup_steps=10**4,
                                     train__global_batch_seqs=600)
            with Running("train", *words, ranks=ranks) as run:
                run.wait_for((folder / "run.lock").exists, "the run's folder")
                time.sleep(0.3)
                os.kill(run.rank_processes()[-1], signal.SIGTERM)
                begin = time.monotonic()
                done = run.wait()
            self.assertEqual(done.code, 75, done)
            self.assertLess(time.monotonic() - begin, MOST_FAILURE_SECONDS)
            self.assertIn("stopped before the first step, nothing to save", done.err)

    def test_a_second_signal_ends_the_run_at_once_and_loses_no_checkpoint(self):
        stops = (signal.SIGTERM, signal.SIGUSR1)
        for ranks, codes in ((0, [-stop for stop in stops]), (2, [128 + stop for stop in stops])):
            folder = self.new_folder()
            with Running("train", *self.words(folder), "--set", "checkpoint.every_steps=2",
                         ranks=ranks) as run:
                run.wait_for(lambda: checkpoints(folder), "a checkpoint")
                for sent in (signal.SIGSTOP, *stops, signal.SIGCONT):
                    for process in run.rank_processes():  # both arrive within one step
                        os.kill(process, sent)
                done = run.wait()
            self.assertIn(done.code, codes, done)
            self.assertNotIn("run the same command again", done.err)
            saved = int(checkpoints(folder)[-1].split("_")[1])
            self.train(folder, ranks=ranks, train__max_steps=saved + 1, eval__every_samples=10**9)
            self.assertEqual(records(folder, "run")[-1]["first_step"], saved)

    def test_sigterm_to_one_process(self):
        self.check_program(0, lambda run: run.process.send_signal(signal.SIGTERM))

    def test_ctrl_c_that_also_ends_the_reader_of_its_output(self):
        folder = self.new_folder()
        reader, writer = os.pipe()
        to_pipe = lambda: (os.dup2(writer, 1), os.dup2(writer, 2))
        with Running("train", *self.words(folder), preexec_fn=to_pipe) as run:
            os.close(writer)

            def stop(run):
                os.close(reader)
                run.process.send_signal(signal.SIGINT)
            self.check(folder, run, stop)

    def test_signals_that_were_blocked_when_it_started(self):
        folder = self.new_folder()
        with Running("train", *self.words(folder), preexec_fn=lambda: signal.pthread_sigmask(
                signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])) as run:
            self.check(folder, run, lambda run: run.process.send_signal(signal.SIGUSR1))

    def test_sigusr1_through_the_launcher(self):
        self.check_program(2, lambda run: run.process.send_signal(signal.SIGUSR1))

    def test_sigusr1_to_one_rank_alone_stops_all(self):
        self.check_program(3, lambda run: os.kill(run.rank_processes()[-1], signal.SIGUSR1))

    def test_sigterm_to_one_rank_alone_stops_all(self):
        self.check_program(2, lambda run: os.kill(run.rank_processes()[-1], signal.SIGTERM))

    def test_sigterm_to_the_script_of_one_machine(self):
        for ranks in (1, 2):
            self.check_script("run_local.sh", "--ranks", ranks)

    def test_ctrl_c_at_the_script_of_one_machine(self):
        for ranks in (1, 2):
            self.check_script("run_local.sh", "--ranks", ranks,
                              stop=lambda run: os.killpg(run.process.pid, signal.SIGINT))

    def test_signals_to_a_script_that_draws_the_run_of_one_rank(self):
        extra = with_tools(self.new_folder("tools"))
        for stop in (lambda run: run.process.send_signal(signal.SIGTERM),
                     lambda run: run.process.send_signal(signal.SIGUSR1),
                     lambda run: os.killpg(run.process.pid, signal.SIGINT)):
            self.check_script("run_local.sh", "--ranks", 1, extra=extra, stop=stop)

    def test_sigusr1_to_the_script_of_one_machine(self):
        self.check_script("run_local.sh", "--ranks", 2, stop=lambda run: run.process.send_signal(signal.SIGUSR1))

    def test_a_lost_terminal_ends_all_that_a_script_started(self):
        config = self.new_folder("config").with_suffix(".yaml")
        config.write_text("train: {seed: 3}\n")
        for ranks, extra in ((1, None), (1, with_tools(self.new_folder("tools"))), (2, None)):
            folder = self.new_folder()
            with Running("--ranks", ranks, config, *self.words(folder), script="run_local.sh", extra=extra) as run:
                run.wait_for(lambda: len(steps_so_far(folder)) >= 3, "three steps")
                ours = run.rank_processes()
                os.killpg(run.process.pid, signal.SIGHUP)
                self.assertIn(run.wait().code, (129, -signal.SIGHUP))  # the latter of the program alone
            self.assertEqual([process for process in ours if os.path.exists(f"/proc/{process}/exe")], [], ranks)

    def test_sigterm_to_the_script_of_several_machines(self):
        self.check_script("run_mpirun.sh", "--hosts", "localhost:2")

    def test_sigterm_to_the_mpirun_of_a_script(self):
        for script in (["run_local.sh", "--ranks", 2], ["run_mpirun.sh", "--hosts", "localhost:2"]):
            self.check_script(*script, stop=lambda run: os.kill(parent(run.rank_processes()[0]), signal.SIGTERM))


if __name__ == "__main__":
    main()
