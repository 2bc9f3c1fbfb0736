"""launch/install_deps.sh installs what is missing, and refuses systems that it does not know.

usage: install_deps_test.py SOURCE_DIR
"""

import sys
import unittest

from launch_case import LaunchCase


class InstallDeps(LaunchCase):
    def install(self, release, installed, *arguments):
        file = self.folder / "os-release"
        file.write_text(release)
        self.stand_in("dpkg-query", 'for p in "${@:3}"; do echo "$p %s"; done; exit 0' % installed)
        self.stand_in("apt-get", "echo apt-get ran; exit 100")
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

    def test_other_systems_are_refused_with_a_sentence(self):
        for release in ("ID=fedora\nVERSION_ID=40\n", "ID=ubuntu\nVERSION_ID=22.04\nID_LIKE=debian\n",
                        "ID=debian\nVERSION_ID=11\n", ""):
            code, output = self.install(release, "installed")
            self.assertEqual(code, 5, output)
            self.assertIn("Debian 12 or Ubuntu 24.04", output)

    def test_a_derivative_is_taken_for_its_parent(self):
        code, output = self.install('ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID=22\n', "installed")
        self.assertEqual(code, 0, output)

    def test_failing_package_lists_end_with_a_sentence(self):
        code, output = self.install("ID=debian\nVERSION_ID=12\n", "not-installed")
        self.assertEqual(code, 5, output)
        self.assertIn("apt-get update failed twice", output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
