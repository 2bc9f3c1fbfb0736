#!/usr/bin/env bash
# Installs what Bertha needs from the packages of Debian (12 or newer) or Ubuntu (24.04 or newer).
# Does nothing, and needs no network, when everything is installed. Exit 5 when it cannot.
set -euo pipefail

# A tool counts as present when its command is, wherever it comes from: package:command.
tools=(cmake:cmake ninja-build:ninja g++:g++ make:make pkg-config:pkg-config git:git ccache:ccache
  python3:python3 openmpi-bin:mpirun openssh-client:ssh shellcheck:shellcheck protobuf-compiler:protoc)
libraries=(libopenmpi-dev libhdf5-dev libyaml-cpp-dev libopenblas-dev libcli11-dev libspdlog-dev
  libfmt-dev nlohmann-json3-dev libutf8proc-dev libhwloc-dev libgtest-dev libgmock-dev
  libxxhash-dev libssl-dev libisal-dev libleveldb-dev libprotobuf-dev wordnet-base
  python3-venv)

usage() {
  cat <<'TEXT'
Usage: launch/install_deps.sh [--slurm] [--dry-run]

Examples:
  launch/install_deps.sh            # installs what is missing, as root or through sudo
  launch/install_deps.sh --dry-run  # only says what is missing
  launch/install_deps.sh --slurm    # also the daemons that the tests labelled slurm start
TEXT
}

refuse() {
  echo "install_deps: $*" >&2
  exit 5
}

dry_run=no
for option in "$@"; do
  case $option in
    --dry-run) dry_run=yes ;;
    --slurm) tools+=(slurmctld:/usr/sbin/slurmctld slurmd:/usr/sbin/slurmd munge:/usr/sbin/munged
      slurm-client:sbatch) ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_deps: unknown option $option; see launch/install_deps.sh --help" >&2; exit 2 ;;
  esac
done

# --- which system ---------------------------------------------------------------------------------
release=${BERTHA_OS_RELEASE:-/etc/os-release}  # tests point this elsewhere
field() { sed -n "s/^$1=[\"']\{0,1\}\([^\"']*\)[\"']\{0,1\}\$/\1/p" "$release" 2> /dev/null || true; }
id=$(field ID)
version=$(field VERSION_ID)
wanted="Bertha's packages are those of Debian 12 or Ubuntu 24.04 and newer"
case " $id $(field ID_LIKE) " in
  *" debian "* | *" ubuntu "*) ;;
  *) refuse "this system is '${id:-unknown}'; $wanted. Install the libraries that CMakeLists.txt names, then build with cmake." ;;
esac
case $id in
  debian) oldest=12 ;;
  ubuntu) oldest=24.04 ;;
  *) oldest= ;;
esac
if [[ -n $oldest && -n $version ]] &&
  [[ $(printf '%s\n' "$oldest" "$version" | sort -V | head -1) != "$oldest" ]]; then
  refuse "this is $id $version; $wanted. Use a container of one of them."
fi

# --- what is missing ------------------------------------------------------------------------------
missing=()
for tool in "${tools[@]}"; do
  command -v "${tool#*:}" > /dev/null || missing+=("${tool%:*}")
done
installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${libraries[@]}" 2> /dev/null || true)
for package in "${libraries[@]}"; do
  grep -qx "$package installed" <<< "$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "install_deps: all packages are installed"
  exit 0
fi

# --- say it, then do it ---------------------------------------------------------------------------
command -v apt-get > /dev/null || refuse "apt-get was not found; install these packages by hand: ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  command -v sudo > /dev/null ||
    refuse "neither root nor sudo; have an administrator run: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo)
fi
echo "install_deps: will run, as root:"
echo "  apt-get update"
echo "  apt-get install --yes --no-install-recommends ${missing[*]}"
if [[ $dry_run == yes ]]; then exit 0; fi

apt() { ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"; }
if ! apt update; then
  echo "install_deps: apt-get update failed; trying once more in 5 s"
  sleep 5
  apt update || refuse "apt-get update failed twice; check the network and /etc/apt/sources.list"
fi
apt install --yes --no-install-recommends "${missing[@]}" ||
  refuse "apt-get could not install the packages; its message is above"
