#!/usr/bin/env bash
# Splits text files (a sentence per line, a blank line between documents) into training parts and
# an evaluation part of every 20th document, without sentences that also occur in training.
#
#   launch/split_text.sh OUT_DIR FILE...   ->   OUT_DIR/train/part-*.txt OUT_DIR/eval.txt
set -euo pipefail

if (($# < 2)) || [[ $1 == -* ]]; then
  echo "split_text.sh: usage: split_text.sh OUT_DIR FILE..." >&2
  exit 2
fi
out_dir=$1
shift
num_parts=8
for file in "$@"; do
  if [[ ! -r $file ]]; then
    echo "split_text.sh: $file cannot be read; give text files with one sentence per line." >&2
    exit 4
  fi
done

mkdir -p "$out_dir/train"
work=$(mktemp -d "$out_dir/text.XXXXXX")
trap 'rm -rf "$work"' EXIT

# RS="" reads a document at a time.
awk -v parts="$num_parts" -v work="$work" '
  BEGIN { RS = ""; ORS = "\n\n" }
  { file = documents % 20 == 19 ? work "/eval" : work "/part-" documents % parts
    documents++
    print > file }
  END {
    if (documents < 20) {
      print "split_text.sh: found " documents " documents, want at least 20, separated by blank lines." \
        > "/dev/stderr"
      exit 4
    }
  }' "$@"

awk 'FILENAME != held_out { seen[$0] = 1; next } $0 == "" || !($0 in seen)' \
  held_out="$work/eval" "$work"/part-* "$work/eval" > "$work/eval.txt"

for part in "$work"/part-*; do
  mv -T "$part" "$out_dir/train/$(basename "$part")-of-$num_parts.txt"
done
mv -T "$work/eval.txt" "$out_dir/eval.txt"
