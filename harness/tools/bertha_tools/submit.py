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
from bertha_tools.errors import COMPLIANCE, DATA, SUCCESS, USAGE, Refused
from bertha_tools.run_folder import make_folder, printable, write_whole

DESCRIPTION = "Builds the folders of an MLPerf submission from ten runs: results, system, sources."
EXAMPLES = (
    "bertha-tools submit results --system my_8xH200 --output submission/my_org",
    "bertha-tools submit runs/seed_* --system my_8xH200 --output submission/my_org "
    "--sources ~/bertha",
    "bertha-tools submit results --system test --output /tmp/test --draft",
)
AVAILABILITY = {"cloud": "Available cloud", "onprem": "Available on-premise", "preview": "Preview",
                "research": "Research, Development, or Internal (RDI)"}
# The fields that submit reads from a run's system.json, with values of their types.
FACTS = {
    "nodes": 0, "ranks_per_node": 0, "git_hash": "", "versions": {},
    "accelerator": {"name": "", "driver": "", "memory_bytes": 0},
    "host": {"operating_system": "", "cpu_model": "", "caches": "", "network": "", "max_mhz": 0.0,
             "sockets": 0, "cores": 0, "logical_cpus": 0, "memory_bytes": 0}}
README = """# Bertha on {system}

Commit {commit}.

## To reproduce

    ./launch/install_deps.sh
    cmake --preset release && cmake --build build/release
    NEXP={runs} LOGDIR=results launch/run_and_time.sh configs/{system}.yaml

That file has every key of the runs with its value: the seed there is the first run's, and the
paths of data and weights are theirs; README.md of the sources says how to make those.
"""


def add_arguments(parser):
    parser.add_argument("paths", nargs="+", metavar="PATH",
                        help="run folder, or the folder of them (LOGDIR of launch/run_and_time.sh)")
    parser.add_argument("--system", required=True, metavar="NAME",
                        help="name of the system: letters, digits, '.', '_', '-'")
    parser.add_argument("-o", "--output", required=True, metavar="DIR",
                        help="folder of the submitter; may contain other systems")
    parser.add_argument("--sources", default=".", metavar="DIR",
                        help="Git checkout that has the commit of the runs (default: this folder)")
    add_rule_options(parser)
    parser.add_argument("--draft", action="store_true",
                        help="build it although a rule is broken or the sources are unknown")


def run_folders(path):
    """The path if it is a run folder, else the run folders in it, run_2 before run_10."""
    if has_log(path):
        return [path]
    runs = runs_in(path) if os.path.isdir(path) else []
    if not runs:
        raise bad_file(path, f"neither a run folder nor a folder of run folders (no {LOG_OF_A_RUN} "
                       "in it); name the LOGDIR of launch/run_and_time.sh, or each run")
    return sorted(runs, key=lambda run: (len(run), run))


def read_object(path, want):
    try:
        found = json.loads(pathlib.Path(path).read_text("utf-8")) if os.path.isfile(path) else None
    except (OSError, ValueError, RecursionError) as error:
        raise bad_file(path, f"cannot be read ({error}); want {want}") from None
    if not isinstance(found, dict):
        raise bad_file(path, f"is not a file with an object of JSON; want {want}")
    return found


def read_facts(run):
    path = os.path.join(run, "system.json")
    facts = read_object(path, "the system.json of a run folder")
    check_fields(path, facts, FACTS)
    check_fields(path, facts["versions"], dict.fromkeys(facts["versions"], ""))
    return facts


def check_fields(path, found, wanted):
    for name, example in wanted.items():
        value = found.get(name)
        kinds = (int, float) if isinstance(example, float) else (type(example),)
        in_range = not isinstance(value, (int, float)) or 0 <= value < 2**63
        if type(value) not in kinds or not in_range:
            raise bad_file(path, f"the field {printable(name)} is missing or of another kind; want "
                           "the system.json of a run folder")
        if isinstance(example, dict):
            check_fields(path, value, example)


def bytes_text(count):
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1023.95 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.{0 if units[0] == 'B' else 1}f} {units[0]}"


