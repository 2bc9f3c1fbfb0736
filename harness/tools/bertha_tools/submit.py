"""Builds the folders of a submission from the runs of one system.

    results/SYSTEM/bert/result_K.txt
    systems/SYSTEM.json
    benchmarks/bert/implementations/bertha-COMMIT/   sources, README-SYSTEM.md, configs/SYSTEM.yaml

A system description that is already there keeps what a person wrote into it.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

from bertha_tools.check import (LOG_OF_A_RUN, add_rule_options, bad_file, has_log, print_package,
                                runs_in)
from bertha_tools.errors import COMPLIANCE, DATA, SUCCESS, USAGE, Refused, say, shortened
from bertha_tools.output import memory

DESCRIPTION = "Builds the folders of an MLPerf submission from ten runs: results, system, sources."
EXAMPLES = (
    "bertha-tools submit results --system my_8xH200 --output submission/my_org",
    "bertha-tools submit runs/seed_* --system my_8xH200 --output submission/my_org "
    "--sources ~/bertha",
    "bertha-tools submit results --system test --output /tmp/test --draft",
)
AVAILABILITY = {"cloud": "Available cloud", "onprem": "Available on-premise", "preview": "Preview",
                "research": "Research, Development, or Internal (RDI)"}
README = """# Bertha on {system}

Commit {commit}.

## To reproduce

    ./launch/install_deps.sh
    cmake --preset release && cmake --build build/release
    NEXP={runs} LOGDIR=results launch/run_and_time.sh configs/{system}.yaml

That file has every key of the runs with its value: the seed there is the first run's, and of the
absolute paths of data and weights only the names are left; README.md of the sources says how to make
those.
"""
ABSOLUTE_PATH = re.compile(r'^( *[a-z_]+: ")/(?:[^"]*/)?([^"/]*)/*"$', re.MULTILINE)


def add_arguments(parser):
    parser.add_argument("paths", nargs="+", metavar="PATH",
                        help="run folder, or the folder of them (LOGDIR of launch/run_and_time.sh)")
    parser.add_argument("--system", required=True, metavar="NAME",
                        help="name of the system: letters, digits, '.', '_', '-'")
    parser.add_argument("-o", "--output", required=True, metavar="DIR",
                        help="folder of the submitter; may contain other systems")
    parser.add_argument("--sources", default=".", metavar="DIR",
                        help="Git checkout that contains the commit of the runs (default: this folder)")
    add_rule_options(parser)
    parser.add_argument("--draft", action="store_true",
                        help="build it even if a rule is broken or the sources are unknown")


def run_folders(path):
    """The path if it is a run folder, else the run folders in it, run_2 before run_10."""
    if has_log(path):
        return [path]
    runs = runs_in(path) if os.path.isdir(path) else []
    if not runs:
        raise bad_file(path, f"neither a run folder nor a folder of run folders (no {LOG_OF_A_RUN} "
                       "in it); give the LOGDIR of launch/run_and_time.sh, or each run")
    return sorted(runs, key=lambda run: (len(run), run))


def read_object(path, want):
    try:
        found = json.loads(pathlib.Path(path).read_text("utf-8")) if os.path.isfile(path) else None
    except (OSError, ValueError, RecursionError) as error:
        raise bad_file(path, f"cannot be read ({error}); want {want}") from None
    if not isinstance(found, dict):
        raise bad_file(path, f"is not a file with a JSON object; want {want}")
    return found


def read_system(run, name, log, division):
    """(commit, description) by a run's system.json."""
    path, want = os.path.join(run, "system.json"), "the system.json of a run folder"
    facts = read_object(path, want)
    try:
        if min(facts["nodes"], facts["ranks_per_node"]) < 1:
            raise ValueError("no node or no rank")
        return facts["git_hash"].strip(), describe_system(facts, name, log, division)
    except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise bad_file(path, f"has a missing or invalid field ({type(error).__name__}: "
                       f"{shortened(error)}); want {want}") from None


