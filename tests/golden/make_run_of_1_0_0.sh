#!/usr/bin/env bash
# Makes run_of_1_0_0.tar.xz with the program of Bertha 1.0.0 (commit 5507a485, CPU backend).
# usage: make_run_of_1_0_0.sh BERTHA_1_0_0 OUTPUT_FOLDER
set -euo pipefail
program=$(realpath "$1")
output=$(realpath "$2")
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
ln -s "$program" "$folder/bin/bertha"
export PATH=$folder/bin:$PATH OMP_NUM_THREADS=1
cd "$folder"

python3 - "$tests/end_to_end" << 'TEXT'
import sys

sys.path.insert(0, sys.argv[1])
sys.argv = [""] * 5
import support

open("text.txt", "w").write(support.make_text(1, 24))
open("eval.txt", "w").write(support.make_text(2, 8))
TEXT
limits=(--max-seq-tokens 32 --max-masked-per-seq 5 --duplication 1)
bertha data vocab --text text.txt --size 160 --output vocab.txt
bertha data prepare --text text.txt --vocab vocab.txt --output train "${limits[@]}" --shards 2
bertha data prepare --text eval.txt --vocab vocab.txt --output eval "${limits[@]}" --eval-samples 16
cat > run.yaml << 'TEXT'
model: {name: tiny, layers: 1, hidden: 16, heads: 2, feed_forward: 32, vocab_size: 160, max_positions: 32}
data: {train: train, eval: eval, vocab: vocab.txt, max_seq_tokens: 32, max_masked_per_seq: 5, window_shards: 2}
train: {seed: 3, global_batch_seqs: 8, max_steps: 16, target_accuracy: 0, log_every_steps: 1, backend: cpu,
        threads_per_rank: 1, accumulation_steps: 2}
optimizer: {base_learning_rate: 0.01, warmup_steps: 3, schedule_steps: 20}
eval: {every_samples: 24, batch_seqs: 8}
checkpoint: {keep: 1}
TEXT
mpirun --oversubscribe -n 2 bertha train --config run.yaml --set log.run_dir=whole
mpirun --oversubscribe -n 2 bertha train --config run.yaml --set log.run_dir=run --set train.max_steps=6
mkdir uninterrupted
cp whole/metrics.jsonl uninterrupted/
# Names of the machine that made it, and its variables, which nothing reads.
python3 -c "
import json, pathlib
for name in ('env.json', 'system.json'):
    path = pathlib.Path('run', name)
    facts = json.loads(path.read_text())
    facts['host']['name'] = 'node1'
    facts.pop('environment', None)
    path.write_text(json.dumps(facts, indent=2) + '\n')
"
mv run/logs/*.log run/logs/node1.log
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=2026-11-27 -cJf "$output/run_of_1_0_0.tar.xz" \
  run uninterrupted train eval vocab.txt