def describe_system(facts, name, log, division):
    """Every field that the benchmark asks for, as text; one that no machine knows is ""."""
    def known(count, text=str):
        return text(count) if count > 0 else ""

    host, accelerator = facts["host"], facts["accelerator"]["name"]
    sockets = host["sockets"]
    versions = dict(sorted(facts["versions"].items()))
    bertha = f"Bertha {versions.pop('bertha', '')}".strip()
    stack = [("NVIDIA driver", facts["accelerator"]["driver"]), *versions.items()]
    status = AVAILABILITY.get(name_in(log, "submission_status"), AVAILABILITY["research"])
    unknown = "" if accelerator else "N/A"  # a person need not describe what is not there
    return {
        "submitter": name_in(log, "submission_org"),
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
        "host_memory_capacity": known(host["memory_bytes"], bytes_text),
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
            known(facts["accelerator"]["memory_bytes"], bytes_text) if accelerator else unknown,
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
    """Takes over every text of an earlier description that is not empty, and fields of its own."""
    for name, text in sorted(read_object(path, "a system description, or remove it").items()):
        if not isinstance(text, str):
            raise bad_file(path, f"{printable(name)} is not text in quotes; correct it")
        description[name] = text or description.get(name, "")


def commit_of(facts):
    """The commit that all runs were made by, or "" and why there is none."""
    commits = {run["git_hash"] for run in facts}
    if len(commits) > 1:
        return "", f"the runs were made by {len(commits)} different commits"
    commit = commits.pop()
    if not re.fullmatch("[0-9a-f]+", commit):
        return "", f'the runs were made by "{commit}", not by a commit without changes'
    return commit, ""


def extract_sources(checkout, commit, folder):
    make_folder(folder)
    try:
        archive = subprocess.run(["git", "-C", checkout, "archive", "--format=tar", commit],
                                 check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout
        subprocess.run(["tar", "-xf", "-", "-C", folder], input=archive, check=True,
                       capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise bad_file(checkout, f"no git checkout with commit {commit}, by which the runs were "
                       "made, or the disk is full; name one with --sources") from None


class Tree:
    """The places of one system in the submitter's folder."""

    def __init__(self, output, system, commit):
        output = pathlib.Path(output)
        self.system, self.commit = system, commit
        self.staging = output / f".submit-{system}"  # unfinished parts, removed at the end
        self.results = output / "results" / system / "bert"
        self.description = output / "systems" / f"{system}.json"
        self.code = output / "benchmarks/bert/implementations" / f"bertha-{commit}"

    def write(self, logs, description, sources, config):
        made = [folder for folder in self.staging.parents if not folder.exists()]
        try:
            shutil.rmtree(self.staging, ignore_errors=True)  # left by a process that was killed
            make_folder(self.staging / "results")
            for number, log in enumerate(logs):
                shutil.copyfile(log.path, self.staging / "results" / f"result_{number}.txt")
            if self.commit:
                self.write_code(sources, config, len(logs))
            make_folder(self.description.parent)
            text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
            write_whole(self.description, text.encode("utf-8", "replace"))
            make_folder(self.results.parent)
            os.rename(self.staging / "results", self.results)
        except OSError as error:
            raise bad_file(self.staging.parent, f"cannot be written ({error.strerror}); free "
                           "space, or choose another folder with --output") from None
        finally:
            shutil.rmtree(self.staging, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty
                for folder in made:
                    folder.rmdir()

    def write_code(self, sources, config, runs):
        is_new = not self.code.exists()
        folder = self.staging / "code" if is_new else self.code
        if is_new:
            extract_sources(sources, self.commit, folder)
        readme = README.format(system=self.system, commit=self.commit, runs=runs)
        write_whole(folder / f"README-{self.system}.md", readme.encode())
        make_folder(folder / "configs")
        write_whole(folder / "configs" / f"{self.system}.yaml", pathlib.Path(config).read_bytes())
        if is_new:
            make_folder(self.code.parent)
            os.rename(folder, self.code)

    def report(self, description):
        print(printable(f"results  {self.results}\nsystem   {self.description}"))
        if self.commit:
            print(printable(f"sources  {self.code}"))
        # Notes may stay empty.
        empty = [name for name, text in description.items() if not text and "_notes" not in name]
        if empty:
            print(printable("\n  ".join([f"\nto fill in by hand in {self.description}:", *empty])))


def name_in(log, key):
    names = [record.value["value"] for record in log.of(key)]
    return names[-1] if names and isinstance(names[-1], str) else ""


def run(options):
    from bertha_tools import mllog  # loads the official package, which --help does without
    if not re.fullmatch("[A-Za-z0-9_-][A-Za-z0-9._-]*", options.system):
        raise Refused(USAGE, f'--system is "{printable(options.system)}", want letters, digits, '
                      "'.', '_' and '-' alone: it names a folder")
    runs = [run for path in options.paths for run in run_folders(path)]
    facts = [read_facts(run) for run in runs]
    commit, why_not = commit_of(facts)
    tree = Tree(options.output, options.system, commit)
    if tree.results.exists():
        raise bad_file(tree.results, "is there already; remove it to build it again, or choose "
                       "another --system")
    rules = mllog.Rules(options.ruleset, options.target)
    logs = [mllog.check_log(os.path.join(run, LOG_OF_A_RUN), rules, alone=False) for run in runs]
    description = describe_system(facts[0], options.system, logs[0], mllog.division_of(logs))
    if tree.description.exists():
        keep_written_fields(tree.description, description)
    package = mllog.check_package(logs, rules, description)
    kinds = {(one["nodes"], one["ranks_per_node"], one["accelerator"]["name"],
              one["host"]["cpu_model"]) for one in facts}
    if len(kinds) > 1:
        package.warnings.append(f"the runs were made on {len(kinds)} kinds of systems; the "
                                "description is that of the first run")
    if why_not and options.draft:
        package.warnings.append(f"{why_not}: no sources in this draft")
    print_package(logs, package, rules)
    print()
    if not package.passed and not options.draft:
        print("nothing written: a rule is broken; --draft builds it nevertheless")
        return COMPLIANCE
    if why_not and not options.draft:
        raise Refused(DATA, f"{printable(why_not)}; a submission hands in the sources of its runs. "
                      "Make the runs by one committed version, or build a --draft without sources")
    config = os.path.join(runs[0], "resolved.yaml")
    if commit and not os.path.isfile(config):
        raise bad_file(config, "there is no such file; want the settings of the first run")
    tree.write(logs, description, options.sources, config)
    tree.report(description)
    return SUCCESS if package.passed else COMPLIANCE
