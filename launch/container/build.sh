#!/usr/bin/env bash
# Builds Bertha in an image and installs it into a folder, with the list of the packages that it needs
# where it runs. Used by Dockerfile and bertha.def.
#
#   launch/container/build.sh PREFIX [OPTIONS of cmake...]
set -euo pipefail
if (($# == 0)) || [[ $1 == -* ]]; then
  echo "build.sh: want the folder to install into" >&2
  exit 2
fi
prefix=$1
shift
cd "$(dirname "$0")/../.."

launch/install_deps.sh
export PATH=$PATH:/usr/local/cuda/bin  # Apptainer does not promise the PATH of the base image
# Without BERTHA_NATIVE, since the image runs on other processors than this one.
build=$(mktemp -d)
cmake --preset release -B "$build" -D BERTHA_CUDA=ON -D BERTHA_NATIVE=OFF -D BERTHA_NCCL=ON -D BERTHA_TESTS=OFF "$@"
cmake --build "$build" --parallel "$(nproc)" --target bertha
install -D "$build/bertha" "$prefix/bin/bertha"
cp -r launch configs "$prefix"
apt-get install --yes --no-install-recommends python3-venv
python3 -m venv "$prefix/tools"
"$prefix/tools/bin/pip" install --quiet harness/tools
ln -s ../tools/bin/bertha-tools "$prefix/bin/bertha-tools"
rm -rf "$build"

# A package may own a library under /lib that the system shows under /usr/lib. ldd does not show
# OpenBLAS, which is loaded later.
ldd "$prefix/bin/bertha" | awk '$3 ~ /^\// { print $3 }' | xargs realpath | sort -u |
  while read -r file; do
    dpkg -S "$file" 2> /dev/null || dpkg -S "${file#/usr}"
  done | sed 's/:.*//' | sort -u > "$prefix/packages"
printf '%s\n' libopenblas0 openmpi-bin openssh-client python3 >> "$prefix/packages"
