"""launch/install_deps.sh installs what is missing, and refuses systems that it does not know; CMake
does without what neither building nor training needs.

usage: install_deps_test.py SOURCE_DIR
"""

import os
import re
import shutil
import subprocess
import sys
import unittest

from launch_case import ROOT, LaunchCase


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
        for tool in ("cmake", "ninja", "g++", "pkg-config", "git", "ccache", "python3", "mpirun", "ssh",
                     "shellcheck"):
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

    def on_path_alone(self, *missing):
        """A PATH without these commands, of the stand-ins and of what the script itself runs."""
        self.install("ID=debian\nVERSION_ID=12\n", "installed")  # makes the stand-ins
        self.stand_in("protoc")
        for tool in ("bash", "dirname", "sed", "grep", "cat", "env", "sort", "head"):
            (self.bin / tool).unlink(missing_ok=True)
            (self.bin / tool).symlink_to(shutil.which(tool))
        for tool in missing:
            (self.bin / tool).unlink(missing_ok=True)
        return {"only_path": str(self.bin), "BERTHA_OS_RELEASE": str(self.folder / "os-release")}

    def without(self, packages, *arguments):
        """On a Debian that lacks these alone and can install none."""
        alone = self.on_path_alone("sudo", "apt-get", *packages)
        self.stand_in("dpkg-query", f'for p in "${{@:3}}"; do [[ " {" ".join(packages)} " == *" $p "* ]] ||'
                      ' echo "$p installed"; done; exit 0')
        return self.start("install_deps.sh", *arguments, **alone)

    def test_what_neither_builds_nor_trains_is_a_line(self):
        lacking = ("ccache", "ssh", "shellcheck", "git", "libgtest-dev", "python3-venv", "wordnet-base")
        code, output = self.without(lacking)
        self.assertEqual(code, 0, output)
        self.assertEqual(output.splitlines(), [
            "install_deps: left out, for the quickstart's own text (--wordnet): wordnet-base",
            "install_deps: left out, for the tests (--tests): git python3-venv shellcheck libgtest-dev",
            "install_deps: left out, for faster recompilation (ccache) and ranks on other machines (ssh): "
            "ccache openssh-client"])

    def test_what_the_caller_asks_for_is_needed(self):
        for name, package, *option in (("libgtest-dev", "libgtest-dev", "--tests"), ("mpirun", "openmpi-bin"),
                                       ("shellcheck", "shellcheck", "--tests"), ("cmake", "cmake"),
                                       ("wordnet-base", "wordnet-base", "--wordnet")):
            code, output = self.without((name, "ccache"), *option)
            self.assertEqual(code, 5, output)
            self.assertTrue(output.endswith(f"install these packages by hand: {package}\n"), output)

    def test_a_package_that_nothing_needs_does_not_keep_others_from_being_installed(self):
        self.install("ID=debian\nVERSION_ID=12\n", "not-installed")
        self.stand_in("apt-get", 'if [[ " $* " == *" wordnet-base "* ]]; then exit 100; fi')
        self.stand_in("sudo", 'exec "$@"')
        code, output = self.start("install_deps.sh", BERTHA_OS_RELEASE=str(self.folder / "os-release"))
        self.assertEqual((code, "<libhdf5-dev>" in output), (0, True), output)

    def test_cmake_does_without_a_ccache_that_cannot_write(self):
        """It ends with 1 then, and compiles nothing."""
        self.stand_in("ccache", '[[ -w $HOME ]] || { echo "ccache: error: no $HOME" >&2; exit 1; }\nexec "$@"')
        for home, word in (("/dev/null/home", "OFF  (ccache: error: no /dev/null/home)"),
                           (str(self.folder), f"ON  ({self.bin}/ccache)")):
            build = self.folder / word.split()[0]
            done = self.cmake(build, "-D", "BERTHA_KERNELS_ONLY=ON", HOME=home)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(f"--   ccache            {word}\n", done.stdout)
            rules = "".join((build / name).read_text()  # where newer versions have it
                            for name in ("CMakeFiles/rules.ninja", "build.ninja"))
            self.assertEqual(f"{self.bin}/ccache " in rules, word.startswith("ON"))

    def test_cmake_builds_the_program_where_the_tests_lack_their_packages(self):
        lacking = ("-D", "CMAKE_DISABLE_FIND_PACKAGE_GTest=ON")
        done = self.cmake(self.folder / "auto", *lacking)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("tests             OFF  (GoogleMock, LevelDB or Python 3 was not found; run "
                      "launch/install_deps.sh --tests)", done.stdout)
        done = self.cmake(self.folder / "on", *lacking, "-D", "BERTHA_TESTS=ON")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("BERTHA_TESTS=ON, but GoogleMock", " ".join(done.stdout.split()))

    def cmake(self, build, *arguments, **variables):
        """Configures with the stand-ins first on PATH."""
        return subprocess.run(
            ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(build), "-D", "BERTHA_CUDA=OFF", *arguments],
            env={**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **variables},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

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
        other_names = {"ssl": "openssl", "lzma": "xz", "zlibg": "zlib"}
        self.assertEqual({other_names.get(name, name) for name in debian - tools}, rhel - tools)

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
        for is_told in (False, True):
            alone = self.on_path_alone(*["mpirun"] * is_told)
            (self.folder / "os-release").write_text("ID=rhel\nVERSION_ID=9.4\n")
            code, output = self.start("install_deps.sh", **alone)
            self.assertEqual((code, "module load mpi/openmpi-x86_64" in output), (0, is_told), output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
