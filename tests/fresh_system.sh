#!/usr/bin/env bash
# Runs both commands of the README as they stand there on a fresh Debian: in a root folder with next to
# nothing installed, on a clean clone of what is committed here. Mounts are in a namespace of their own,
# which goes however this ends.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/fresh_system.sh [--ccache DIR] RELEASE ROOT

Makes the folder ROOT with mmdebstrap, or takes the one that an earlier call has made, with all that
was installed in it. Ends with 0 when both commands passed, with 1 otherwise. Needs root, the network,
20 GB, and hours on two cores; DIR, where objects of earlier calls are kept, saves most of them.

Examples:
  tests/fresh_system.sh bookworm /var/tmp/bookworm  # Debian 12
  tests/fresh_system.sh trixie /var/tmp/trixie      # Debian 13
TEXT
}

stop() {  # exit code, sentence
  echo "fresh_system.sh: $2" >&2
  exit "$1"
}

cache=
if [[ ${1:-} == -h || ${1:-} == --help ]]; then usage; exit 0; fi
if [[ ${1:-} == --ccache ]]; then
  cache=$(realpath -m "${2:-}")
  shift 2
fi
if (($# != 2)); then stop 2 "want RELEASE and ROOT; see --help"; fi
release=$1
root=$(realpath -m "$2")
repository=$(cd "$(dirname "$0")/.." && pwd)
((EUID == 0)) || stop 5 "only root may make a root folder; start it with sudo"
command -v mmdebstrap > /dev/null || stop 5 "mmdebstrap was not found; run: apt-get install mmdebstrap"

if [[ ! -e $root/etc/os-release ]]; then
  mmdebstrap --variant=minbase --include=ca-certificates,git "$release" "$root"
fi
grep -q "^VERSION_CODENAME=$release\$" "$root/etc/os-release" ||
  stop 2 "$root is not Debian's $release; give another folder"

# The network as it is reached from here: proxies, certificates, options of apt and pip.
apt-config dump | grep -E '^Acquire::(https?|Check|Retries)' > "$root/etc/apt/apt.conf.d/90outside" || true
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /usr/local/share/ca-certificates; do
  if [[ -e $file ]]; then cp -rL "$file" "$root$(dirname "$file")"; fi
done
variables=(LANG=C.UTF-8 HOME=/root "TERM=${TERM:-dumb}"
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
while read -r name; do variables+=("$name=${!name}"); done < <(compgen -e |
  grep -iE '_proxy$|^PIP_|^(SSL_CERT|CURL_CA|GIT_SSL|REQUESTS_CA)' || true)

mkdir -p "$root/sys" "$root/dev" "$root/proc"
if [[ -n $cache ]]; then
  mkdir -p "$cache" "$root/ccache"
  variables+=(CCACHE_DIR=/ccache)
fi
find "$root/tmp" -mindepth 1 -delete
rm -rf "$root/root/bertha"
git clone --quiet "$repository" "$root/root/bertha"

# A job of its own, or commands inside would ignore Ctrl-C for ever. Killed, it takes all inside along.
inside=
trap 'if [[ -n $inside ]]; then kill -KILL "$inside" 2> /dev/null || true; fi' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
run_inside() {  # command
  local status=0
  set -m
  # shellcheck disable=SC2016  # the shell inside expands
  unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" bash -euc '
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    if [[ -n $2 ]]; then mount --bind "$2" "$1/ccache"; fi
    exec chroot "$1" env --ignore-environment "${@:4}" bash -c "cd /root/bertha && $3"' \
    - "$root" "$cache" "$1" "${variables[@]}" < /dev/null &
  set +m
  inside=$!
  wait "$inside" || status=$?
  inside=
  return "$status"
}

run_inside update-ca-certificates
results=()
worst=0
for command in ./launch/quickstart ./tests/run; do
  status=0
  SECONDS=0
  run_inside "$command" || status=$?
  if ((status != 0)); then worst=1; fi
  results+=("Debian $(< "$root/etc/debian_version"), $command: exit code $status after $((SECONDS / 60)) min $((SECONDS % 60)) s")
done
printf '%s\n' "" "Commit $(git -C "$root/root/bertha" rev-parse --short HEAD)" "${results[@]}"
exit "$worst"
