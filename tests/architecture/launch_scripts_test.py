"""The shell scripts parse, print help, refuse invalid arguments and forward the rest.

usage: launch_scripts_test.py SOURCE_DIR
"""

import itertools
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from launch_case import LAUNCH, ROOT, LaunchCase


def shell_scripts():
    for folder in ("launch", "launch/container", "tests", ".ci"):
        for file in sorted((ROOT / folder).glob("*")):
            if file.is_file() and file.read_bytes()[:2] == b"#!" and b"sh" in file.read_bytes()[:30]:
                yield file


class LaunchScripts(LaunchCase):
    def test_an_nvcc_that_is_too_old_is_none(self):
        command = ["bash", "-c", f". '{LAUNCH}/common.sh'; nvcc_serves"]
        path = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        for release, serves in (("11.8", False), ("12.4", False), ("12.5", True), ("12.10", True),
                                ("13.0", True)):
            self.stand_in("nvcc", f"echo 'Cuda compilation tools, release {release}, V{release}.48'")
            self.assertEqual(subprocess.run(command, env=path).returncode == 0, serves, release)
        self.stand_in("nvcc", "exit 127")
        self.assertNotEqual(subprocess.run(command, env=path).returncode, 0)

    def test_every_script_parses_and_may_be_executed(self):
        self.assertGreater(len(list(shell_scripts())), 5)
        for script in shell_scripts():
            subprocess.run(["bash", "-n", str(script)], check=True)
            self.assertTrue(script.stat().st_mode & stat.S_IXUSR, script)

    def test_shellcheck_finds_nothing(self):
        self.assertIsNotNone(shutil.which("shellcheck"), "run launch/install_deps.sh --tests")
        scripts = {*shell_scripts(), LAUNCH / "common.sh"}  # which has no first line that names a shell
        run = subprocess.run(["shellcheck", "--norc", "-x", *sorted(map(str, scripts))], cwd=ROOT,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(run.returncode, 0, run.stdout.decode())

    def test_no_variable_and_no_word_reaches_arithmetic_unchecked(self):
        """bash runs what stands in a[$(...)] where it wants a number."""
        trap = f"bertha[$(touch '{self.folder}/ran')0]"
        srun = 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi'
        self.stand_in("srun", srun)
        names = (LAUNCH / "run_and_time.sh").read_text() + (LAUNCH / "common.sh").read_text()
        names = set(re.findall(r"\b[A-Z][A-Z0-9_]{2,}\b", names))
        names -= {"BASH_SOURCE", "BERTHA", "EUID", "LOGDIR", "PATH", "PWD"}
        self.assertGreater(len(names), 40)
        for name in sorted(names):
            others = {"LOGDIR": tempfile.mkdtemp(dir=self.folder), "SLURM_JOB_ID": "7", "DGXNGPU": "1",
                      "DGXNNODES": "1", "WARMUP_PROPORTION": "0.1", "MAX_STEPS": "100"}
            code, output = self.start("run_and_time.sh", self.config, **{**others, name: trap})
            self.assertIn(code, (0, 2, 5), f"{name}: {output}")
            self.assertFalse((self.folder / "ran").exists(), f"{name}: {output}")
        for script, *words in (("run_local.sh", "--ranks", trap), ("profile_nsys.sh", "--steps", trap),
                               ("run_mpirun.sh", "--hosts", f"{trap} a:1"),
                               ("run_mpirun.sh", "--hosts", f"{trap}:1")):
            self.assertEqual(self.start(script, *words, self.config)[0], 2, words)
        self.assertFalse((self.folder / "ran").exists())

    def test_help_shows_an_example(self):
        for script in ("run_local.sh", "run_mpirun.sh", "run_slurm.sub", "install_deps.sh",
                       "profile_nsys.sh"):
            code, output = self.start(script, "--help")
            self.assertEqual(code, 0, output)
            self.assertIn(script, output)

    def test_no_config_is_a_usage_error(self):
        self.stand_in("srun")
        for script in (["run_local.sh"], ["run_mpirun.sh", "--hosts", "a:1"], ["run_slurm.sub"],
                       ["profile_nsys.sh"]):
            for arguments in ([], ["missing.yaml"]):
                code, output = self.start(*script, *arguments)
                self.assertEqual(code, 2, output)
        self.assertEqual(self.start("run_mpirun.sh", self.config)[0], 2)
        self.assertEqual(self.start("run_mpirun.sh", "--hosts", "a,b", self.config)[0], 2)
        self.assertEqual(self.start("run_local.sh", "--ranks", "two", self.config)[0], 2)

    def test_wrong_arguments_are_refused_before_anything_is_done(self):
        for code, *words in ((2, "quickstart", "--run-dir"), (2, "quickstart", "--text"),
                             (2, "quickstart", "--small", "--bogus"),
                             (4, "quickstart", "--text", "/nowhere/book.txt"),
                             (2, "quickstart", "--sentences"),
                             (2, "split_text.sh"),
                             (2, "split_text.sh", self.folder), (2, "split_text.sh", "--help"),
                             (2, "wordnet_text.sh", "--help")):
            found, output = self.start(*words)
            self.assertEqual(found, code, f"{words}: {output}")
            self.assertEqual(len(output.splitlines()), 1, output)
            self.assertIn(words[0], output)

    def test_text_is_split_at_blank_lines_of_any_kind_and_ends_of_files(self):
        windows, unended, out = (self.folder / name for name in ("a.txt", "b.txt", "out"))
        windows.write_bytes(b"".join(b"Text %d\r\nof two lines.\r\n \t\r\n" % n for n in range(39)))
        unended.write_bytes(b"The last one.")
        self.assertEqual(self.start("split_text.sh", out, windows, unended), (0, ""))
        documents = lambda file: [d.strip() for d in file.read_text().split("\n\n") if d.strip()]
        train = [d for part in (out / "train").iterdir() for d in documents(part)]
        self.assertEqual(sorted(train), sorted(f"Text {n}\nof two lines." for n in range(39) if n != 19))
        # Without the line that training has too.
        self.assertEqual(documents(out / "eval.txt"), ["Text 19", "The last one."])
        code, output = self.start("split_text.sh", self.folder / "few", unended)
        self.assertEqual(code, 4, output)
        self.assertIn("found 1 documents, want at least 20", output)
        unended.write_text("The same.\n\n" * 40)
        code, output = self.start("split_text.sh", self.folder / "same", unended)
        self.assertEqual(code, 4, output)
        self.assertIn("all 2 held-out lines also occur in training", output)

    def test_a_program_that_is_not_there_is_named(self):
        code, output = self.start("run_local.sh", self.config, BERTHA="/nowhere/bertha")
        self.assertEqual(code, 5, output)
        self.assertIn("/nowhere/bertha", output)

    def test_config_and_arguments_reach_the_program_unchanged(self):
        wanted = f"bertha <train> <--config> <{self.config}> <--set> <log.run_name=two words>"
        arguments = (self.config, "--set", "log.run_name=two words")
        self.assertEqual(self.start("run_local.sh", "--ranks", 1, *arguments), (0, wanted + "\n"))
        self.stand_in("mpirun")
        _, output = self.start("run_local.sh", "--ranks", 3, *arguments)
        self.assertIn("<-n> <3>", output)
        self.assertIn(wanted.replace("bertha", f"<{self.bertha}>", 1), output)
        _, output = self.start("run_mpirun.sh", "--hosts", "a:2,b:3", *arguments, OMP_NUM_THREADS="2")
        self.assertIn("<-n> <5>", output)
        self.assertIn("<--host> <a:2,b:3>", output)
        self.assertIn("<-x> <OMP_NUM_THREADS>", output)
        self.assertIn(wanted.replace("bertha", f"<{self.bertha}>", 1), output)

    def test_without_ssh_one_machine_runs_and_several_are_refused(self):
        for program in os.scandir("/usr/bin"):
            if program.name not in ("ssh", "rsh", "bertha"):
                (self.bin / program.name).symlink_to(program.path)
        path = {"only_path": str(self.bin)}
        code, output = self.start("run_mpirun.sh", "--hosts", "a:2", self.config, **path)
        self.assertEqual((code, "ssh was not found" in output), (5, True), output)
        code, output = self.start("run_local.sh", "--ranks", 2, self.config, **path)
        self.assertEqual((code, output.count("bertha <train>")), (0, 2), output)

    def test_ranks_are_as_many_as_the_gpus_that_cuda_shows(self):
        one, two = "GPU-bfb65d34-9904-54fc-cbbe-7e82a342e2a5", "GPU-92098a16-fe3f-6241-5daa-99e2cb4b5d0a"
        gpus = f"echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: {one})'; echo 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: {two})'"
        mig = ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n  MIG 3g.40gb     Device  0: (UUID: MIG-2a)\n"
               "  MIG 3g.40gb     Device  1: (UUID: MIG-3b)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-4)")
        # What cuDeviceGetCount said of these on two H100s; of MIG, what NVIDIA's guide says.
        for listed, counts in ((f"{gpus}; exit 0", {
                None: 2, "": 0, "0": 1, "1,0": 2, "0,0": 0, "0,1,0": 0, "0,-1,1": 1, "-1": 0, "0,7,1": 1,
                "7,0": 0, " 0, 1 ": 2, "0 1": 1, "00,01": 2, "0x1": 1, "+1": 1, "1abc": 1, "abc": 0,
                "0,abc,1": 1, "0,,1": 1, ",0": 0, "0,1,": 2, one: 1, f"{one},{two}": 2, "GPU-bfb65d34,GPU-92": 2,
                "GPU-": 0, f"GPU-ffff,{one}": 0, f"{one},1": 1, "GPU-BFB65D34": 1, one.lower(): 0,
                f"MIG-{one}": 0, "MIG-12,0": 0, "all": 0, "0;1": 1}),
                (f"echo '{mig}'; exit 0", {None: 1, "MIG-3b": 1, "MIG-2a,MIG-3b": 1, "MIG-9": 0, "1": 1}),
                ("exit 9", {None: 0, "0": 0})):
            self.stand_in("nvidia-smi", listed)
            for visible, count in counts.items():
                clean = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
                clean.update({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible},
                             PATH=f"{self.bin}:{os.environ['PATH']}")
                said = subprocess.run(["bash", "-euo", "pipefail", "-c", f". '{LAUNCH}/common.sh'; gpus_here"],
                                      env=clean, stdout=subprocess.PIPE, check=True).stdout
                self.assertEqual(int(said), count, (listed, visible))
        self.stand_in("mpirun")
        self.stand_in("nvidia-smi", f"{gpus}; echo 'GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-a)'; exit 0")
        for visible, wanted in (("2,0", "<-n> <2>"), ("2", "bertha <train>"), ("", "bertha <train>")):
            _, output = self.start("run_local.sh", self.config, CUDA_VISIBLE_DEVICES=visible)
            self.assertIn(wanted, output)

    def test_doctor_in_place_of_a_config_checks_the_same_ranks(self):
        wanted = "<doctor> <--output-dir> <two words>"
        arguments = ("doctor", "--output-dir", "two words")
        self.assertEqual(self.start("run_local.sh", "--ranks", 1, *arguments), (0, f"bertha {wanted}\n"))
        self.stand_in("mpirun")
        for words in (["run_local.sh", "--ranks", 3], ["run_mpirun.sh", "--hosts", "a:2,b:1"]):
            _, output = self.start(*words, *arguments)
            self.assertIn("<-n> <3>", output)
            self.assertTrue(output.endswith(f"<{self.bertha}> {wanted}\n"), output)
        self.stand_in("srun", 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi')
        code, output = self.start("run_slurm.sub", *arguments, DOCTOR="1")
        self.assertEqual(code, 0, output)
        self.assertTrue(output.endswith(f"{wanted}\n"), output)
        self.assertEqual(output.count("<doctor>"), 1, output)

    def test_a_hostfile_names_hosts_and_ranks(self):
        self.stand_in("mpirun")
        hosts = self.folder / "host file"
        for text, wanted, ranks in (
                ("a slots=8\n# none\n\n  b.c-d slots=4 max_slots=8  # four\n", "a:8,b.c-d:4", 12),
                ("a\na\nb\na\nb", "a:3,b:2", 5),  # as PBS and LSF write them
                ("a slots=2\nb\na slots=1\n", "a:3,b:1", 4)):
            hosts.write_text(text)
            code, output = self.start("run_mpirun.sh", "--hostfile", hosts, self.config)
            self.assertEqual(code, 0, output)
            self.assertIn(f"<--host> <{wanted}> <-n> <{ranks}>", output)
            self.assertIn(f"<train> <--config> <{self.config}>", output)

    def test_a_bad_hostfile_is_refused_with_its_line(self):
        hosts = self.folder / "hosts"
        trap = f"x[$(touch '{self.folder}/ran')0]"
        for text, wanted in (("a slots=8\nb slots=0\n", "line 2: found 'b slots=0'"),
                             (f"a slots={trap}\n", "line 1"), (f"{trap} slots=1\n", "line 1"),
                             ("a slots=8 b slots=8\n", "line 1"), ("a:8\n", "line 1: found 'a:8'"),
                             ("# nothing\n", "names no host")):
            hosts.write_text(text)
            code, output = self.start("run_mpirun.sh", "--hostfile", hosts, self.config)
            self.assertEqual(code, 2, output)
            self.assertIn(f"{hosts}", output)
            self.assertIn(wanted, output)
        for words in ([], [self.folder / "gone"], [self.folder]):
            code, output = self.start("run_mpirun.sh", "--hostfile", *words)
            self.assertEqual(code, 2, output)
            self.assertIn("cannot be read", output)
        self.assertFalse((self.folder / "ran").exists())

    def test_a_host_that_ssh_would_take_for_an_option_is_refused(self):
        self.stand_in("mpirun")
        file = self.folder / "hosts"
        file.write_text("a slots=2\n-Fx slots=2\n")
        for words in (["--hosts", "-Fx:1"], ["--hosts", "a:1,-oProxyCommand=x:1"], ["--hosts", "a:1,-b:1"],
                      ["--hostfile", file]):
            code, output = self.start("run_mpirun.sh", *words, self.config)
            self.assertEqual((code, "<--host>" in output), (2, False), output)
            self.assertIn("a host begins with a letter or digit", output)

    def test_a_host_name_on_which_mpirun_crashes_is_refused(self):
        long = "n" * 57
        for version, host, code in (("4.1.4", long, 5), ("4.1.4", long[1:], 0), ("4.1.4", f"n1{long}", 0),
                                    ("5.0.7", long, 0)):
            self.stand_in("mpirun", f'if [[ $1 == --version ]]; then echo "mpirun (Open MPI) {version}"; exit 0; fi')
            found, output = self.start("run_mpirun.sh", "--hosts", f"a:1,{host}:1", self.config)
            self.assertEqual((found, f"found {long}" in output), (code, code == 5), output)

    def test_ranks_that_are_all_on_this_machine_share_memory_and_listen_on_no_network(self):
        names = ("OMPI_MCA_pml", "OMPI_MCA_btl", "PMIX_MCA_ptl_base_if_include", "NCCL_SOCKET_IFNAME")
        self.stand_in("mpirun", "echo " + " ".join("${%s-none}" % name for name in names))
        alone, several = ["run_local.sh", "--ranks", 2], ["run_mpirun.sh", "--hosts", "a:1,b:1"]
        for words, variables, wanted in (
                (alone, {}, "ob1 self,vader lo =lo"), (several, {}, "none none none none"),
                (alone, dict.fromkeys(names, "own"), "own own own own"),
                (alone, {"SLURM_JOB_NUM_NODES": "2"}, "none none none none")):
            code, output = self.start(*words, self.config, **variables)
            self.assertEqual((code, output.splitlines()[0]), (0, wanted), output)

    def test_a_finished_run_is_drawn_once_if_the_tools_are_installed(self):
        run = self.folder / "run"
        shows = f"if [[ $1 == config ]]; then printf 'log:\\n  run_dir: {run}\\n'; exit 0; fi"
        self.stand_in("scontrol")
        pmix = 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi'
        scripts = (["run_local.sh", "--ranks", 1], ["run_local.sh", "--ranks", 2],
                   ["run_mpirun.sh", "--hosts", "a:1"], ["run_slurm.sub"])
        for (script, *words), code, has_tools in itertools.product(scripts, (0, 3, 4, 75), (True, False)):
            for name, body in (("bertha", shows), ("mpirun", ""), ("srun", pmix)):
                self.stand_in(name, body, code)
            (self.bin / "bertha-tools").unlink(missing_ok=True)
            if has_tools:
                self.stand_in("bertha-tools", "", 1)  # which changes no exit code
            job = {"SLURM_JOB_ID": "7"} if script == "run_slurm.sub" else {}
            found, output = self.start(script, *words, self.config, **job)
            self.assertEqual(found, code, output)
            drawn = has_tools and code in (0, 3)
            self.assertEqual(output.count(f"bertha-tools <plot> <{run}>\n"), drawn, (script, output))
        self.stand_in("bertha-tools")
        self.assertNotIn("<plot>", self.start("run_local.sh", "--ranks", 1, "doctor")[1])

    def test_variables_of_clusters_reach_every_rank_and_others_do_not(self):
        self.stand_in("mpirun")
        passed = ("BERTHA_START_TIMEOUT_S", "FI_PROVIDER", "HCOLL_ENABLE_MCAST", "IBV_FORK_SAFE",
                  "LD_LIBRARY_PATH", "NCCL_IB_HCA", "OMP_NUM_THREADS", "OPENBLAS_CORETYPE",
                  "SHARP_COLL_LOG_LEVEL", "UCX_NET_DEVICES")
        kept = ("CUDA_VISIBLE_DEVICES", "MY_NCCL_SOCKET", "OMPI_MCA_btl")  # the last goes by itself
        values = dict.fromkeys(passed + kept, "")
        values["OMP_NUM_THREADS"] = "1\nNCCL_NO_VARIABLE=1"
        _, output = self.start("run_mpirun.sh", "--hosts", "a:2", self.config, **values)
        for name in passed:
            self.assertIn(f"<-x> <{name}>", output)
        for name in kept + ("NCCL_NO_VARIABLE",):
            self.assertNotIn(f"<{name}>", output)

    def test_a_missing_mpirun_is_named(self):
        for tool in ("bash", "dirname", "basename", "realpath"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        run = subprocess.run(["bash", str(LAUNCH / "run_local.sh"), "--ranks", "2", str(self.config)],
                             env={"PATH": str(self.bin), "BERTHA": self.bertha},
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(run.returncode, 5, run.stdout)
        self.assertIn("mpirun was not found; run launch/install_deps.sh", run.stdout.decode())

    def test_a_job_on_a_sick_node_does_not_start(self):
        self.stand_in("srun", 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi\n'
                      'shift 4; exec "$@"')
        self.stand_in("nvidia-smi", "exit 9")
        sick = 'if [[ $1 == doctor ]]; then echo "node7: sick"; exit 5; fi'
        for script, variables in (("run_slurm.sub", {}), ("run_and_time.sh", {}),
                                  ("run_and_time.sh", {"SLURM_JOB_ID": "7"})):
            variables = {**variables, "LOGDIR": str(self.folder / "runs"), "NEXP": "2"}
            self.stand_in("bertha", sick)
            code, output = self.start(script, self.config, DOCTOR="1", **variables)
            self.assertEqual(code, 5, output)
            self.assertIn("node7: sick", output)
            self.assertIn("DOCTOR=0 starts it all the same", output.splitlines()[-1])
            self.assertNotIn("<train>", output)
            code, output = self.start(script, self.config, DOCTOR="0", **variables)
            self.assertEqual(code, 0, output)
            self.assertNotIn("node7", output)
            shutil.rmtree(self.folder / "runs", ignore_errors=True)
            self.stand_in("bertha")
            code, output = self.start(script, self.config, **{**variables, "DOCTOR": ""})
            self.assertEqual(code, 0, output)
            self.assertEqual(output.count("<doctor>"), 1, output)
            self.assertLess(output.index("<doctor>"), output.index("<train>"), output)
            shutil.rmtree(self.folder / "runs", ignore_errors=True)

    def test_profiling_prints_and_runs_the_command_of_nsys(self):
        self.stand_in("nsys")
        arguments = (self.config, "--set", "log.run_name=two words")
        code, output = self.start("profile_nsys.sh", "--steps", "3:7", *arguments)
        self.assertEqual(code, 0, output)
        printed, ran = output.splitlines()
        self.assertTrue(printed.startswith("nsys profile --trace=cuda"), printed)
        self.assertIn(r"log.run_name=two\ words", printed)
        self.assertIn(f"<{self.bertha}> <train> <--config> <{self.config}> <--max-steps> <7>", ran)
        self.assertIn("<--capture-range=cudaProfilerApi>", ran)
        self.assertIn("<--output=bertha_steps_3_7>", ran)
        self.assertTrue(ran.endswith("<--profile-steps> <3:7> <--set> <log.run_name=two words>"), ran)
        _, output = self.start("profile_nsys.sh", "--bench", self.config)
        self.assertIn(f"<bench> <step> <--config> <{self.config}> <--warmup> <24> <--steps> <1>", output)
        self.assertIn("<--profile-steps> <21:25>", output)

    def test_profiling_writes_a_report_of_each_rank(self):
        self.stand_in("nsys")
        self.stand_in("mpirun")
        _, output = self.start("profile_nsys.sh", "--steps", "3:7", "--ranks", 2, self.config)
        self.assertRegex(output.splitlines()[-1], "^mpirun .*<-n> <2> <nsys> <profile>"
                         r".* <--output=bertha_steps_3_7_%h_%q\{OMPI_COMM_WORLD_RANK\}> "
                         f"<{self.bertha}> <train> <--config> <{self.config}>")
        self.stand_in("srun", 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi')
        (self.bin / "nsys").unlink()  # the job's nodes have it
        _, output = self.start("run_slurm.sub", "--profile", "--steps", "3:7", "--bench", self.config,
                               SLURM_JOB_ID="7")
        self.assertRegex(output.splitlines()[-1], "^srun <--mpi=pmix> .*<--wait=10> <nsys> <profile> "
                         r".*<--output=bertha_steps_3_7_%q\{SLURM_JOB_ID\}_%h_%q\{SLURM_PROCID\}> "
                         f"<{self.bertha}> <bench> <step> <--config> <{self.config}>")
        code, output = self.start("profile_nsys.sh", "--ranks", 2, self.config, SLURM_JOB_ID="7")
        self.assertEqual(code, 2, output)
        self.assertIn("whose tasks determine the ranks", output)

    def test_profiling_wants_a_range_of_steps_and_nsys(self):
        for steps in ("7", "7:3", "0:3", "a:b", ""):
            code, output = self.start("profile_nsys.sh", "--steps", steps, self.config)
            self.assertEqual(code, 2, output)
            self.assertIn("--steps takes", output)
        self.assertEqual(self.start("profile_nsys.sh", "--ranks", "0", self.config)[0], 2)
        for tool in ("bash", "dirname", "basename", "realpath", "cat"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        clean = {"PATH": str(self.bin), "BERTHA": self.bertha}
        run = subprocess.run(["bash", str(LAUNCH / "profile_nsys.sh"), str(self.config)], env=clean,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(run.returncode, 5, run.stdout)
        self.assertIn("profile_nsys.sh: nsys is not here; install", run.stdout.decode())

    def test_sigterm_and_ctrl_c_reach_mpirun_as_the_signal_that_it_passes_on(self):
        ready = self.folder / "ready"
        self.stand_in("mpirun", f"""
trap 'echo ending; sleep 0.3; echo saved; exit 75' USR1
trap 'echo killed; exit 143' TERM INT
touch '{ready}'
for _ in {{1..600}}; do sleep 0.05; done""")
        scripts = (["run_local.sh", "--ranks", "2"], ["run_mpirun.sh", "--hosts", "a:2"],
                   ["run_and_time.sh", "--ranks", "2"])
        for script, is_terminal in itertools.product(scripts, (False, True)):
            ready.unlink(missing_ok=True)
            run = self.launch(script[0], *script[1:], self.config, LOGDIR=str(self.folder / "runs"))
            while not ready.exists():
                self.assertIsNone(run.poll())
                time.sleep(0.02)
            if is_terminal:  # which signals all of the foreground
                os.killpg(run.pid, signal.SIGINT)
            else:
                run.terminate()
            output = run.communicate(timeout=60)[0].decode()
            self.assertEqual(run.returncode, 75, output)
            said, last = output.splitlines()[-2:]
            self.assertEqual(said, "saved", output)
            self.assertIn("the run has stopped and saved its state. To resume", last)
            self.assertNotIn("killed", output)

    def test_slurm_puts_a_saved_run_back_into_the_queue(self):
        listing = 'if [[ $1 == --mpi=list ]]; then printf "none\\npmix\\n" >&2; exit 0; fi'
        for code in (75, 3, 0):
            self.stand_in("srun", listing, code)
            self.stand_in("scontrol")
            found, output = self.start("run_slurm.sub", self.config, "--quiet", SLURM_JOB_ID="17")
            self.assertEqual(found, code, output)
            self.assertIn(f"<train> <--config> <{self.config}> <--quiet>", output)
            self.assertEqual("scontrol <requeue> <17>" in output, code == 75, output)
        self.stand_in("srun", listing, 75)
        # A task of an array, which may have the id of all, and a job that a task of an array has submitted.
        for array, job in (("17", "17_2"), ("16", "17")):
            _, output = self.start("run_slurm.sub", self.config, SLURM_JOB_ID="17", SLURM_ARRAY_JOB_ID=array,
                                   SLURM_ARRAY_TASK_ID="2")
            self.assertIn(f"scontrol <requeue> <{job}>\n", output)
        self.stand_in("scontrol", "", 1)  # sbatch --no-requeue, or a site that forbids it
        found, output = self.start("run_slurm.sub", self.config, SLURM_JOB_ID="17")
        self.assertEqual(found, 75, output)
        self.assertIn("submit it again with --output-dir", output.splitlines()[-1])
        found, output = self.start("run_slurm.sub", self.config, SLURM_MPI_TYPE="cray")
        self.assertEqual(found, 5, output)
        self.assertIn("'cray'", output)

    def test_a_heterogeneous_job_is_refused_as_srun_would_start_a_part_of_it(self):
        self.stand_in("srun", 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi')
        for words in ([], ["--timed"], ["--profile"]):
            for leader, code in (("7", 5), ("6", 0)):  # the latter of the job that has submitted this one
                found, output = self.start(
                    "run_slurm.sub", *words, self.config, SLURM_JOB_ID="7", SLURM_HET_SIZE="2",
                    SLURM_JOB_ID_HET_GROUP_0=leader, LOGDIR=str(self.folder / f"runs{leader}"))
                self.assertEqual((found, "heterogeneous" in output), (code, code == 5), output)
                self.assertEqual("srun <" in output, code == 0, output)

    def test_tasks_run_in_containers_when_an_image_is_named(self):
        listing = 'if [[ $1 == --mpi=list ]]; then echo pmix; exit 0; fi'
        helps = 'if [[ $1 == --help ]]; then echo "--container-image=IMAGE"; exit 0; fi'
        self.stand_in("srun", f"{listing}; if [[ $1 == --help ]]; then exit 0; fi")
        found, output = self.start("run_slurm.sub", self.config, CONT="image.sqsh")
        self.assertEqual(found, 5, output)
        self.assertIn("no Pyxis", output)
        self.stand_in("srun", f"{listing}; {helps}")
        found, output = self.start("run_slurm.sub", self.config, CONT="image.sqsh",
                                   CONT_MOUNTS="/data:/data")
        self.assertEqual(found, 0, output)
        self.assertIn(f"<--container-image=image.sqsh> <--container-workdir={ROOT}> "
                      f"<--container-mounts={ROOT}:{ROOT},/data:/data>", output)
        # The image's own program, unless BERTHA names one that only the container sees, and its tools.
        for program in ("", "/opt/bertha/bin/bertha"):
            variables = {"CONT": "image.sqsh", "SLURM_JOB_ID": "7", "BERTHA": program}
            found, output = self.start("run_slurm.sub", "--timed", self.config, **variables,
                                       LOGDIR=str(self.folder / f"runs{len(program)}"))
            self.assertEqual(found, 0, output)
            program = program or "bertha"
            self.assertRegex(output, f"<--container-mounts=.*> <{program}> <train> ")
            self.assertRegex(output, f"<--mpi=none> .*<--container-image=image.sqsh> .* <bertha-tools> <check> ")

    def test_both_kinds_of_image_begin_with_the_same_two(self):
        images = [re.findall(pattern, (LAUNCH / "container" / name).read_text(), re.M)
                  for name, pattern in (("Dockerfile", r"^FROM (\S+)"), ("bertha.def", r"^From: (\S+)"))]
        self.assertEqual(*images)
        versions = {re.sub("-(devel|runtime)-", "-", image) for image in images[0]}
        self.assertEqual((len(images[0]), len(versions)), (2, 1))

    def test_a_killed_mpirun_leaves_nothing_in_the_folder_for_temporary_files(self):
        self.stand_in("mpirun", 'echo "here $TMPDIR"; mkdir "$TMPDIR/session"; kill -KILL $$')
        temporary = self.folder / "temporary"
        temporary.mkdir()
        code, output = self.start("run_local.sh", "--ranks", 2, self.config, TMPDIR=str(temporary))
        self.assertEqual(code, 137, output)
        self.assertIn(f"here {temporary}/", output)
        self.assertEqual(list(temporary.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
