"""Commands that scripts beside this one start: their output goes to a file, and nothing of a launcher
around the script reaches them."""
import os
import shutil
import subprocess


def environment_without(prefixes, **more):
    """This process's environment without the variables of these prefixes, with `more`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
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
