"""Commands that scripts beside this one start: their output goes to a file, and nothing of a launcher
around the script reaches them."""
import os
import pathlib
import shutil
import subprocess

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"


def environment_without(prefixes, **more):
    """This process's environment without the variables of these prefixes, with `more`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    environment["OMPI_MCA_orte_execute_quiet"] = "1"  # mpirun's -q, which that of Open MPI 5 does not know
    if shutil.which("ssh") is None:  # or Open MPI refuses to start, on one machine too
        environment["OMPI_MCA_plm_rsh_agent"] = ""
    return {**environment, **more}


def start_logged(words, log, folder, environment):
    """A process in a session of its own; the file begins with the command and an empty line."""
    words = [str(word) for word in words]
    with open(log, "wb") as out:
        out.write((" ".join(words) + "\n\n").encode())
        out.flush()
        return subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                stdout=out, stderr=subprocess.STDOUT, start_new_session=True)


def visible_gpus():
    """As CUDA_VISIBLE_DEVICES names them."""
    done = subprocess.run(["bash", "-c", '. "$0" && visible_gpus', LAUNCH / "common.sh"],
                          stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().split()


def launcher(ranks, words):
    """A program's words on that many ranks; 0: without a launcher. A list: on pretended machines of so
    many ranks each, with the next of the visible GPUs for each rank."""
    if ranks == 0:
        return words
    line = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"]
    if not isinstance(ranks, list):
        return [*line, ranks, *words]
    gpus = visible_gpus()
    cases = ""  # Open MPI 5.0.7 crashes on contexts `a : b` of mpirun
    for node, count in enumerate(ranks):
        first = sum(ranks[:node])
        cases += (f"{'|'.join(map(str, range(first, first + count)))}) export NCCL_HOSTID=pretended{node}"
                  f" CUDA_VISIBLE_DEVICES={','.join(gpus[first:first + count])} ;; ")
    return [*line, sum(ranks), "sh", "-c", f"export NCCL_SOCKET_IFNAME=lo; case $OMPI_COMM_WORLD_RANK in "
            f'{cases}esac; exec "$0" "$@"', *words]
