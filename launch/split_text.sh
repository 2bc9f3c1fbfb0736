#!/usr/bin/env bash
# Splits text files (a blank line, or the end of a file, between documents) into training parts and
# an evaluation part of every 20th document, without lines that also occur in training.
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
    echo "split_text.sh: $file cannot be read; give text files." >&2
    exit 4
  fi
done

mkdir -p "$out_dir/train"
work=$(mktemp -d "$out_dir/text.XXXXXX")
trap 'rm -rf "$work"' EXIT

# A line of white space, such as a Windows carriage return, is blank too.
for file in "$@"; do
  LC_ALL=C sed 's/[[:space:]]*$//' "$file"
  printf '\n\n'
done > "$work/text"

# RS="" reads one document at a time.
awk -v parts="$num_parts" -v work="$work" '
  BEGIN { RS = ""; ORS = "\n\n" }
  { file = documents % 20 == 19 ? work "/eval" : work "/part-" documents % parts
    documents++
    print > file }
  END {
    if (documents < 20) {
      print "split_text.sh: found " documents + 0 " documents, want at least 20, separated by blank lines." \
        > "/dev/stderr"
      exit 4
    }
  }' "$work/text"

awk 'FILENAME != held_out { seen[$0] = 1; next } $0 == "" || !($0 in seen)' \
  held_out="$work/eval" "$work"/part-* "$work/eval" > "$work/eval.txt"
if ! grep -q . "$work/eval.txt"; then
  echo "split_text.sh: all $(grep -c . "$work/eval") held-out lines also occur in training, want text that does not repeat itself." >&2
  exit 4
fi

for part in "$work"/part-*; do
  mv -T "$part" "$out_dir/train/$(basename "$part")-of-$num_parts.txt"
done
mv -T "$work/eval.txt" "$out_dir/eval.txt"
