#!/usr/bin/env bash
# Trains on several machines that ssh reaches and that see this folder under the same path.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
Usage: launch/run_mpirun.sh --hosts HOST:RANKS[,HOST:RANKS...] CONFIG.yaml [OPTIONS of bertha train...]

Examples:
  launch/run_mpirun.sh --hosts node1:8,node2:8 configs/mlperf_closed_8gpu_448.yaml
  launch/run_mpirun.sh --hosts localhost:2 configs/quickstart.yaml --max-steps 10

Variables whose names begin with NCCL_, UCX_ or OMP_ reach every rank.
TEXT
}

hosts=
case ${1:-} in
  -h | --help) usage; exit 0 ;;
  --hosts) hosts=${2:-}; shift; shift || true ;;
esac
host='[A-Za-z0-9._-]+:[1-9][0-9]{0,5}'
[[ $hosts =~ ^$host(,$host)*$ ]] ||
  stop 2 "--hosts takes HOST:RANKS[,HOST:RANKS...]; found ${hosts@Q}; see --help"
check_config "${1:-}"
config=$(realpath "$1")
shift
bertha=$(find_bertha)
allow_root

ranks=0
for entry in ${hosts//,/ }; do ranks=$((ranks + ${entry##*:})); done
pass=()
while IFS='=' read -r variable _; do pass+=(-x "$variable"); done < <(env | grep -E '^(NCCL|UCX|OMP)_[A-Z_0-9]+=' || true)

run_mpirun -q --host "$hosts" -n "$ranks" --map-by slot --bind-to none \
  ${pass[@]+"${pass[@]}"} "$launch_dir/bind_rank.sh" "$bertha" train --config "$config" "$@"
