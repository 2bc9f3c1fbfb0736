#!/usr/bin/env bash
# Runs a command on the NUMA node of this rank: that of the GPU which bertha will take (the only one
# it sees, or the one of its local rank), or nodes in turn where there is no GPU. Where the node is
# unknown, without numactl, or with one node, the command runs as it is; bertha then divides the cores.
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

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader "${@:2}" 2> /dev/null || true; }
gpus=()
if command -v nvidia-smi > /dev/null; then
  visible=${CUDA_VISIBLE_DEVICES-$(query index)}  # set to nothing, it hides all GPUs
  while read -r gpu; do
    [[ $gpu =~ ^([0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+)$ ]] || break  # CUDA shows none after such an entry
    gpus+=("$gpu")
  done <<< "${visible//,/$'\n'}"
fi
if ((${#gpus[@]} == 0)); then
  node=${nodes[$((rank * ${#nodes[@]} / (ranks > rank ? ranks : rank + 1)))]}
else
  gpu=${gpus[$((${#gpus[@]} == 1 ? 0 : rank))]:-}
  # 00000000:1B:00.0 -> 0000:1b:00.0
  bus=$(query pci.bus_id --id="$gpu")
  bus=${bus,,}
  node=$(cat "$sys/bus/pci/devices/${bus:4}/numa_node" 2> /dev/null || true)
  if [[ ! $node =~ ^[0-9]+$ ]]; then exec "$@"; fi
fi
# Preferred: memory comes from another node where this one has none left.
bind=(numactl "--cpunodebind=$node" "--preferred=$node")
if ! "${bind[@]}" true 2> /dev/null; then
  echo "bind_rank.sh: NUMA node $node is not open to this job; local rank $rank runs unbound" >&2
  exec "$@"
fi
exec "${bind[@]}" "$@"
