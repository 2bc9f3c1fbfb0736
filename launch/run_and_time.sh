#!/usr/bin/env bash
# The timed runs of a submission: NEXP runs with different seeds, each with its verdict. Reads the
# variables of published MLPerf configs and prints the key that each sets.
set -euo pipefail
# shellcheck source=launch/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
  cat <<'TEXT'
Usage: [VARIABLE=value...] launch/run_and_time.sh [--ranks N] CONFIG.yaml [OPTIONS of bertha train...]

Examples:
  NEXP=10 LOGDIR=results launch/run_and_time.sh configs/mlperf_closed_8gpu_768.yaml \
    --set data.train=shards/train --set data.eval=shards/eval --set checkpoint.init=weights
  source config_DGXA100_1x8x56x1.sh    # a published config; its variables become keys
  launch/run_and_time.sh configs/mlperf_closed_8gpu_448.yaml
  NEXP=10 sbatch --nodes=1 launch/run_slurm.sub --timed configs/mlperf_closed_8gpu_768.yaml

Runs on this machine, or with srun inside a Slurm allocation. Run K writes to LOGDIR/run_K; restarted
with the same LOGDIR, finished runs are kept and an interrupted one resumes.

  NEXP          runs, 1 if unset
  LOGDIR        folder of the runs; a new one under runs/ if unset
  SEED          seed of run 0, the next ones count up; drawn at random if unset. LOGDIR keeps it
  DOCTOR        0: does not check the nodes with `bertha doctor` first
  CLEAR_CACHES  1: empties the page cache before each run (root or sudo) and says so in the log
  HYPERPARAMETERS AND PATHS
TEXT
  for entry in "${mapped[@]}"; do printf '    %-28s %s\n' "${entry%% *}" "${entry##* }"; done
  cat <<'TEXT'
    BATCHSIZE                    train.global_batch_seqs, times the ranks (DGXNNODES x DGXNGPU if set)
    WARMUP_PROPORTION            optimizer.warmup_steps, times MAX_STEPS

Exit codes: 0 every run reached its target, else that of the first run that did not; 8 a log breaks
a rule, which bertha-tools finds (pip install harness/tools); without it no log is checked.
TEXT
}

# Published variable, and the key that is set to its value.
mapped=(
  "LR optimizer.base_learning_rate"
  "OPT_LAMB_BETA_1 optimizer.beta_1"
  "OPT_LAMB_BETA_2 optimizer.beta_2"
  "WEIGHT_DECAY_RATE optimizer.weight_decay"
  "WARMUP_STEPS optimizer.warmup_steps"
  "START_WARMUP_STEP optimizer.start_warmup_step"
  "INIT_LOSS_SCALE optimizer.initial_loss_scale"
  "GRADIENT_STEPS train.accumulation_steps"
  "MAX_STEPS train.max_steps"
  "MAX_SAMPLES_TERMINATION train.max_samples"
  "TARGET_MLM_ACCURACY train.target_accuracy"
  "EVAL_ITER_START_SAMPLES eval.start_samples"
  "EVAL_ITER_SAMPLES eval.every_samples"
  "DATADIR_PHASE2 data.train"
  "EVALDIR data.eval"
  "CHECKPOINTDIR_PHASE1 checkpoint.init"
  "MLPERF_SUBMISSION_ORG mlperf.submission_org"
  "MLPERF_SUBMISSION_PLATFORM mlperf.submission_platform"
)

settings=()
set_key() {  # variable, key, value
  local note=
  if [[ $3 != "${!1}" ]]; then note=" (from ${!1})"; fi
  echo "run_and_time.sh: $1 -> $2=$3$note"
  settings+=(--set "$2=$3")
}

take_variables() {  # ranks
  local entry variable text
  if [[ ${PHASE:-2} != 2 ]]; then
    stop 2 "PHASE=$PHASE, want 2: the benchmark times sequences of 512 tokens"
  fi
  for entry in "${mapped[@]}"; do
    variable=${entry%% *}
    if [[ -n ${!variable:-} ]]; then set_key "$variable" "${entry##* }" "${!variable}"; fi
  done
  if [[ -n ${BATCHSIZE:-} ]]; then
    check_number 2 BATCHSIZE "$BATCHSIZE" 1 "$max_count"
    set_key BATCHSIZE train.global_batch_seqs $((BATCHSIZE * $1))
  fi
  text=${WARMUP_PROPORTION:-0}
  if [[ ! $text =~ ^0*\.?0*$ && -z ${WARMUP_STEPS:-} ]]; then
    [[ $text =~ ^0?\.[0-9]+$ && -n ${MAX_STEPS:-} ]] ||
      stop 2 "WARMUP_PROPORTION=${text@Q}, want a number below 1 together with MAX_STEPS, or WARMUP_STEPS"
    check_number 2 MAX_STEPS "$MAX_STEPS" 1 "$max_count"
    set_key WARMUP_PROPORTION optimizer.warmup_steps \
      "$(awk -v part="$text" -v steps="$MAX_STEPS" 'BEGIN { print int(part * steps) }')"
  fi
  if [[ -n ${EXTRA_PARAMS:-} ]]; then
    echo "run_and_time.sh: EXTRA_PARAMS is not used; set the corresponding keys in the config"
  fi
}

clear_caches() {
  local command=(sysctl -q vm.drop_caches=3)
  if ((EUID != 0)); then command=(sudo "${command[@]}"); fi
  if [[ -n ${SLURM_JOB_ID:-} ]]; then
    command=(srun "--nodes=${SLURM_JOB_NUM_NODES:-1}" --ntasks-per-node=1 "${command[@]}")
  fi
  sync
  "${command[@]}" ||
    stop 5 "CLEAR_CACHES=1, but the page cache could not be emptied; it needs root or sudo"
}

