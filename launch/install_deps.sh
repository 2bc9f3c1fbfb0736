#!/usr/bin/env bash
# Installs what Bertha needs from the packages of Debian (12 or newer), Ubuntu (24.04 or newer), and
# Rocky Linux, AlmaLinux or RHEL 9 with EPEL and CRB; the latter has not been run on such a system.
# Does nothing, and needs no network, if all packages for building, running and the given options are
# installed. Optional packages are installed with them, and otherwise only listed. Exit 5 on failure.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: launch/install_deps.sh [--tests] [--wordnet] [--slurm] [--fuzz] [--dry-run]

Examples:
  launch/install_deps.sh            # installs missing packages for building and training, as root or with sudo
  launch/install_deps.sh --dry-run  # only prints what is missing
  launch/install_deps.sh --tests    # also packages that only the tests need
  launch/install_deps.sh --wordnet  # also the text of the quickstart
  launch/install_deps.sh --slurm    # also the daemons that the tests labelled slurm start
  launch/install_deps.sh --fuzz     # also clang with libFuzzer, for tests/fuzz/ and the preset fuzz
TEXT
}

refuse() {
  echo "install_deps: $*" >&2
  exit 5
}

dry_run=no
lists=" build run "
for option in "$@"; do
  case $option in
    --dry-run) dry_run=yes ;;
    --tests | --wordnet | --slurm | --fuzz) lists+="${option#--} " ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_deps: unknown option $option; see launch/install_deps.sh --help" >&2; exit 2 ;;
  esac
done

# --- which system ---------------------------------------------------------------------------------
release=${BERTHA_OS_RELEASE:-/etc/os-release}  # tests point this elsewhere
field() { sed -n "s/^$1=[\"']\{0,1\}\([^\"']*\)[\"']\{0,1\}\$/\1/p" "$release" 2> /dev/null || true; }
id=$(field ID)
version=$(field VERSION_ID)
wanted="Bertha's packages are those of Debian 12, Ubuntu 24.04 or newer, and Rocky Linux, AlmaLinux or RHEL 9"
elsewhere="On another system take launch/conda.yml, which needs no root, or launch/container"
case " $id $(field ID_LIKE) " in
  *" debian "* | *" ubuntu "*) manager=apt-get ;;
  *" rhel "*) manager=dnf ;;
  *) refuse "this system is '${id:-unknown}'; $wanted. $elsewhere." ;;
esac
case $id in
  debian) oldest=12 ;;
  ubuntu) oldest=24.04 ;;
  *) oldest= ;;
esac
if [[ $manager == dnf && ${version%%.*} != 9 ]] || [[ -n $oldest && -n $version &&
  $(printf '%s\n' "$oldest" "$version" | sort -V | head -1) != "$oldest" ]]; then
  refuse "this is $id $version; $wanted. $elsewhere."
fi

# --- what is missing ------------------------------------------------------------------------------
# A tool counts as present if its command exists, wherever it comes from: package:command.
declare -A packages
if [[ $manager == apt-get ]]; then
  packages=(
    [build]="cmake:cmake ninja-build:ninja g++:g++ pkg-config:pkg-config protobuf-compiler:protoc
      libopenmpi-dev libhdf5-dev libyaml-cpp-dev libopenblas-dev libcli11-dev libspdlog-dev libfmt-dev
      nlohmann-json3-dev libicu-dev libhwloc-dev libxxhash-dev libssl-dev libisal-dev libprotobuf-dev
      zlib1g-dev liblzma-dev libzstd-dev"
    [run]="openmpi-bin:mpirun"
    [wordnet]="wordnet-base"
    [tests]="git:git python3:python3 python3-venv shellcheck:shellcheck libgtest-dev libgmock-dev
      libleveldb-dev"
    [extras]="ccache:ccache openssh-client:ssh"
    [slurm]="slurmctld:/usr/sbin/slurmctld slurmd:/usr/sbin/slurmd munge:/usr/sbin/munged
      slurm-client:sbatch"
    [fuzz]="clang-19:clang++-19 libclang-rt-19-dev")
  # shellcheck disable=SC2016  # dpkg-query's own fields
  installed=(dpkg-query -W -f='${Package} ${db:Status-Status}\n')
  install=(apt-get install --yes --no-install-recommends)
  commands=("apt-get update")
