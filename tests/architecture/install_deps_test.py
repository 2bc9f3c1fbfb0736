"""launch/install_deps.sh installs what is missing, and refuses systems that it does not know.

usage: install_deps_test.py SOURCE_DIR
"""

import re
import shutil
import subprocess
import sys
import unittest

from launch_case import LAUNCH, LaunchCase


class InstallDeps(LaunchCase):
    def install(self, release, installed, *arguments):
        file = self.folder / "os-release"
        file.write_text(release)
        self.stand_in("dpkg-query", 'for p in "${@:3}"; do echo "$p %s"; done; exit 0' % installed)
        self.stand_in("rpm", 'for p in "${@:4}"; do echo "$p %s"; done; exit 0' % installed)
        self.stand_in("apt-get", "echo apt-get ran; exit 100")
        self.stand_in("dnf", "echo dnf ran; exit 1")
        self.stand_in("sudo", "exit 100")
        self.stand_in("sleep")
        for tool in ("cmake", "ninja", "g++", "make", "pkg-config", "git", "ccache", "python3", "mpirun",
                     "ssh", "shellcheck"):
            self.stand_in(tool)
        return self.start("install_deps.sh", *arguments, BERTHA_OS_RELEASE=str(file))

    def test_nothing_is_installed_when_everything_is_there(self):
        code, output = self.install("ID=debian\nVERSION_ID=12\n", "installed")
        self.assertEqual((code, output), (0, "install_deps: all packages are installed\n"))

    def test_dry_run_says_what_is_missing_and_runs_nothing(self):
        code, output = self.install("ID=ubuntu\nVERSION_ID=24.04\n", "not-installed", "--dry-run")
        self.assertEqual(code, 0, output)
        self.assertIn("libhdf5-dev", output)
        self.assertNotIn("apt-get ran", output)
        for release in ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n',
                        'ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.6"\n'):
            code, output = self.install(release, "not installed", "--dry-run")
            self.assertEqual(code, 0, output)
            _, epel, crb, packages = output.splitlines()
            self.assertEqual([epel, crb], ["  dnf install --assumeyes epel-release", "  crb enable"])
            self.assertRegex(packages, "^  dnf install --assumeyes .* hdf5-devel ")
            self.assertNotIn("g++", packages)  # a tool whose command is there
            self.assertNotIn("dnf ran", output)

    def test_only_those_who_fuzz_get_clang(self):
        for release, package in (("ID=debian\nVERSION_ID=12\n", "libclang-rt-19-dev"),
                                 ("ID=rhel\nVERSION_ID=9.4\n", "compiler-rt")):
            for flags in ((), ("--fuzz",)):
                code, output = self.install(release, "not installed", "--dry-run", *flags)
                self.assertEqual(code, 0, output)
                self.assertEqual(package in output, bool(flags), output)

    def test_every_library_has_a_package_of_either_kind(self):
        """Both lists name the same libraries, so that a new one is not forgotten."""
        names = {}
        for release in ("ID=debian\nVERSION_ID=12\n", "ID=rhel\nVERSION_ID=9.4\n"):
            _, output = self.install(release, "not installed", "--dry-run")
            words = set(output.split("--no-install-recommends" if "apt-get" in output else
                                     "install_weak_deps=False")[1].split())
            stems = {re.sub("^lib|-?(dev|devel)$|[-_+0-9]", "", word) for word in words}
            names[release] = {stem.removeprefix("nlohmann") for stem in stems}
        debian, rhel = names.values()
        tools = {"openmpi", "openmpibin", "protobufcompiler", "protobuflite", "pythonvenv", "wordnetbase"}
        self.assertEqual({"openssl" if name == "ssl" else name for name in debian - tools}, rhel - tools)

    def test_other_systems_are_refused_with_a_sentence(self):
        for release in ("ID=fedora\nVERSION_ID=40\n", "ID=rocky\nID_LIKE=rhel\nVERSION_ID=8.10\n",
                        "ID=rhel\nVERSION_ID=10.0\n", "ID=ubuntu\nVERSION_ID=22.04\nID_LIKE=debian\n",
                        "ID=debian\nVERSION_ID=11\n", ""):
            code, output = self.install(release, "installed")
            self.assertEqual(code, 5, output)
            self.assertIn("Debian 12, Ubuntu 24.04", output)
            self.assertIn("launch/conda.yml", output)

    def test_a_derivative_is_taken_for_its_parent(self):
        code, output = self.install('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID=22\n', "installed")
        self.assertEqual(code, 0, output)

    def test_failing_package_lists_end_with_a_sentence(self):
        code, output = self.install("ID=debian\nVERSION_ID=12\n", "not-installed")
        self.assertEqual(code, 5, output)
        self.assertIn("apt-get update failed twice", output)
        code, output = self.install("ID=rhel\nVERSION_ID=9.4\n", "not installed")
        self.assertEqual(code, 5, output)
        self.assertIn("dnf install --assumeyes epel-release failed twice", output)

    def test_a_rhel_without_mpirun_on_its_path_is_told_to_load_it(self):
        for tool in ("bash", "dirname", "sed", "grep", "cat", "env"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        release = "ID=rhel\nVERSION_ID=9.4\n"
        for is_told in (False, True):
            self.install(release, "installed")  # makes the stand-ins
            self.stand_in("protoc")
            if is_told:
                (self.bin / "mpirun").unlink()
            run = subprocess.run(
                ["bash", str(LAUNCH / "install_deps.sh")], stdout=subprocess.PIPE, check=False,
                env={"PATH": str(self.bin), "BERTHA_OS_RELEASE": str(self.folder / "os-release")})
            self.assertEqual(run.returncode, 0, run.stdout)
            self.assertEqual(b"module load mpi/openmpi-x86_64" in run.stdout, is_told)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
