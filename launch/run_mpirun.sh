#!/usr/bin/env bash
# Trains on several machines that ssh can reach and that have this folder at the same path, or checks
# them with `doctor` instead of the config.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
Usage: launch/run_mpirun.sh HOSTS CONFIG.yaml [OPTIONS of bertha train...]
       launch/run_mpirun.sh HOSTS doctor [OPTIONS of bertha doctor...]

HOSTS is one of
  --hosts HOST:RANKS[,HOST:RANKS...]
  --hostfile FILE    a line per host, HOST slots=RANKS; a line without slots= is one rank, so that
                     the files of PBS ($PBS_NODEFILE) and LSF ($LSB_DJOB_HOSTFILE) serve too

Examples:
  launch/run_mpirun.sh --hosts node1:8,node2:8 configs/mlperf_closed_8gpu_448.yaml
  launch/run_mpirun.sh --hostfile hosts.txt doctor --output-dir runs
  launch/run_mpirun.sh --hosts localhost:2 configs/quickstart.yaml --max-steps 10

These variables reach every rank: LD_LIBRARY_PATH, and those whose names begin with BERTHA_, FI_,
HCOLL_, IBV_, NCCL_, OMP_, OPENBLAS_, SHARP_ or UCX_. mpirun itself passes those of OMPI_MCA_.
TEXT
}

# Sets `hosts`, as --hosts takes them.
read_hostfile() {  # path
  local line host number=0 names=()
  local -A ranks_of=()
  [[ -r $1 && ! -d $1 ]] || stop 2 "--hostfile ${1@Q} cannot be read; want a file of lines HOST slots=RANKS"
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    line=${line%%#*}
    if [[ ! $line =~ [^[:space:]] ]]; then continue; fi
    [[ $line =~ ^[[:space:]]*([A-Za-z0-9][A-Za-z0-9._-]*)([[:space:]]+slots=([1-9][0-9]{0,5}))?([[:space:]]+max[-_]slots=[0-9]+)?[[:space:]]*$ ]] ||
      stop 2 "$1, line $number: found ${line@Q}, want HOST or HOST slots=RANKS; a host begins with a letter or digit"
    host=${BASH_REMATCH[1]}
    if [[ -z ${ranks_of[$host]:-} ]]; then names+=("$host"); fi
    ranks_of[$host]=$((${ranks_of[$host]:-0} + ${BASH_REMATCH[3]:-1}))
  done < "$1"
  ((${#names[@]})) || stop 2 "$1 names no host; want lines HOST slots=RANKS"
  for host in "${names[@]}"; do hosts+=${hosts:+,}$host:${ranks_of[$host]}; done
}

hosts=
case ${1:-} in
  -h | --help) usage; exit 0 ;;
  --hosts) hosts=${2:-}; shift; shift || true ;;
  --hostfile) read_hostfile "${2:-}"; shift 2 ;;
esac
host='[A-Za-z0-9][A-Za-z0-9._-]*:[1-9][0-9]{0,5}'
[[ $hosts =~ ^$host(,$host)*$ ]] ||
  stop 2 "--hosts takes HOST:RANKS[,HOST:RANKS...], --hostfile a file; a host begins with a letter or digit; found ${hosts@Q}; see --help"
take_work "$@"
if [[ ${work[0]} == train ]]; then work[2]=$(realpath "${work[2]}"); fi
bertha=$(find_bertha)
allow_root

if [[ -z ${PBS_JOBID:-}${LSB_JOBID:-}${OMPI_MCA_plm_rsh_agent:-} ]]; then
  command -v ssh rsh > /dev/null || stop 5 "ssh was not found, by which ranks start on other machines; run launch/install_deps.sh"
fi

ranks=0
for entry in ${hosts//,/ }; do ranks=$((ranks + ${entry##*:})); done
pass=()
while read -r variable; do pass+=(-x "$variable"); done < <(compgen -e |
  grep -E '^((BERTHA|FI|HCOLL|IBV|NCCL|OMP|OPENBLAS|SHARP|UCX)_[A-Za-z_0-9]+|LD_LIBRARY_PATH)$' || true)

# After the loss of a machine, the other ranks have 4 s from SIGTERM to SIGKILL to report which one;
# Open MPI 5 accepts the option but gives them 0.25 s.
run_mpirun --mca odls_base_sigkill_timeout 4 --host "$hosts" -n "$ranks" --map-by slot --bind-to none \
  ${pass[@]+"${pass[@]}"} "$bertha" "${work[@]}"
