# Sourced by the run scripts: finds the program and the config. Sets nothing that a run learns.
# shellcheck shell=bash

launch_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

max_ranks=1000000
own_command=("$0" "$@")  # the command that continues the work of the sourcing script

# Or bash sets COLUMNS to the terminal's after any command, unexported, and run_mpirun takes it for the user's.
shopt -u checkwinsize

# No world-writable files, whatever the caller's umask.
umask o-w

# If MPI loads UCX, it enters debug mode on SIGHUP by default, and a run whose terminal is lost would continue.
export UCX_DEBUG_SIGNO=${UCX_DEBUG_SIGNO-0}

# If standard error has no reader any more, SIGPIPE ends only the subshell.
tell() {  # sentence
  (echo "$(basename "$0"): $1" >&2) || true
}

stop() {  # exit code, sentence
  tell "$2"
  exit "$1"
}

# Every number from a file, the environment or the command line is checked here before it is used in
# arithmetic: bash arithmetic executes a[$(...)], and reads 010 as 8.
check_number() {  # exit code, what it is, text, smallest, largest
  if [[ ! $3 =~ ^(0|[1-9][0-9]{0,17})$ ]] || (($3 < $4 || $3 > $5)); then
    stop "$1" "$2=${3@Q}, want a whole number from $4 to $5"
  fi
}

# Writes a file atomically. The temporary name cannot be guessed, and a link at the final name is
# replaced, not followed.
write_file() {  # path, text
  local partial
  if ! { partial=$(mktemp "$1.XXXXXX") && chmod '=rw' "$partial" &&
    printf '%s\n' "$2" > "$partial" && mv -T "$partial" "$1"; }; then
    if [[ -n $partial ]]; then rm -f "$partial"; fi
    stop 4 "$1 could not be written; free some space or give another folder"
  fi
}

# $BERTHA, else what was built here, else the PATH.
find_bertha() {
  # The image contains a program too; this machine cannot check paths in the image.
  if [[ -n ${CONT:-} && -n ${SLURM_JOB_ID:-} ]]; then
    echo "${BERTHA:-bertha}"
    return
  fi
  if [[ -n ${BERTHA:-} ]]; then
    [[ -x $BERTHA ]] || stop 5 "BERTHA=$BERTHA is not an executable; correct it or unset it"
    realpath "$BERTHA"
    return
  fi
  local built=$launch_dir/../build/release/bertha
  if [[ -x $built ]]; then realpath "$built"; return; fi
  command -v bertha || stop 5 \
    "no bertha program in build/release or PATH; build it with: cmake --preset release && cmake --build build/release"
}

# bertha-tools (harness/tools), which only reads files of runs: from the image, the PATH or the .venv of
# this checkout. Prints nothing if it is not installed.
find_tools() {
  local own=$launch_dir/../.venv/bin/bertha-tools
  if [[ -n ${CONT:-} && -n ${SLURM_JOB_ID:-} ]]; then echo bertha-tools
  elif ! command -v bertha-tools && [[ -x $own ]]; then echo "$own"; fi
}

check_config() {
  [[ -n ${1:-} ]] || stop 2 "want the path of a YAML config; see --help"
  [[ -r $1 ]] || stop 2 "cannot read the config $1"
}

# The command of the ranks: `doctor` and its options, or `bertha train` with a config or only with
# options, such as --model. Sets `work`.
take_work() {  # words after the script's own options
  if [[ ${1:-} == -* ]]; then
    work=(train "$@")
    return
  fi
  if [[ ${1:-} == doctor ]]; then
    work=("$@")
    return
  fi
  check_config "${1:-}"
  # shellcheck disable=SC2034  # the scripts run it
  work=(train --config "$@")
}