else
  packages=(
    [build]="cmake:cmake ninja-build:ninja gcc-c++:g++ pkgconf-pkg-config:pkg-config
      protobuf-compiler:protoc openmpi-devel hdf5-devel yaml-cpp-devel openblas-devel cli11-devel
      spdlog-devel fmt-devel json-devel libicu-devel hwloc-devel xxhash-devel openssl-devel
      isa-l-devel protobuf-devel protobuf-lite-devel zlib-devel xz-devel libzstd-devel"
    [tests]="git:git python3:python3 ShellCheck:shellcheck gtest-devel gmock-devel leveldb-devel"
    [extras]="ccache:ccache openssh-clients:ssh"
    [slurm]="slurm-slurmctld:/usr/sbin/slurmctld slurm-slurmd:/usr/sbin/slurmd munge:/usr/sbin/munged
      slurm:sbatch"
    [fuzz]="clang:clang++ compiler-rt")
  installed=(rpm -q --qf '%{NAME} installed\n')
  install=(dnf install --assumeyes --setopt=install_weak_deps=False)
  commands=("dnf install --assumeyes epel-release" "crb enable")
fi
declare -A serves=(
  [wordnet]="the quickstart's own text (--wordnet)" [tests]="the tests (--tests)"
  [extras]="faster recompilation (ccache) and ranks on other machines (ssh)")

needed=()
others=()
notes=()
for list in build run wordnet tests extras slurm fuzz; do
  missing=()
  for package in ${packages[$list]:-}; do
    if [[ $package == *:* ]]; then
      command -v "${package#*:}" > /dev/null || missing+=("${package%:*}")
    elif [[ $("${installed[@]}" "$package" 2> /dev/null) != *"$package installed"* ]]; then
      missing+=("$package")
    fi
  done
  if ((${#missing[@]} == 0)); then continue; fi
  if [[ $lists == *" $list "* ]]; then needed+=("${missing[@]}")
  elif [[ -n ${serves[$list]:-} ]]; then
    others+=("${missing[@]}")
    notes+=("left out, for ${serves[$list]}: ${missing[*]}")
  fi
done
say_path() {
  if [[ $manager == dnf ]] && ! command -v mpirun > /dev/null; then
    echo "install_deps: mpirun is not on the PATH; before you build: module load mpi/openmpi-x86_64"
  fi
}
if ((${#needed[@]} == 0)); then
  if ((${#notes[@]} == 0)); then notes=("all packages are installed"); fi
  printf 'install_deps: %s\n' "${notes[@]}"
  say_path
  exit 0
fi

# --- say it, then do it ---------------------------------------------------------------------------
command -v "$manager" > /dev/null || refuse "$manager was not found; install these packages by hand: ${needed[*]}"
as_root=()
if ((EUID != 0)); then
  command -v sudo > /dev/null ||
    refuse "neither root nor sudo; have an administrator run: ${install[*]} ${needed[*]}"
  as_root=(sudo)
fi
echo "install_deps: will run, as root:"
printf '  %s\n' "${commands[@]}" "${install[*]} ${needed[*]}${others[*]:+ ${others[*]}}"
if [[ $dry_run == yes ]]; then exit 0; fi

root() { ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive "$@"; }
for command in "${commands[@]}"; do
  read -ra words <<< "$command"
  if ! root "${words[@]}"; then
    echo "install_deps: $command failed; trying once more in 5 s"
    sleep 5
    root "${words[@]}" || refuse "$command failed twice; check the network and the package sources"
  fi
done
root "${install[@]}" "${needed[@]}" ${others[@]+"${others[@]}"} || root "${install[@]}" "${needed[@]}" ||
  refuse "$manager could not install the packages; its message is above"
say_path
