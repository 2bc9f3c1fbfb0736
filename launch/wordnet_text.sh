#!/usr/bin/env bash
# Prints the glosses of WordNet as text: one sentence per line, a blank line between documents.
# Eight adjacent entries, which are related, form a document.
#
#   launch/wordnet_text.sh [WORDNET_DIR] > glosses.txt
set -euo pipefail

if [[ ${1:-} == -* ]]; then
  echo "wordnet_text.sh: usage: wordnet_text.sh [WORDNET_DIR] > glosses.txt" >&2
  exit 2
fi
wordnet_dir=${1:-/usr/share/wordnet}
for class in noun verb adj adv; do
  if [[ ! -r $wordnet_dir/data.$class ]]; then
    echo "wordnet_text.sh: $wordnet_dir/data.$class is missing; run launch/install_deps.sh --wordnet." >&2
    exit 4
  fi
done

# Lines of the licence start with two blanks; the gloss follows the first bar. Definitions and
# examples are separated by semicolons; examples are in quotation marks.
awk '
  /^  / { next }
  {
    bar = index($0, "| ")
    if (bar == 0) next
    if (entries > 0 && entries % 8 == 0) print ""
    entries++
    gloss = substr($0, bar + 2)
    gsub(/"/, "", gloss)
    n = split(gloss, sentences, /; */)
    for (i = 1; i <= n; i++) {
      sub(/ +$/, "", sentences[i])
      if (sentences[i] != "") print sentences[i]
    }
  }' "$wordnet_dir"/data.{noun,verb,adj,adv}
