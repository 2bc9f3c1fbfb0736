#!/usr/bin/env bash
# Trains on this machine, or checks it with `doctor` instead of the config: one rank per GPU, or one
# rank on all cores without a GPU.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
Usage: launch/run_local.sh [--ranks N] [CONFIG.yaml] [OPTIONS of bertha train...]
       launch/run_local.sh [--ranks N] doctor [OPTIONS of bertha doctor...]

Examples:
  launch/run_local.sh configs/quickstart.yaml
  launch/run_local.sh --ranks 2 configs/quickstart.yaml --set train.max_steps=100
  launch/run_local.sh --model bert-base-cased --data shards --output adapted
  launch/run_local.sh doctor --output-dir runs
  BERTHA=build/debug/bertha launch/run_local.sh configs/quickstart.yaml
TEXT
}

take_ranks "$@"
shift "$took"
take_work "$@"
bertha=$(find_bertha)
ranks=${ranks:-$(ranks_here)}
if ((ranks == 1)); then
  if [[ ${work[0]} == doctor || -z $(find_tools) ]]; then exec "$bertha" "${work[@]}"; fi
  # In its own process group it does not also receive a terminal's Ctrl-C.
  set -m
  "$bertha" "${work[@]}" < /dev/null &
  set +m
  status=0
  wait_and_pass_on TERM $! || status=$?
  draw_run "$status" "${work[@]}"
  exit "$status"
fi

allow_root
# No binding here: bertha divides the cores and selects the NUMA node.
run_mpirun --oversubscribe --bind-to none -n "$ranks" "$bertha" "${work[@]}"
