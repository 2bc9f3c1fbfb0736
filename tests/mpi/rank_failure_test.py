"""A rank that throws, hangs or dies takes the others down: at once, with one message and its code.

usage: rank_failure_test.py MPIEXEC PROGRAM
"""

import os
import subprocess
import sys
import time
import unittest

MPIEXEC, PROGRAM = sys.argv[1:3]
MOST_SECONDS = 10.0
SENTENCE = "shard 3 is torn; prepare it again"


def environment(extra=None):
    """This environment without a launcher's traces."""
    launchers = ("OMPI_", "PMI", "SLURM_", "WORLD_SIZE")
    result = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
    result.update(
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_hwloc_base_binding_policy="none",
        OMPI_MCA_orte_execute_quiet="1",
    )
    result.update(extra or {})
    return result


def start(ranks, how, extra=None):
    launcher = [MPIEXEC, "--oversubscribe", "-n", str(ranks)] if ranks else []
    begin = time.monotonic()
    done = subprocess.run(
        launcher + [PROGRAM, how],
        env=environment(extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(errors="replace"), time.monotonic() - begin


class RankFailure(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """What starting and ending ranks costs on this machine now is not the failure's."""
        cls.most_seconds = MOST_SECONDS + start(3, "nothing")[2]

    def check(self, ranks, how, code, text, count=1):
        found, output, seconds = start(ranks, how)
        self.assertEqual(found, code, output)
        self.assertEqual(output.count(text), count, output)
        self.assertLess(seconds, self.most_seconds, output)
        return output

    def test_nothing_wrong_ends_with_0(self):
        for ranks in (0, 1, 3):
            self.check(ranks, "nothing", 0, "error", 0)

    def test_one_rank_that_throws_ends_all_with_its_message_once(self):
        output = self.check(3, "throw", 4, SENTENCE)
        self.assertIn("rank 2 of 3", output)

    def test_all_ranks_that_throw_give_the_message_once(self):
        self.check(3, "all-throw", 4, SENTENCE)

    def test_a_rank_alone_needs_no_launcher(self):
        self.check(0, "throw", 4, SENTENCE)

    def test_memory_and_unexpected_errors_have_their_codes(self):
        output = self.check(2, "bad-alloc", 6, "out of host memory")
        self.assertIn("train.global_batch_seqs", output)
        self.check(2, "logic-error", 1, "impossible")

    def test_a_slow_rank_is_named_with_step_and_phase(self):
        output = self.check(3, "slow", 124, "has made no progress for 2 s in step 7, phase training")
        self.assertIn("error: rank 2 of 3", output)
        self.assertIn("; ranks 0-1 wait in step 7, phase training, in collective call ", output)
        self.assertNotIn("rank 0 of 3", output)
        self.assertRegex(output, r"warning: rank 2 of 3 on .*, stack of its main thread:\n(  .*\n)*  pause\+0x")

    def test_a_rank_that_spins_shows_the_function_in_which_it_does(self):
        output = self.check(2, "spin", 124, "has made no progress for 2 s")
        # The address sanitizer's backtrace() adds a frame, and the return from the signal is seen.
        self.assertRegex(output, r"stack of its main thread:\n(  libc.*\n)?  bertha::spin_for_ever\(\)\+0x")
        self.assertEqual(output.count("stack of its main thread"), 1, output)

    def test_communication_that_fails_while_a_rank_waits_ends_the_job(self):
        output = self.check(3, "lost-peer", 5, "communication: peer lost")
        self.assertIn("rank 2 of 3", output)

    def test_shared_memory_that_cannot_be_had_is_said_once_with_the_place_to_look_at(self):
        found, output, _ = start(2, "nothing", {"OMPI_MCA_osc": "^sm"})
        self.assertEqual(found, 5, output)
        self.assertEqual(output.count("/dev/shm has"), 1, output)

    def test_the_agreed_exit_code_is_everybodys(self):
        self.check(3, "exit-3", 3, "error", 0)

    def test_mpirun_inside_a_larger_allocation_is_accepted(self):
        found, output, _ = start(2, "nothing", {"SLURM_NTASKS": "8"})
        self.assertEqual(found, 0, output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
