#!/usr/bin/env bash
# Builds the wheel, installs it in a virtual environment and runs its tests. Arguments go to pytest.
#
#   kernels/rows/python/run_tests.sh                     # build/wheel-venv, with PyTorch from PyPI
#   kernels/rows/python/run_tests.sh --python PYTHON     # on top of the packages of another Python
#   kernels/rows/python/run_tests.sh --sdist             # the wheel from a source distribution
#   kernels/rows/python/run_tests.sh --wheel FILE        # a wheel that is built already
#   kernels/rows/python/run_tests.sh --offline           # without package index: PYTHON has it all
# Options come in this order: --python, --offline, --sdist or --wheel.
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
pip=("$venv/bin/pip" --quiet --disable-pip-version-check)
if [[ ${1:-} == --offline ]]; then
  shift
else
  "${pip[@]}" install -r kernels/rows/python/tests/requirements.txt
fi
source=kernels/rows/python
if [[ ${1:-} == --wheel ]]; then
  wheel=$2
  shift 2
else
  rm -rf build/wheels
  if [[ ${1:-} == --sdist ]]; then
    # Python 3.11 or older adds a setuptools to $venv that is too old for PyTorch 2.15; the build uses none.
    "$venv/bin/python" -m build --sdist --no-isolation --skip-dependency-check -o build/wheels "$source"
    source=$(echo build/wheels/*.tar.gz)
    shift
  fi
  "${pip[@]}" wheel "$source" --no-deps --no-build-isolation -w build/wheels
  wheel=$(echo build/wheels/*.whl)
fi
"${pip[@]}" install --no-index --no-deps --force-reinstall "$wheel"
"$venv/bin/python" -m pytest -q -p no:cacheprovider kernels/rows/python/tests "$@"