# Ends with 5 if `bertha doctor` finds a node with a fault, which it names. DOCTOR=0 skips it. A Slurm
# job is requeued without that node.
refuse_sick_nodes() {  # command that runs `doctor` on all ranks
  local status=0 said sick
  if [[ ${DOCTOR:-1} == 0 ]]; then return 0; fi
  said=$(mktemp) || stop 5 "cannot create a file in ${TMPDIR:-/tmp}; set TMPDIR to a folder with free space"
  "$@" > "$said" || status=$?
  cat "$said"
  sick=$(sed -n 's/^not started: repair \([A-Za-z0-9]\([A-Za-z0-9._,-]*[A-Za-z0-9]\)\{0,1\}\),\{0,1\} .*/\1/p' "$said" | tail -n 1)
  rm -f "$said"
  if ((status == 5)); then
    if [[ -n ${SLURM_JOB_ID:-} && -n $sick ]]; then requeue_without "$sick"; fi
    stop 5 "bertha doctor refused this job, see above; DOCTOR=0 starts it all the same"
  fi
  if ((status != 0)); then exit "$status"; fi
}

# Prints the id by which scontrol changes this Slurm job alone. One task of an array has the array's id, by
# which all tasks change. (A job that another task submits inherits that task's SLURM_ARRAY_JOB_ID.)
own_job() {
  if [[ ${SLURM_ARRAY_JOB_ID:-} == "$SLURM_JOB_ID" ]]; then echo "${SLURM_JOB_ID}_$SLURM_ARRAY_TASK_ID"
  else echo "$SLURM_JOB_ID"; fi
}

# Requeues this Slurm job without these nodes, of which it leaves out RETRIES at most. Returns if that is
# impossible. Only a queued job accepts another list of nodes: it is held there until it has one, and
# Slurm's SIGTERM to this script is ignored meanwhile.
requeue_without() {  # nodes a,b
  local job out nodes
  job=$(own_job)
  out=$(scontrol show job "$job" 2> /dev/null |
    sed -n 's/.*ExcNodeList=\([^ ]*\).*/\1/p' | sed '/(null)/d' || true)
  nodes=${out:+$out,}$1
  if (($(scontrol show hostnames "$nodes" | wc -l) > retries)); then
    tell "with $1 this job would leave out more nodes than RETRIES=$retries: $nodes"
    return
  fi
  trap '' TERM
  if ! scontrol requeuehold "$job"; then
    trap - TERM
    tell "Slurm does not requeue this job; submit it again with --exclude=$nodes"
    return
  fi
  if scontrol update "JobId=$job" "ExcNodeList=$nodes" && scontrol release "$job"; then
    stop 5 "bertha doctor refused $1; the job is in the queue again and leaves out $nodes"
  fi
  stop 5 "bertha doctor refused $1; the job is held in the queue: scontrol update JobId=$job ExcNodeList=$nodes, then scontrol release $job"
}

# Sets `retries`, how often a run that lost a rank is restarted automatically.
take_retries() {
  retries=${RETRIES:-3}
  check_number 2 RETRIES "$retries" 0 1000
}

# Runs a command, and again if it ended with 124 or 137, a rank that hung or was killed: RETRIES times in
# total. Each time, and if it ended with 5, as with a broken GPU, the nodes are checked first.
train_with_retries() {  # function that refuses sick nodes, command
  local examine=$1 status
  shift
  while :; do
    status=0
    "$@" || status=$?
    if ((status != 5 && status != 124 && status != 137)); then return "$status"; fi
    if ((status != 5 && retries == 0)); then return "$status"; fi
    "$examine"
    if ((status == 5)); then return 5; fi
    tell "exit code $status; resuming the run from its last checkpoint, tries left: $((--retries))"
  done
}

# Open MPI runs as root only if both variables are set.
allow_root() {
  if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
}

