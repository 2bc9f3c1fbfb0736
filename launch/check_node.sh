#!/usr/bin/env bash
# Says whether this machine can run bertha. Exit 5 when something that every run needs is missing.
set -uo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/common.sh"
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  echo "Usage: launch/check_node.sh      (on every node: srun --ntasks-per-node=1 launch/check_node.sh)"
  exit 0
fi
(($# == 0)) || stop 2 "takes no arguments; see launch/check_node.sh --help"

failed=no
line() { printf '%-5s %-20s %s\n' "$1" "$2" "$3"; }
good() { line ok "$1" "$2"; }
note() { line note "$1" "$2"; }
bad() { line BAD "$1" "$2"; failed=yes; }

good host "$(hostname), $(nproc) processors for this process, $(uname -r)"
good memory "$(awk '/^MemTotal/ {t=$2} /^MemAvailable/ {a=$2} END {printf "%.1f GiB, %.1f GiB available", t/1048576, a/1048576}' /proc/meminfo)"

shm=$(df --output=avail -B1048576 /dev/shm 2> /dev/null | tail -1 | tr -d ' ')
if [[ ! $shm =~ ^[0-9]+$ ]]; then bad /dev/shm "not mounted; MPI needs it between the ranks of a node"
elif ((shm < 64)); then note /dev/shm "$shm MiB free; with many ranks give the container --shm-size=1g"
else good /dev/shm "$shm MiB free"; fi

files=$(ulimit -n)
if [[ $files != unlimited ]] && ((files < 1024)); then note "open files" "$files; raise with ulimit -n 4096"
else good "open files" "$files"; fi

if bertha=$(find_bertha 2> /dev/null); then good bertha "$bertha"
else bad bertha "not built; cmake --preset cpu && cmake --build build/cpu"; fi

allow_root
if ! command -v mpirun > /dev/null; then bad mpirun "not found; run launch/install_deps.sh"
else
  started=$(timeout 30 mpirun -q --oversubscribe -n 2 echo rank 2>&1)
  if [[ $(grep -c '^rank$' <<< "$started") == 2 ]]; then
    good mpirun "$(mpirun --version | head -1), two ranks start"
  else bad mpirun "two ranks do not start: $(head -3 <<< "$started" | tr '\n' ' ')"; fi
fi

if ! command -v numactl > /dev/null; then note numactl "not found; ranks are not placed by NUMA node"
else good numactl "$(numactl --hardware | head -1)"; fi

gpus=$(gpus_here)
if ((gpus > 0)); then
  good gpu "$gpus: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort -u | tr '\n' ' ')"
  busy=$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2> /dev/null | grep -c . || true)
  if ((busy > 0)); then note "gpu processes" "$busy already running"; fi
else note gpu "none; train.backend cpu works"; fi

if [[ $failed == yes ]]; then exit 5; fi
