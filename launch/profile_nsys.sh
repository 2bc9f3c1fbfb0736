#!/usr/bin/env bash
# Records a few training steps of one GPU with Nsight Systems: prints the command, then runs it.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
Usage: launch/profile_nsys.sh [--bench] [--steps A:B] CONFIG.yaml [OPTIONS of bertha...]

Records the steps A to B (default 21:25) of a run of one rank, which ends after step B. With --bench
it is `bertha bench step`, which needs no data, else `bertha train`. The report is
bertha_steps_A_B.nsys-rep in this folder; ranges name steps, phases and layers.

Examples:
  launch/profile_nsys.sh --bench configs/mlperf_closed_8gpu_448.yaml --tokens-per-rank 24576
  launch/profile_nsys.sh my.yaml --global-batch 56
  launch/profile_nsys.sh --steps 101:110 my.yaml
TEXT
}

mode=train
steps=21:25
while true; do
  case ${1:-} in
    -h | --help) usage; exit 0 ;;
    --bench) mode=bench; shift ;;
    --steps) steps=${2:-}; shift $(($# < 2 ? 1 : 2)) ;;
    *) break ;;
  esac
done
first=${steps%%:*}
last=${steps#*:}
if [[ ! $steps =~ ^[1-9][0-9]{0,8}:[1-9][0-9]{0,8}$ ]] || ((first > last)); then
  stop 2 "--steps takes the first and the last step, such as 21:25; found ${steps@Q}"
fi
check_config "${1:-}"
config=$1
shift
bertha=$(find_bertha)
command -v nsys > /dev/null || stop 5 \
  "nsys is not here; install Nsight Systems (package nsight-systems-cli of NVIDIA's repository)"

if [[ $mode == bench ]]; then
  work=(bench step --config "$config" --warmup "$((last - 1))" --steps 1)
else
  work=(train --config "$config" --max-steps "$last" --resume never
    --set checkpoint.at_end=false --set train.target_accuracy=0)
fi
# The rank brackets these steps with cudaProfilerStart and cudaProfilerStop.
command=(nsys profile "--trace=cuda,nvtx,cublas" --sample=none --cpuctxsw=none
  --capture-range=cudaProfilerApi --capture-range-end=stop --force-overwrite=true
  "--output=bertha_steps_${first}_${last}"
  "$bertha" "${work[@]}" --profile-steps "$steps" "$@")
printf '%q ' "${command[@]}"
echo
exec "${command[@]}"
