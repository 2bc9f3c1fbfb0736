"""bertha doctor on ranks of this machine: a verdict per node, JSON, and refusals.

Whether two ranks of a busy machine run equally fast is not known here: the verdict on rates is tested
with given figures, in tests/harness/doctor.
"""

import contextlib
import json
import pathlib
import resource
import socket
import tempfile
import unittest

from support import Running, bertha, main, must

HOST = socket.gethostname()


class Doctor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_two_ranks_get_a_row_a_verdict_and_the_same_figures_as_json(self):
        path = f"{self.folder}/doctor.json"
        ended = bertha("doctor", "--backend", "cpu", "--output-dir", self.folder, "--json", path, ranks=2)
        self.assertLess(ended.seconds, 60, ended)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual(ended.code, 0 if found["healthy"] else 5, ended)
        self.assertEqual((found["command"], found["exit_code"]), ("doctor", ended.code))
        self.assertEqual([node["ranks"] for node in found["nodes"]], [[0, 1]], ended)
        for rank in found["ranks"]:
            for figure in ("cpu_gemm_flops", "host_copy_bytes", "host_reduce_bytes",
                           "host_reduce_latency_s", "shm_free_bytes", "open_files"):
                self.assertGreater(rank[figure], 0, f"{figure}: {ended}")
            self.assertTrue(rank["version"].startswith("bertha "), ended)
        self.assertGreater(found["ranks"][0]["output_write_bytes"], 0)
        titles, row = ended.out.splitlines()[:2]
        self.assertEqual(titles.split()[0], "node")
        self.assertEqual(row.split()[:2], [HOST, "0-1"], ended)
        self.assertEqual(row.split()[-1], "healthy" if found["healthy"] else "SICK", ended)
        for trouble in found["troubles"]:
            self.assertIn(trouble["sentence"], ended.out)

    def test_a_folder_that_takes_no_files_refuses_its_node(self):
        ended = bertha("doctor", "--backend", "cpu", "--output-dir", "/proc", ranks=2)
        self.assertEqual(ended.code, 5, ended)
        self.assertIn(f"\n{HOST}: --output-dir /proc: ", ended.out)
        self.assertTrue(ended.out.endswith(f"not started: repair {HOST}, then run this again\n"), ended)

    def test_several_doctors_measure_one_folder(self):
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(Running("doctor", "--backend", "cpu", "--output-dir", self.folder))
                       for _ in range(3)]
            for ended in [one.wait() for one in running]:
                self.assertNotIn(f"--output-dir {self.folder}", ended.out + ended.err)
        self.assertEqual(list(pathlib.Path(self.folder).glob(".bertha_doctor*")), [])

    def test_too_few_open_files_refuse_their_node(self):
        ended = bertha("doctor", "--backend", "cpu", preexec_fn=few_files)
        self.assertEqual(ended.code, 5, ended)
        self.assertIn(f"\n{HOST}: rank 0: open files 256, want at least 1024; raise it with ulimit", ended.out)

    def test_alone_there_is_no_other_rank_to_compare_with(self):
        folder = pathlib.Path(self.folder) / "not" / "there"  # which training would make
        ended = must("doctor", "--backend", "cpu", "--output-dir", folder)
        self.assertFalse(folder.parent.exists())
        self.assertIn("no other rates to compare with", ended.out.splitlines()[-1])


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


if __name__ == "__main__":
    main()
