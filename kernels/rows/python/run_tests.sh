#!/usr/bin/env bash
# Builds the wheel, installs it in a virtual environment and runs its tests. Arguments go to pytest.
#
#   kernels/rows/python/run_tests.sh                     # build/wheel-venv, with PyTorch from PyPI
#   kernels/rows/python/run_tests.sh --python PYTHON     # on top of the packages of another Python
set -euo pipefail
cd "$(dirname "$0")/../../.."

venv=build/wheel-venv
if [[ ${1:-} == --python ]]; then
  "$2" -m venv --system-site-packages "$venv"
  # Where that Python is itself of a virtual environment, its packages are not those of the system.
  "$2" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    > "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
  shift 2
elif [[ ! -e $venv ]]; then
  python3 -m venv "$venv"
fi
"$venv/bin/pip" --quiet --disable-pip-version-check install -r kernels/rows/python/tests/requirements.txt
rm -rf build/wheels
"$venv/bin/pip" --quiet --disable-pip-version-check wheel kernels/rows/python --no-deps \
  --no-build-isolation -w build/wheels
"$venv/bin/pip" --quiet --disable-pip-version-check install --no-deps --force-reinstall \
  build/wheels/*.whl
"$venv/bin/python" -m pytest -q -p no:cacheprovider kernels/rows/python/tests "$@"
