"""Runs under a real Slurm: a cluster of one node, made for the test from slurmctld, slurmd and munged.

It has its own folder, key, ports and configuration, and never speaks to a Slurm of this machine.
"""

import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import support
from support import (BERTHA, LAUNCH, EndToEnd, checkpoints, environment, main, records, steps,
                     steps_so_far)

CPUS = 4  # of the node, whatever the machine has
MOST_WAIT_SECONDS = 120.0

CONFIG = """\
ClusterName=bertha
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Cluster:
    """Daemons in the foreground, so that they end with the test."""

    def __init__(self):
        # Sockets want a short path.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bertha_slurm_", dir="/tmp"))
        self.folder.chmod(0o755)
        self.daemons = []
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        controller_port, node_port = free_ports(2)
        config = self.folder / "slurm.conf"
        config.write_text(CONFIG.format(
            host=socket.gethostname().split(".")[0], controller_port=controller_port,
            node_port=node_port, user=pwd.getpwuid(os.getuid()).pw_name, folder=self.folder,
            cpus=CPUS))
        # Other tests on this machine make ranks unequal, which bertha doctor would refuse.
        self.environment = {"SLURM_CONF": str(config), "BERTHA": BERTHA, "DOCTOR": "0"}
        try:
            self.start_daemon("munged", "--foreground", "--force", f"--key-file={key}",
                              f"--socket={self.folder}/munge.socket",
                              f"--pid-file={self.folder}/munged.pid",
                              f"--log-file={self.folder}/munged.log",
                              f"--seed-file={self.folder}/munged.seed")
            self.wait_for((self.folder / "munge.socket").exists, "munged")
            self.start_daemon("slurmctld", "-D", "-c", "-f", str(config))
            self.start_daemon("slurmd", "-D", "-f", str(config))
            self.wait_for(lambda: "idle" in self.tool("sinfo", "-h", "-o", "%T")[1], "an idle node")
        except BaseException:
            self.stop()
            raise

    def start_daemon(self, *words):
        with open(self.folder / f"{words[0]}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(
                words, env=environment(self.environment), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT))

    def tool(self, *words, cwd=LAUNCH.parent, seconds=support.MOST_RUN_SECONDS):
        """Exit code and output of one of Slurm's commands."""
        done = subprocess.run(
            [str(word) for word in words], env=environment(self.environment), cwd=cwd,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=seconds, check=False)
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def wait_for(self, condition, what):
        limit = time.monotonic() + MOST_WAIT_SECONDS
        while not condition():
            if time.monotonic() > limit or any(d.poll() is not None for d in self.daemons):
                raise AssertionError(f"no {what}:\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        names = sorted(self.folder.glob("*.log")) + sorted(self.folder.glob("*.out"))
        return "\n".join(f"== {name.name}\n{name.read_text(errors='replace')[-2000:]}"
                         for name in names)

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Slurm(EndToEnd):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)

    def config_file(self, folder, **changes):
        words = self.data.config(log__run_dir=folder, **changes)[1::2]
        sections = {}
        for word in words:
            key, _, value = word.partition("=")
            section, _, name = key.partition(".")
            sections.setdefault(section, []).append(f"  {name}: {value}")
        path = folder.with_suffix(".yaml")
        path.write_text("".join(f"{section}:\n" + "\n".join(lines) + "\n"
                                for section, lines in sections.items()))
        return path

    def submit(self, tasks, *words):
        """sbatch of the launch script; waits for the job's end: exit code and the job's output."""
        out = self.new_folder("job").with_suffix(".out")
        code, said = self.cluster.tool("sbatch", "--wait", "--ntasks-per-node", tasks, "--output",
                                       out, LAUNCH / "run_slurm.sub", *words)
        return code, (out.read_text(errors="replace") if out.exists() else said)

    def start_job(self, out, *words, cwd=LAUNCH.parent):
        """The number of a job of two tasks that goes on by itself; it ends with the test."""
        code, said = self.cluster.tool("sbatch", "--parsable", "--ntasks-per-node", 2, "--output",
                                       out, *words, cwd=cwd)
        self.assertEqual(code, 0, said)
        self.addCleanup(self.cluster.tool, "scancel", said.strip())
        return said.strip()

    def job_state(self, job):
        return self.cluster.tool("squeue", "-h", "-j", job, "-o", "%T")[1].strip()

    def test_two_and_four_tasks_train_the_same_model(self):
        losses = []
        for tasks in (2, 4):
            folder = self.new_folder()
            code, output = self.submit(tasks, self.config_file(folder))
            self.assertEqual(code, 0, output + self.cluster.logs())
            self.assertEqual(checkpoints(folder), ["step_00000012"])
            losses.append([record["loss"] for record in steps(folder).values()])
        self.assertEqual(len(losses[0]), 12)
        for two, four in zip(*losses):
            self.assertAlmostEqual(two, four, delta=12 * support.GRADIENT_F32 * two)

    def test_doctor_checks_the_tasks_of_a_job(self):
        code, output = self.submit(2, "doctor", "--backend", "cpu")
        self.assertIn(code, (0, 5), output)
        self.assertRegex(output, r"(?m)^node +ranks .*verdict$")
        self.assertRegex(output, rf"(?m)^{socket.gethostname()} +0-1 ")

    def test_what_the_program_refuses_is_the_exit_code_of_the_job(self):
        code, output = self.submit(2, self.config_file(self.new_folder(), train__max_steps=-1))
        self.assertEqual(code, 2, output)
        self.assertIn("train.max_steps", output)

    def start_again(self, job):
        """Slurm lets a requeued job wait two minutes. It takes credentials of the second in which it
        ended the job before for those that it revoked then."""
        self.cluster.tool("scontrol", "update", f"JobId={job}", "StartTime=now+3")

    def test_a_job_that_is_told_to_stop_saves_and_goes_back_into_the_queue(self):
        folder = self.new_folder()
        config = self.config_file(folder, train__max_steps=10**6, eval__every_samples=10**9)
        out = self.new_folder("job").with_suffix(".out")
        job = self.start_job(out, LAUNCH / "run_slurm.sub", config)
        self.cluster.wait_for(lambda: len(steps_so_far(folder)) >= 3, "three steps")
        # What Slurm sends before the time limit.
        self.cluster.tool("scancel", "--signal=USR1", job)
        self.cluster.wait_for(lambda: self.job_state(job) == "PENDING", "requeued job")
        self.assertIn("state saved; requeueing", out.read_text())
        saved = max(steps(folder))
        self.assertEqual(checkpoints(folder), [f"step_{saved:08d}"])
        self.start_again(job)
        self.cluster.wait_for(lambda: max(steps_so_far(folder)) > saved, "step after the saved one")
        events = [record["text"] for record in records(folder, "event")]
        self.assertIn(f"at step {saved}", " ".join(events))

    def place_without_a_run_folder(self):
        """A folder to submit from, and the config of a run that goes on by itself and names no folder."""
        place = self.new_folder("cwd")
        place.mkdir()
        (place / "launch").symlink_to(LAUNCH)
        config = self.config_file(place / "config", train__max_steps=10**6,
                                  eval__every_samples=10**9)
        config.write_text(re.sub(r"^ +run_dir:.*\n", "", config.read_text(), flags=re.M)
                          .replace("log:\n", ""))
        return place, config

    def test_a_requeued_job_without_a_run_folder_finds_its_own(self):
        place, config = self.place_without_a_run_folder()
        job = self.start_job(place / "job.out", LAUNCH / "run_slurm.sub", config, cwd=place)
        folder = place / "runs" / f"bert-{job}"
        self.cluster.wait_for(lambda: len(steps_so_far(folder)) >= 3, "three steps")
        self.cluster.tool("scancel", "--signal=USR1", job)
        self.cluster.wait_for(lambda: self.job_state(job) == "PENDING", "requeued job")
        saved = max(steps(folder))
        self.start_again(job)
        self.cluster.wait_for(lambda: max(steps_so_far(folder)) > saved, "step after the saved one")
        self.assertEqual(records(folder, "run")[-1]["first_step"], saved)
        self.assertEqual(sorted(p.name for p in (place / "runs").iterdir()), [folder.name, "latest"])

    @staticmethod
    def rank_processes(job):
        """Of the tasks of a job."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
                if (os.path.realpath(entry / "exe") == os.path.realpath(BERTHA)
                        and f"SLURM_JOB_ID={job}".encode() in variables):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def test_a_job_that_lost_a_rank_goes_on_from_its_last_checkpoint(self):
        folder = self.new_folder()
        config = self.config_file(folder, train__max_steps=10**6, eval__every_samples=10**9,
                                  checkpoint__every_steps=20)
        out = self.new_folder("job").with_suffix(".out")
        job = self.start_job(out, LAUNCH / "run_slurm.sub", config)
        self.cluster.wait_for(lambda: checkpoints(folder), "a checkpoint")
        os.kill(self.rank_processes(job)[-1], signal.SIGKILL)
        self.cluster.wait_for(lambda: len(records(folder, "run")) == 2, "the run that goes on")
        self.assertGreaterEqual(records(folder, "run")[-1]["first_step"], 20)
        self.assertIn("exit code 137; resuming the run from its last checkpoint, tries left: 2",
                      out.read_text())

    def test_a_job_on_a_node_that_doctor_refuses_waits_for_another_one(self):
        node = socket.gethostname().split(".")[0]
        program = self.new_folder("bertha")
        program.write_text("#!/bin/sh\n"
                           f"echo 'not started: repair {node}, then run this again'\nexit 5\n")
        program.chmod(0o755)
        out = self.new_folder("job").with_suffix(".out")
        job = self.start_job(out, f"--export=ALL,DOCTOR=1,BERTHA={program}",
                             LAUNCH / "run_slurm.sub", self.config_file(self.new_folder()))
        self.cluster.wait_for(lambda: "is in the queue again" in
                              (out.read_text() if out.exists() else ""), "requeued job")
        self.cluster.wait_for(lambda: self.job_state(job) == "PENDING", "job that waits")
        _, shown = self.cluster.tool("scontrol", "show", "job", job)
        self.assertIn(f"ExcNodeList={node}\n", shown)
        self.assertNotIn("JobHeldUser", shown)

    def test_a_task_of_an_array_is_requeued_and_refused_alone(self):
        place, config = self.place_without_a_run_folder()
        node = socket.gethostname().split(".")[0]
        program = place / "bertha"  # whose doctor refuses the node to tasks that a file names
        program.write_text(f"#!/bin/sh\nif [ $1 != doctor ]; then exec '{BERTHA}' \"$@\"; fi\n"
                           "if [ ! -e refuse_$SLURM_ARRAY_TASK_ID ]; then exit 0; fi\n"
                           f"echo 'not started: repair {node}, then run this again'\nexit 5\n")
        program.chmod(0o755)
        (place / "refuse_0").touch()
        array = self.start_job(place / "%a.out", "--array=0-2", "--ntasks-per-node=1", "--oversubscribe",
                               "--mem=100M", f"--export=ALL,DOCTOR=1,BERTHA={program}",
                               LAUNCH / "run_slurm.sub", config, cwd=place)

        def jobs():
            lines = self.cluster.tool("squeue", "-h", "-j", array, "-o", "%K %A")[1].splitlines()
            return [line.split()[1] for line in sorted(lines)]

        def is_refused(task):
            output = place / f"{task}.out"  # which Slurm makes when the task starts
            return output.exists() and "is in the queue again" in output.read_text()

        def excluded(task):
            shown = self.cluster.tool("scontrol", "show", "job", f"{array}_{task}")[1]
            return re.findall(r"ExcNodeList=(\S+)", shown)

        self.cluster.wait_for(lambda: len(jobs()) == 3, "three tasks")
        job = jobs()
        self.assertEqual(job[2], array)  # the trap: what stands for all tasks is also the id of one
        folder = [place / "runs" / f"bert-{one}" for one in job]
        for task in (1, 2):
            self.cluster.wait_for(lambda: len(steps_so_far(folder[task])) >= 3, "three steps")
        undisturbed = self.rank_processes(job[1])
        self.assertEqual(len(undisturbed), 1)
        self.cluster.wait_for(lambda: is_refused(0), "refused task")
        self.cluster.tool("scancel", "--signal=USR1", f"{array}_2")
        self.cluster.wait_for(lambda: self.job_state(f"{array}_2") == "PENDING", "requeued task")
        self.assertEqual(self.job_state(f"{array}_1"), "RUNNING")
        saved = max(steps(folder[2]))
        (place / "refuse_2").touch()
        self.start_again(f"{array}_2")
        self.cluster.wait_for(lambda: is_refused(2), "refused task")
        self.cluster.wait_for(lambda: self.job_state(f"{array}_2") == "PENDING", "requeued task")
        self.assertEqual([excluded(task) for task in range(3)], [[node], ["(null)"], [node]])
        # On a sound node it goes on in its own folder.
        (place / "refuse_2").unlink()
        self.cluster.tool("scontrol", "update", f"JobId={array}_2", "ExcNodeList=")
        self.start_again(f"{array}_2")
        self.cluster.wait_for(lambda: max(steps_so_far(folder[2])) > saved, "step after the saved one")
        self.assertEqual(records(folder[2], "run")[-1]["first_step"], saved)
        self.assertEqual([self.job_state(f"{array}_{task}") for task in range(3)],
                         ["PENDING", "RUNNING", "RUNNING"])
        self.assertEqual(self.rank_processes(job[1]), undisturbed)

    def test_tasks_without_mpi_are_refused_with_the_way_out(self):
        config = self.config_file(self.new_folder())
        code, output = self.cluster.tool("srun", "--mpi=none", "-n", 2, BERTHA, "train", "--config",
                                         config)
        self.assertEqual(code, 5, output)
        self.assertIn("without MPI, want `srun --mpi=pmix`", output)
        self.assertNotIn("OPAL ERROR", output)

    def test_options_of_sbatch_undo_what_the_script_asks_for(self):
        """For sites that forbid whole nodes, all memory or requeueing."""
        config = self.config_file(self.new_folder())
        for words, wanted in (
                ([], {"Requeue": "1", "OverSubscribe": "NO", "MinMemoryNode": "0"}),
                (["--oversubscribe", "--mem=100M", "--no-requeue", "--account=physics"],
                 {"Requeue": "0", "OverSubscribe": "YES", "MinMemoryNode": "100M",
                  "Account": "physics"})):
            code, job = self.cluster.tool("sbatch", "--parsable", "--hold", "--ntasks-per-node", 2,
                                          *words, LAUNCH / "run_slurm.sub", config)
            self.assertEqual(code, 0, job)
            self.addCleanup(self.cluster.tool, "scancel", job.strip())
            _, shown = self.cluster.tool("scontrol", "show", "job", job.strip())
            for name, value in wanted.items():
                self.assertIn(f" {name}={value} ", shown.replace("\n", " \n "))

    def test_mpirun_starts_the_tasks_of_a_slurm_without_pmix(self):
        folder = self.new_folder()
        config = self.config_file(folder)
        out = folder.with_suffix(".out")
        code, said = self.cluster.tool(
            "sbatch", "--wait", "--ntasks", 2, "--output", out, "--wrap",
            "scontrol show hostnames | sed 's/$/ slots=2/' |"
            f" launch/run_mpirun.sh --hostfile /dev/stdin '{config}'")
        self.assertEqual(code, 0, f"{said}{out.read_text(errors='replace')}")
        self.assertEqual(checkpoints(folder), ["step_00000012"])

    def test_mpirun_inside_an_allocation_trains(self):
        folder = self.new_folder()
        config = self.config_file(folder)
        out = folder.with_suffix(".out")
        code, said = self.cluster.tool(
            "sbatch", "--wait", "--ntasks", 2, "--output", out, "--wrap",
            f"launch/run_local.sh --ranks 2 '{config}'")
        self.assertEqual(code, 0, f"{said}{out.read_text(errors='replace')}")
        self.assertEqual(checkpoints(folder), ["step_00000012"])


if __name__ == "__main__":
    main()
