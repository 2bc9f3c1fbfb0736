#!/usr/bin/env bash
# Runs a command on the NUMA node of this rank: the node of its GPU, else nodes in turn by local
# rank. Without numactl, or with one node, the command runs as it is; bertha then divides the cores.
#
#   mpirun ... launch/bind_rank.sh bertha train ...
set -euo pipefail
if (($# == 0)); then
  echo "bind_rank.sh: want a command to run" >&2
  exit 2
fi

sys=${BERTHA_SYS:-/sys}  # tests point this elsewhere
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-0}}}
tasks=${SLURM_STEP_TASKS_PER_NODE:-1}  # "8" or "8(x2)"
ranks=${OMPI_COMM_WORLD_LOCAL_SIZE:-${tasks%%[!0-9]*}}
if [[ ! $rank =~ ^(0|[1-9][0-9]{0,5})$ || ! $ranks =~ ^[1-9][0-9]{0,5}$ ]]; then
  echo "bind_rank.sh: local rank ${rank@Q} of ${ranks@Q}, want whole numbers; check the launcher's variables" >&2
  exit 5
fi

nodes=()
for folder in "$sys"/devices/system/node/node[0-9]*; do
  if [[ -n $(cat "$folder/cpulist" 2> /dev/null) ]]; then nodes+=("${folder##*node}"); fi
done
if ((${#nodes[@]} < 2)) || ! command -v numactl > /dev/null; then exec "$@"; fi

node=
if command -v nvidia-smi > /dev/null; then
  # 00000000:1B:00.0 -> 0000:1b:00.0
  bus=$(nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader --id="$rank" 2> /dev/null || true)
  bus=${bus,,}
  node=$(cat "$sys/bus/pci/devices/${bus:4}/numa_node" 2> /dev/null || true)
fi
if [[ ! $node =~ ^[0-9]+$ ]]; then
  node=${nodes[$((rank * ${#nodes[@]} / (ranks > rank ? ranks : rank + 1)))]}
fi
bind=(numactl "--cpunodebind=$node" "--membind=$node")
if ! "${bind[@]}" true 2> /dev/null; then
  echo "bind_rank.sh: NUMA node $node is not open to this job; local rank $rank runs unbound" >&2
  exec "$@"
fi
exec "${bind[@]}" "$@"