take_ranks "$@"
shift "$took"
check_config "${1:-}"
config=$1
shift
for word in "$@"; do
  case $word in
    --seed | --seed=*) stop 2 "$word: each run has a seed of its own; SEED=N sets that of the first" ;;
    -o | -o?* | --output-dir | --output-dir=*)
      stop 2 "$word: each run has a folder of its own; LOGDIR=DIR sets the one that holds them" ;;
  esac
done
max_count=1000000000
max_seed=999999999999999999
take_retries
runs=${NEXP:-1}
check_number 2 NEXP "$runs" 1 1000000
seed=${SEED:-$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')}
check_number 2 SEED "$seed" 0 "$max_seed"
if [[ -n ${SLURM_JOB_ID:-} && -n $ranks ]]; then
  stop 2 "--ranks $ranks inside a Slurm allocation, whose tasks determine the ranks; unset SLURM_JOB_ID to ignore it"
fi
bertha=$(find_bertha)
if [[ -n ${SLURM_JOB_ID:-} ]]; then
  ranks=${SLURM_NTASKS:-1}
  check_number 5 SLURM_NTASKS "$ranks" 1 "$max_ranks"
elif [[ -z $ranks ]]; then
  ranks=$(ranks_here)
fi
if [[ -n ${DGXNNODES:-} && -n ${DGXNGPU:-} ]]; then
  check_number 2 DGXNNODES "$DGXNNODES" 1 "$max_ranks"
  check_number 2 DGXNGPU "$DGXNGPU" 1 "$max_ranks"
  if ((DGXNNODES * DGXNGPU != ranks)); then
    stop 2 "DGXNNODES x DGXNGPU is $((DGXNNODES * DGXNGPU)) ranks, but $ranks would start; correct them or the allocation"
  fi
fi
take_variables "$ranks"
# A requeued job finds its folder again.
start=${SLURM_JOB_ID:+job$SLURM_JOB_ID}
folder=${LOGDIR:-runs/$(basename "$config" .yaml)-${start:-$(date +%Y%m%d-%H%M%S)}}
mkdir -p "$folder" || stop 4 "LOGDIR=$folder cannot be created"
# A restarted set of runs keeps its seeds.
seed_file=$folder/first_seed
if [[ -e $seed_file ]]; then
  first=$(head -c 64 "$seed_file" | tr -d '\0')
  check_number 4 "$seed_file: the seed of run 0" "$first" 0 "$max_seed"
  if [[ -n ${SEED:-} && $SEED != "$first" ]]; then
    stop 2 "SEED=$SEED, but the runs in $folder began with seed $first; unset SEED to continue them, or set another LOGDIR"
  fi
  seed=$first
else
  write_file "$seed_file" "$seed"
fi

if [[ -n ${SLURM_JOB_ID:-} ]]; then
  own_command=(env "LOGDIR=$folder" sbatch launch/run_slurm.sub --timed "${own_command[@]:1}")
fi

# Starts the ranks as tasks of Slurm or here, and waits for them.
# shellcheck disable=SC2317  # called by its name
start_ranks() {  # doctor or a config, options
  take_work "$@"
  if [[ -n ${SLURM_JOB_ID:-} ]]; then run_srun "$bertha" "${work[@]}" &
  else BERTHA=$bertha "$launch_dir/run_local.sh" --ranks "$ranks" "$@" & fi
  wait_and_pass_on TERM $!
}

# The official package's verdict on the log of a run.
check_run() {  # folder
  if [[ -z $tools ]]; then return 0; fi
  run_once "$tools" check "$1" ${TARGET_MLM_ACCURACY:+--target "$TARGET_MLM_ACCURACY"}
}

train_once() {  # run, arguments of bertha train
  local run=$1
  shift
  local words=("$config" ${settings[@]+"${settings[@]}"} "$@" --set "train.seed=$((seed + run))"
    --set "log.run_dir=$folder/run_$run")
  if [[ ${CLEAR_CACHES:-0} == 1 ]]; then
    clear_caches
    words+=(--set mlperf.cache_cleared=true)
  fi
  train_with_retries examine start_ranks "${words[@]}"
}

examine() { refuse_sick_nodes start_ranks doctor --output-dir "$folder"; }

tools=$(find_tools)
if [[ -z $tools ]]; then
  tell "bertha-tools is not installed: logs are not checked; python3 -m venv .venv && .venv/bin/pip install harness/tools"
fi
examined=no
worst=0
remember() { if ((worst == 0)); then worst=$1; fi; }
for ((run = 0; run < runs; ++run)); do
  run_dir=$folder/run_$run
  done_file=$run_dir/exit_code
  code=0
  if [[ -e $done_file ]]; then
    code=$(head -c 64 "$done_file" | tr -d '\0')
    [[ $code == 0 || $code == 3 ]] ||
      stop 4 "$done_file=${code@Q}, want 0 or 3; delete it to train this run again"
    echo "run_and_time.sh: run $run of $runs already ended with code $code"
  else
    if [[ $examined == no ]]; then examine; fi
    examined=yes
    echo "run_and_time.sh: run $run of $runs, seed $((seed + run)), folder $run_dir"
    train_once "$run" "$@" || code=$?
    # Reached or missed its target: a result. Any other code needs attention, or a restart.
    if ((code != 0 && code != 3)); then exit "$code"; fi
    mkdir -p "$run_dir"
    write_file "$done_file" "$code"
  fi
  remember "$code"
  checked=0
  check_run "$run_dir" || checked=$?
  remember "$checked"
done
echo "run_and_time.sh: finished in $folder, runs: $runs"
exit "$worst"
