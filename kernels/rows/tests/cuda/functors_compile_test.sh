#!/usr/bin/env bash
# Wrong functors do not compile, and one sentence says why; right ones do, and kernels call them.
# usage: functors_compile_test.sh SOURCE_ROOT NVCC C++_COMPILER
set -euo pipefail

root=$1 nvcc=$2 cxx=$3
wrong=$root/kernels/rows/tests/cuda/wrong_functors.cu
right=$root/kernels/rows/tests/cuda/right_functors.cu
export scratch nvcc_command cxx_command most_errors=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
nvcc_command="$nvcc -std=c++20 --expt-relaxed-constexpr -arch=sm_90a -I$root -w -ptx"
headers=$("$nvcc" -dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ INCLUDES="-I\([^"]*\)".*/\1/p')
cxx_command="$cxx -x c++ -std=c++20 -fsyntax-only -w -I$root -idirafter $headers"
if [[ $("$cxx" --version) == *clang* ]]; then most_errors=2; fi  # the use of a refused class

# refuse SOURCE COMPILER SECTION SENTENCE: the compiler finds one error, which has the sentence.
refuse() {
  local command=$cxx_command errors said=$scratch/$2.$3
  if [[ $2 == nvcc ]]; then command="$nvcc_command -o $said.ptx"; fi
  if $command "-D$3" "$1" >"$said" 2>&1; then
    echo "FAILED: $2 compiles $3"
    return 1
  fi
  errors=$(grep -E '(fatal )?error: ' "$said" || true)
  if (($(wc -l <<<"$errors") > most_errors)) || [[ $(head -1 <<<"$errors") != *"$4"* ]]; then
    printf 'FAILED: %s, %s: want the error "%s" alone, found\n%.2000s\n' "$2" "$3" "$4" \
      "${errors:-$(<"$said")}"
    return 1
  fi
}
export -f refuse

# SECTION|nvcc |SENTENCE if only nvcc reads it, otherwise SECTION||SENTENCE.
sections=$(sed -nE \
  '/^#(el)?if defined\(/{N;s/.*defined\((\w+)\)\n\/\/ (nvcc )?error: /\1|\2|/p}' "$wrong")
if [[ $(wc -l <<<"$sections") != $(grep -cE '^#(el)?if defined\(' "$wrong") ]]; then
  echo "FAILED: a section of wrong_functors.cu does not say which error is expected"
  exit 1
fi
failed=0
while IFS='|' read -r section only sentence; do
  printf 'nvcc\0%s\0%s\0' "$section" "$sentence"
  if [[ -z $only ]]; then printf 'cxx\0%s\0%s\0' "$section" "$sentence"; fi
done <<<"$sections" |
  xargs -0 -n 3 -P "$(nproc)" bash -c 'refuse "$0" "$@"' "$wrong" || failed=1

$cxx_command "$right" || failed=1
$nvcc_command -o "$scratch/right.ptx" "$right" || failed=1
# The example of the README.
sed -n '/^```cpp$/,/^```$/{/^```/!p}' "$root/kernels/rows/README.md" >"$scratch/readme.cu"
$nvcc_command -o "$scratch/readme.ptx" "$scratch/readme.cu" || failed=1
grep -q 'entry.*ScaledLoad' "$scratch/readme.ptx" || failed=1
# Each kernel contains the marks of the functors that its name contains.
awk 'function check() {
       for (i in functors) {
         if (kernel !~ "[0-9]" functors[i]) continue
         ++calls
         if (functors[i] in called) continue
         ++missing
         print "FAILED: " kernel " does not call " functors[i]
       }
       delete called
     }
     BEGIN {
       split("MaskedLoad GenericLoad OverloadedLoad GatheredLoad ScaledGatheredLoad MarkedStore",
             functors)
     }
     /\.entry/ { check(); kernel = $0 }
     / is called$/ { called[$2] }
     END { check(); print calls " functors in kernels"; exit missing > 0 || calls < 100 }' \
  "$scratch/right.ptx" || failed=1
echo "$(wc -l <<<"$sections") mistakes"
exit $failed