# Prints the GPUs that CUDA shows here, a line each. It reads the beginnings of numbers, or UUIDs if the
# first entry is one; stops at an entry that names no GPU; shows none if one is named twice, and never
# more than one MIG instance.
visible_gpus() {
  local listed entry names=() word='^[[:space:]]*[+]?0*([0-9]+)' line='^GPU @:'
  listed=$(nvidia-smi -L 2> /dev/null) || return 0
  if [[ -z ${CUDA_VISIBLE_DEVICES+set} ]]; then
    grep -om 1 'MIG-[^)]*' <<< "$listed" || sed -n 's/^GPU \([0-9]*\):.*/\1/p' <<< "$listed"
    return
  fi
  if [[ $CUDA_VISIBLE_DEVICES =~ ^(GPU|MIG)- ]]; then word='^([A-Z]+-[0-9A-Za-z/-]+)$' line='UUID: @'; fi
  while IFS= read -r -d , entry; do
    [[ $entry =~ $word && $(grep -ic "${line/@/${BASH_REMATCH[1]}}" <<< "$listed") == 1 ]] || break
    if [[ " ${names[*]-} " == *" ${BASH_REMATCH[1]} "* ]]; then return 0; fi
    names+=("${BASH_REMATCH[1]}")
    if [[ $entry == MIG-* ]]; then break; fi
  done <<< "$CUDA_VISIBLE_DEVICES,"
  if ((${#names[@]})); then printf '%s\n' "${names[@]}"; fi
}

gpus_here() { visible_gpus | wc -l; }

# Whether nvcc is installed and new enough for the CUDA backend.
nvcc_serves() {
  local release
  release=$(nvcc --version 2> /dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  [[ -n $release && $(printf '%s\n12.5\n' "$release" | sort -V | head -n 1) == 12.5 ]]
}

# Options of srun for containers of Pyxis with the image CONT, which see the current folder and
# CONT_MOUNTS. Sets `container`, to nothing without CONT.
take_container() {
  container=()
  if [[ -z ${CONT:-} ]]; then return 0; fi
  srun --help 2>&1 | grep -q -- --container-image ||
    stop 5 "CONT=$CONT, but this Slurm has no Pyxis (srun --help shows no --container-image); unset CONT to run without a container"
  container=("--container-image=$CONT" "--container-workdir=$PWD"
    "--container-mounts=$PWD:$PWD${CONT_MOUNTS:+,$CONT_MOUNTS}")
}

# Runs one process that is not a rank, in the environment of the ranks' program.
run_once() {  # command
  local container
  if [[ -z ${SLURM_JOB_ID:-} || -z ${CONT:-} ]]; then "$@"; return; fi
  take_container
  srun --mpi=none --nodes=1 --ntasks=1 "${container[@]}" "$@"
}

# Runs a command as the tasks of a Slurm allocation.
run_srun() {
  local mpi=${SLURM_MPI_TYPE:-pmix} container
  if [[ -n ${SLURM_JOB_ID:-} && ${SLURM_JOB_ID_HET_GROUP_0:-} == "$SLURM_JOB_ID" ]]; then
    stop 5 "this Slurm job is heterogeneous, and srun would start ranks in its first component only; submit one without ':' and without #SBATCH hetjob"
  fi
  if ! srun --mpi=list 2>&1 | grep -qwF -- "$mpi"; then
    stop 5 "this Slurm has no MPI plugin '$mpi' (srun --mpi=list shows what it has); name another in SLURM_MPI_TYPE (pmi2 serves only an Open MPI that was built with it), or start with mpirun: launch/clusters.md"
  fi
  take_container
  # --wait: ranks end together, so a rank that ends 10 s before the others has died.
  local status=0
  srun --mpi="$mpi" --cpu-bind=none --kill-on-bad-exit=0 --wait=10 ${container[@]+"${container[@]}"} \
    "$@" || status=$?
  explain_end "$status"
  draw_run "$status" "$@"
  return "$status"
}

# Sets `folder`: that of this run, as determined by the program from its arguments; empty if unknown.
find_run_folder() {
  local settings name
  folder=
  if [[ ${work[0]:-} != train ]]; then return 0; fi
  # shellcheck disable=SC2154  # the scripts set it
  settings=$(env -u SLURM_NTASKS "$bertha" config show --plain "${work[@]:1}" 2> /dev/null) || return 0
  folder=$(sed -n "s/^ *run_dir: *//p" <<< "$settings" | tr -d "\"'")
  name=$(sed -n "s/^ *run_name: *//p" <<< "$settings" | tr -d "\"'")
  if [[ -z $folder && -n $name ]]; then folder=runs/$name${SLURM_JOB_ID:+-$SLURM_JOB_ID}; fi
}

# Draws the curves of a training run that has finished, if the tools are installed.
draw_run() {  # exit code, command that has ended
  local tools folder
  if [[ " $* " != *" train "* ]] || (($1 != 0 && $1 != 3)); then return 0; fi
  tools=$(find_tools)
  if [[ -z $tools ]]; then return 0; fi
  find_run_folder
  if [[ -n $folder ]]; then run_once "$tools" plot "$folder" || true; fi
}

# The rank that the newest error in the logs of a run folder names.
named_in_logs() {  # folder
  grep -hE '^[^[]+\[rank [0-9]+\] error: ' "$1"/logs/*.log 2> /dev/null | sort | tail -n 1 | sed 's/.* error: //' |
    grep -oE 'ranks? [0-9,-]+( of [0-9]+)? on [A-Za-z0-9._-]+( \(process [0-9]+\))?' | head -n 1 || true
}

# The last line of a run that did not end as planned: what happened to which rank, what is saved, and the
# command to resume. Exit codes above 128 are 128 + the signal: a killed process prints nothing.
explain_end() {  # exit code
  local what whom="" folder saved="" next=("${own_command[@]}")
  if (($1 == 0 || $1 == 2 || $1 == 3 || $1 == 8)); then return 0; fi
  if [[ $1 == 75 && -n ${SLURM_JOB_ID:-} ]]; then return 0; fi  # run_slurm.sub says it
  find_run_folder
  if [[ -n $folder ]]; then
    whom=$(named_in_logs "$folder")
    saved=$(printf '%s\n' "$folder"/ckpt/step_*/DONE | tail -n 1)
    if [[ -e $saved ]]; then saved=${saved%/DONE}; else saved="nothing yet in $folder"; fi
    if [[ ${next[0]} == sbatch ]]; then next+=(--output-dir "$folder"); fi
  fi
  whom=${whom:-${ended_by_signal:-}}
  case $1 in
    75) what="the run has stopped and saved its state" ;;
    124) what="no progress of ${whom:-a rank}" ;;
    137) what="signal 9 (KILL) ended ${whom:-a rank}: the kernel sends it when memory runs out: see dmesg, and lower the batch or the ranks" ;;
    129) what="signal 1 (HUP) ended the ranks: the terminal was lost; start long runs in tmux, with nohup or by a scheduler" ;;
    130 | 138 | 143) what="signal $(($1 - 128)) ($(kill -l "$1")) ended a rank: it arrived before the program could save, or twice" ;;
    *)
      if (($1 > 128 && $1 <= 128 + 64)); then
        what="signal $(($1 - 128)) ($(kill -l "$1")) ended ${whom:-a rank}: a crash; please report it with the lines above"
      elif [[ -n $saved ]]; then what="exit code $1, for the reason above"
      else return 0; fi
      ;;
  esac
  tell "$what. ${saved:+Saved: $saved. }To resume from the last checkpoint: ${next[*]@Q}"
}

