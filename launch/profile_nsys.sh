#!/usr/bin/env bash
# Records a few training steps of every rank with Nsight Systems: prints the command, then runs it.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
Usage: launch/profile_nsys.sh [--bench] [--steps A:B] [--ranks N] CONFIG.yaml [OPTIONS of bertha...]

Records the steps A to B (default 21:25) of a run, which ends after step B: of N ranks here (default
1) or of all tasks of a Slurm job. With --bench it is `bertha bench step`, which needs no data, else
`bertha train`. The report is bertha_steps_A_B.nsys-rep in this folder, of several ranks one each,
bertha_steps_A_B_HOST_RANK.nsys-rep, and of a Slurm job bertha_steps_A_B_JOB_HOST_RANK.nsys-rep; ranges
name steps, phases and layers.

Examples:
  launch/profile_nsys.sh --bench configs/mlperf_closed_8gpu_448.yaml --tokens-per-rank 24576
  launch/profile_nsys.sh my.yaml --global-batch 56
  launch/profile_nsys.sh --steps 101:110 --ranks 8 my.yaml
  sbatch --nodes=2 launch/run_slurm.sub --profile --steps 101:110 my.yaml
TEXT
}

mode=train
steps=21:25
ranks=
while true; do
  case ${1:-} in
    -h | --help) usage; exit 0 ;;
    --bench) mode=bench; shift ;;
    --steps) steps=${2:-}; shift $(($# < 2 ? 1 : 2)) ;;
    --ranks)
      check_number 2 --ranks "${2:-}" 1 "$max_ranks"
      ranks=$2
      shift 2
      ;;
    *) break ;;
  esac
done
first=${steps%%:*}
last=${steps#*:}
if [[ ! $steps =~ ^[1-9][0-9]{0,8}:[1-9][0-9]{0,8}$ ]] || ((first > last)); then
  stop 2 "--steps takes the first and the last step, such as 21:25; found ${steps@Q}"
fi
if [[ -n ${SLURM_JOB_ID:-} && -n $ranks ]]; then
  stop 2 "--ranks $ranks inside a Slurm allocation, whose tasks determine the ranks; unset SLURM_JOB_ID to ignore it"
fi
check_config "${1:-}"
config=$1
shift
bertha=$(find_bertha)
# The nodes of a job, or their image, may have nsys even if this node does not.
if [[ -z ${SLURM_JOB_ID:-} ]] && ! command -v nsys > /dev/null; then
  stop 5 "nsys is not here; install Nsight Systems (package nsight-systems-cli of NVIDIA's repository)"
fi

if [[ $mode == bench ]]; then
  work=(bench step --config "$config" --warmup "$((last - 1))" --steps 1)
else
  work=(train --config "$config" --max-steps "$last" --resume never
    --set checkpoint.at_end=false --set train.target_accuracy=0)
fi
work+=(--profile-steps "$steps" "$@")
# nsys replaces %h by the host and %q{NAME} by a variable.
name=bertha_steps_${first}_${last}
if [[ -n ${SLURM_JOB_ID:-} ]]; then name+='_%q{SLURM_JOB_ID}_%h_%q{SLURM_PROCID}'
elif ((${ranks:-1} > 1)); then name+='_%h_%q{OMPI_COMM_WORLD_RANK}'; fi
# Each rank brackets these steps with cudaProfilerStart and cudaProfilerStop.
command=(nsys profile "--trace=cuda,nvtx,cublas" --sample=none --cpuctxsw=none
  --capture-range=cudaProfilerApi --capture-range-end=stop --force-overwrite=true
  "--output=$name"
  "$bertha" "${work[@]}")
printf '%q ' "${command[@]}"
echo
if [[ -n ${SLURM_JOB_ID:-} ]]; then
  run_srun "${command[@]}"
elif ((${ranks:-1} > 1)); then
  allow_root
  run_mpirun --oversubscribe --bind-to none -n "$ranks" "${command[@]}"
else
  exec "${command[@]}"
fi