def describe_system(facts, name, log, division):
    """Every field that the benchmark requires, as text; "" if no machine can determine it."""
    def known(count, text=str):
        return text(count) if count > 0 else ""

    host, accelerator = facts["host"], facts["accelerator"]["name"]
    sockets = host["sockets"]
    versions = dict(sorted(facts["versions"].items()))
    bertha = f"Bertha {versions.pop('bertha', '')}".strip()
    stack = [("NVIDIA driver", facts["accelerator"]["driver"]), *versions.items()]
    status = AVAILABILITY.get(log.last_value("submission_status"), AVAILABILITY["research"])
    unknown = "" if accelerator else "N/A"  # a person need not describe a missing accelerator
    return {
        "submitter": log.last_value("submission_org") or "",
        "division": division,
        "status": status,
        "system_name": name,
        "number_of_nodes": str(facts["nodes"]),
        "host_processors_per_node": known(sockets),
        "host_processor_model_name": host["cpu_model"],
        "host_processor_core_count": known(host["cores"] // (sockets or 1)),
        "host_processor_vcpu_count": known(host["logical_cpus"] // (sockets or 1)),
        "host_processor_frequency": known(host["max_mhz"], "{:.0f} MHz".format),
        "host_processor_caches": host["caches"],
        "host_processor_interconnect": "N/A" if sockets == 1 else "",
        "host_memory_capacity": known(host["memory_bytes"], memory),
        "host_storage_type": "",
        "host_storage_capacity": "",
        "host_networking": host["network"],
        "host_networking_topology": "N/A" if facts["nodes"] == 1 else "",
        "host_memory_configuration": "",
        "accelerators_per_node": str(facts["ranks_per_node"]) if accelerator else "0",
        "accelerator_model_name": accelerator or unknown,
        "accelerator_host_interconnect": unknown,
        "accelerator_frequency": unknown,
        "accelerator_on-chip_memories": unknown,
        "accelerator_memory_configuration": unknown,
        "accelerator_memory_capacity":
            known(facts["accelerator"]["memory_bytes"], memory) if accelerator else unknown,
        "accelerator_interconnect": unknown,
        "accelerator_interconnect_topology": unknown,
        "cooling": "",
        "hw_notes": "",
        "framework": f"{bertha} ({facts['git_hash']})",
        "other_software_stack":
            ", ".join(f"{part} {version}" for part, version in stack if version),
        "operating_system": host["operating_system"],
        "sw_notes": "",
    }


def keep_written_fields(path, description):
    """Keeps every text of an earlier description that is not empty, and its additional fields."""
    for name, text in sorted(read_object(path, "a system description, or remove it").items()):
        if not isinstance(text, str):
            raise bad_file(path, f"{shortened(name)} is not text in quotes; correct it")
        description[name] = text or description.get(name, "")


def extract_sources(checkout, commit, folder):
    try:
        archive = subprocess.run(["git", "-C", checkout, "archive", "--format=tar", commit],
                                 check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout
        subprocess.run(["tar", "-xf", "-", "-C", folder], input=archive, check=True,
                       capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise bad_file(checkout, f"is not a git checkout with commit {commit} of the runs, or the "
                       "disk is full; give one with --sources") from None


@contextlib.contextmanager
def staged(output, system):
    """A folder whose files move to their places in `output` at the end; that or nothing changes."""
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    staging = output / f".submit-{system}"
    shutil.rmtree(staging, ignore_errors=True)  # left by a process that was killed
    try:
        os.makedirs(staging)
        yield staging
        files = [path.relative_to(staging) for path in staging.rglob("*")
                 if path.is_symlink() or not path.is_dir()]
        for path in sorted(files, key=lambda path: path.parts[0] == "results"):  # these are last
            os.makedirs((output / path).parent, exist_ok=True)
            os.replace(staging / path, output / path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty
            for folder in made:
                folder.rmdir()


def run(options):
    from bertha_tools import mllog  # loads the official package, which --help does without
    if not re.fullmatch("[A-Za-z0-9_-][A-Za-z0-9._-]*", options.system):
        raise Refused(USAGE, f'--system is "{shortened(options.system)}", want letters, digits, '
                      "'.', '_' and '-' alone: it names a folder")
    runs = [run for path in options.paths for run in run_folders(path)]
    rules = mllog.Rules(options.ruleset, options.target)
    logs = [mllog.check_log(os.path.join(run, LOG_OF_A_RUN), rules, alone=False) for run in runs]
    systems = [read_system(run, options.system, logs[0], mllog.division_of(logs)) for run in runs]
    commits, description = sorted({commit for commit, _ in systems}), systems[0][1]
    commit = commits[0] if len(commits) == 1 and re.fullmatch("[0-9a-f]+", commits[0]) else ""
    output = pathlib.Path(options.output)
    results = pathlib.Path("results", options.system, "bert")
    described = pathlib.Path("systems", f"{options.system}.json")
    code = pathlib.Path("benchmarks/bert/implementations", f"bertha-{commit}")
    if (output / results).exists():
        raise bad_file(output / results, "already exists; remove it to build it again, or choose "
                       "another --system")
    kinds = len({json.dumps({**one, "framework": ""}) for _, one in systems})
    if (output / described).exists():
        keep_written_fields(output / described, description)
    package = mllog.check_package(logs, rules, description)
    if kinds > 1:
        package.warnings.append(f"the runs used {kinds} kinds of systems; the description "
                                "is that of the first run")
    why_not = "" if commit else \
        f"the runs used {shortened(', '.join(commits))}, not one commit without changes"
    if why_not and options.draft:
        package.warnings.append(f"{why_not}: no sources in this draft")
    print_package(logs, package, rules)
    say("")
    if not package.passed and not options.draft:
        say("nothing written: a rule is broken; --draft builds it anyway")
        return COMPLIANCE
    if why_not and not options.draft:
        raise Refused(DATA, f"{why_not}; a submission includes the sources of its runs. Run them "
                      "with one committed version, or build a --draft without sources")
    config = os.path.join(runs[0], "resolved.yaml")
    if commit and not os.path.isfile(config):
        raise bad_file(config, "no such file; want the settings of the first run")
    with staged(output, options.system) as folder:
        if commit:
            os.makedirs(folder / code / "configs")
            if not (output / code).exists():
                extract_sources(options.sources, commit, folder / code)
            readme = README.format(system=options.system, commit=commit, runs=len(runs))
            (folder / code / f"README-{options.system}.md").write_text(readme)
            settings = pathlib.Path(config).read_text(encoding="utf-8")
            (folder / code / "configs" / f"{options.system}.yaml").write_text(
                ABSOLUTE_PATH.sub(r'\1\2"', settings), encoding="utf-8")
        for place in (described.parent, results):
            os.makedirs(folder / place)
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        (folder / described).write_text(text, encoding="utf-8", errors="replace")
        for number, log in enumerate(logs):
            shutil.copyfile(log.path, folder / results / f"result_{number}.txt")
    say(f"results  {output / results}\nsystem   {output / described}")
    if commit:
        say(f"sources  {output / code}")
    # Notes may be empty.
    empty = [name for name, text in description.items() if not text and "_notes" not in name]
    if empty:
        say("\n  ".join([f"\nto fill in by hand in {output / described}:", *empty]))
    return SUCCESS if package.passed else COMPLIANCE