# One rank per GPU, or one without a GPU.
ranks_here() {
  local gpus
  gpus=$(gpus_here)
  echo $((gpus > 0 ? gpus : 1))
}

# Parses --help or --ranks N before the config. Sets `ranks` ("" = not given) and `took`, the number
# of words.
take_ranks() {
  ranks=
  took=0
  case ${1:-} in
    -h | --help) usage; exit 0 ;;
    --ranks)
      ranks=${2:-}
      check_number 2 --ranks "$ranks" 1 "$max_ranks"
      # shellcheck disable=SC2034  # the scripts shift by it
      took=2
      ;;
  esac
}

# To the ranks that mpirun has started here, for not every mpirun passes signals on (none that began with
# them blocked), and one rank that stops stops all. Without any, which are elsewhere or not there yet, to mpirun.
signal_ranks() {  # SIGNAL, process id of mpirun
  local child of_ranks=()
  # A rank without mpirun has children that only probe shards.
  if [[ $(cat "/proc/$2/comm" 2> /dev/null) != bertha* ]]; then
    while read -r child; do
      if [[ $(cat "/proc/$child/comm" 2> /dev/null) == bertha* ]]; then of_ranks+=("$child"); fi
    done < <(cat /proc/"$2"/task/*/children 2> /dev/null | tr ' ' '\n')
  fi
  kill "-$1" "${of_ranks[@]:-$2}" 2> /dev/null || true
}

# mpirun itself would kill the ranks on SIGTERM before they have saved, and end with 1. It blocks what
# asks it to end; this passes that on as SIGNAL.
pass_pending_on() {  # SIGNAL, process id of mpirun
  while sleep 1 && [[ $(cat "/proc/$2/status") =~ ShdPnd:[[:space:]]*([0-9a-f]+) ]]; do
    if ((0x${BASH_REMATCH[1]} & (1 << 1 | 1 << 14))); then  # SIGINT, SIGTERM
      signal_ranks "$1" "$2"
      break
    fi
  done
}

# Waits for mpirun, or for a rank without it. Forwards SIGTERM, SIGUSR1 and Ctrl-C as SIGNAL to its ranks,
# which may take some time to save, and the loss of the terminal as it is.
wait_and_pass_on() {  # SIGNAL, process id of mpirun
  local status interrupted=yes lost=
  # shellcheck disable=SC2064
  trap "interrupted=yes; signal_ranks $1 $2" TERM INT USR1
  # shellcheck disable=SC2064
  trap "interrupted=yes lost=yes; signal_ranks HUP $2" HUP
  while [[ -n $interrupted ]]; do
    interrupted="" status=0
    wait "$2" || status=$?
  done
  trap - TERM INT USR1 HUP
  # Open MPI 4's mpirun may crash while the terminal that it lost ends its ranks.
  if [[ -n $lost ]] && ((status > 128)); then status=129; fi
  return "$status"
}

# Removes what earlier starts left that were killed together with their mpirun: a process of each such
# start holds the lock in its folder. Younger ones than a minute may not have locked it yet. Open MPI's
# segments of shared memory, 4 MiB a rank, are unused if no process maps them.
remove_left_files() {
  local left lock
  while IFS= read -r -d '' left; do
    if [[ -e $left/lock ]] && { exec {lock}< "$left/lock"; } 2> /dev/null; then
      if flock -n "$lock"; then rm -rf "$left" || true; fi
      exec {lock}<&-
    fi
  done < <(find "${TMPDIR:-/tmp}" -maxdepth 1 -type d -name 'bertha_mpirun.*' -user "$EUID" -mmin +1 \
    -print0 2> /dev/null)
  while IFS= read -r -d '' left; do
    grep -qsF "$left" /proc/[0-9]*/maps || rm -f "$left"
  done < <(find /dev/shm -maxdepth 1 -type f -user "$EUID" -mmin +1 \
    -regex "/dev/shm/\(vader\|sm\)_segment\.$(uname -n | cut -d. -f1)\..*" -print0 2> /dev/null)
}

# Removes the messages of Open MPI 5's mpirun, which cannot be quiet, about how ranks ended: bertha and
# explain_end report that. Writes the name of the rank that a signal ended into the file.
without_epilogues() {  # file
  LC_ALL=C exec sed -uE 's/\x00//g
    /^-{70,}$/ { N; s/\x00//g; /\n(MPI_ABORT was|prterun (detected|noticed|has exited))/!b; :rest; N; /\n-{70,}$/!b rest
    s/^.*noticed that process (rank [0-9]+) with PID ([0-9]+) on node ([^ ]+) .*$/\1 on \3 (process \2)/w '"$1"'
    d }'
}

# mpirun kills the ranks within seconds of SIGTERM; on SIGUSR1 they save and end with 75. In its own
# process group it does not also receive a terminal's Ctrl-C. When killed, it leaves 8 MiB in its folder
# for temporary files, so that folder is deleted here.
run_mpirun() {
  local folder lock errors filter mpirun watcher block=() status=0
  command -v mpirun > /dev/null || stop 5 "mpirun was not found; run launch/install_deps.sh"
  if [[ ",$(uname -n),${hosts:-}" =~ ,([A-Za-z_-]{57}) && $(mpirun --version 2>&1) == *") 4."* ]]; then
    stop 5 "mpirun of Open MPI 4 crashes on a host name with 57 or more characters before its first digit or dot; found ${BASH_REMATCH[1]}...; use a shorter name, or the address of the host"
  fi
  remove_left_files
  { folder=$(mktemp -d "${TMPDIR:-/tmp}/bertha_mpirun.XXXXXX") && exec {lock}> "$folder/lock" && flock "$lock"; } ||
    stop 5 "cannot create a folder in ${TMPDIR:-/tmp}; set TMPDIR to one with free space"
  # The ranks' standard error is a pipe, so they fit their lines to COLUMNS.
  if [[ -t 2 && -z ${COLUMNS:-} ]]; then
    COLUMNS=$(stty size <&2 2> /dev/null | cut -d' ' -f2) || COLUMNS=""
    export COLUMNS
  fi
  # Open MPI requires ssh on a single machine too, although it does not use it there.
  if [[ " $* " != *" --host "* && -z ${OMPI_MCA_plm_rsh_agent+set} ]] && ! command -v ssh rsh > /dev/null; then
    export OMPI_MCA_plm_rsh_agent=
  fi
  # Ranks that are all on this machine communicate through its memory and listen on no network.
  if [[ " $* " != *" --host "* && ${SLURM_JOB_NUM_NODES:-1} == 1 && -z ${PBS_JOBID:-}${LSB_JOBID:-} ]]; then
    export OMPI_MCA_pml=${OMPI_MCA_pml-ob1} OMPI_MCA_btl=${OMPI_MCA_btl-self,vader}
    export PMIX_MCA_ptl_base_if_include=${PMIX_MCA_ptl_base_if_include-lo}
    export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME-=lo}
  fi
  if env --block-signal=TERM true 2> /dev/null; then block=(env "--block-signal=INT,TERM"); fi
  exec {errors}> >(trap '' INT TERM; without_epilogues "$folder/ended" >&2 {lock}>&-)
  filter=$!
  set -m
  # Execute quietly: its -q, which Open MPI 5 refuses.
  TMPDIR=$folder OMPI_MCA_orte_execute_quiet=1 ${block[@]+"${block[@]}"} mpirun "$@" \
    < /dev/null 2>&"$errors" {errors}>&- &
  set +m
  mpirun=$!
  exec {errors}>&-
  pass_pending_on USR1 "$mpirun" &> /dev/null {lock}>&- &
  watcher=$!
  wait_and_pass_on USR1 "$mpirun" || status=$?
  kill "$watcher" 2> /dev/null || true
  wait "$filter" 2> /dev/null || true  # explain_end has the last line
  ended_by_signal=$(cat "$folder/ended" 2> /dev/null) || true
  rm -rf "$folder" || true
  exec {lock}>&-
  explain_end "$status"
  draw_run "$status" "$@"
  return "$status"
}
