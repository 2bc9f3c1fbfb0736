#!/usr/bin/env bash
# Installs what Bertha needs from the packages of Debian (12 or newer), Ubuntu (24.04 or newer), and
# Rocky Linux, AlmaLinux or RHEL 9 with EPEL and CRB; the latter has not been run on such a system.
# Does nothing, and needs no network, when everything is installed. Exit 5 when it cannot.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: launch/install_deps.sh [--slurm] [--fuzz] [--dry-run]

Examples:
  launch/install_deps.sh            # installs what is missing, as root or through sudo
  launch/install_deps.sh --dry-run  # only says what is missing
  launch/install_deps.sh --slurm    # also the daemons that the tests labelled slurm start
  launch/install_deps.sh --fuzz     # also clang with libFuzzer, for tests/fuzz/ and the preset fuzz
TEXT
}

refuse() {
  echo "install_deps: $*" >&2
  exit 5
}

dry_run=no
slurm=no
fuzz=no
for option in "$@"; do
  case $option in
    --dry-run) dry_run=yes ;;
    --slurm) slurm=yes ;;
    --fuzz) fuzz=yes ;;
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
# A tool counts as present when its command is, wherever it comes from: package:command.
if [[ $manager == apt-get ]]; then
  tools=(cmake:cmake ninja-build:ninja g++:g++ make:make pkg-config:pkg-config git:git ccache:ccache
    python3:python3 openmpi-bin:mpirun openssh-client:ssh shellcheck:shellcheck protobuf-compiler:protoc)
  libraries=(libopenmpi-dev libhdf5-dev libyaml-cpp-dev libopenblas-dev libcli11-dev libspdlog-dev
    libfmt-dev nlohmann-json3-dev libutf8proc-dev libhwloc-dev libgtest-dev libgmock-dev
    libxxhash-dev libssl-dev libisal-dev libleveldb-dev libprotobuf-dev wordnet-base
    python3-venv)
  slurm_tools=(slurmctld:/usr/sbin/slurmctld slurmd:/usr/sbin/slurmd munge:/usr/sbin/munged
    slurm-client:sbatch)
  fuzz_tools=(clang-19:clang++-19)
  fuzz_libraries=(libclang-rt-19-dev)
  # shellcheck disable=SC2016  # dpkg-query's own fields
  installed=(dpkg-query -W -f='${Package} ${db:Status-Status}\n')
  install=(apt-get install --yes --no-install-recommends)
  commands=("apt-get update")
else
  tools=(cmake:cmake ninja-build:ninja gcc-c++:g++ make:make pkgconf-pkg-config:pkg-config git:git
    ccache:ccache python3:python3 openssh-clients:ssh ShellCheck:shellcheck
    protobuf-compiler:protoc)
  libraries=(openmpi-devel hdf5-devel yaml-cpp-devel openblas-devel cli11-devel spdlog-devel fmt-devel
    json-devel utf8proc-devel hwloc-devel gtest-devel gmock-devel xxhash-devel openssl-devel
    isa-l-devel leveldb-devel protobuf-devel protobuf-lite-devel)
  slurm_tools=(slurm-slurmctld:/usr/sbin/slurmctld slurm-slurmd:/usr/sbin/slurmd
    munge:/usr/sbin/munged slurm:sbatch)
  fuzz_tools=(clang:clang++)
  fuzz_libraries=(compiler-rt)
  installed=(rpm -q --qf '%{NAME} installed\n')
  install=(dnf install --assumeyes --setopt=install_weak_deps=False)
  commands=("dnf install --assumeyes epel-release" "crb enable")
fi
if [[ $slurm == yes ]]; then tools+=("${slurm_tools[@]}"); fi
if [[ $fuzz == yes ]]; then tools+=("${fuzz_tools[@]}") libraries+=("${fuzz_libraries[@]}"); fi

missing=()
for tool in "${tools[@]}"; do
  command -v "${tool#*:}" > /dev/null || missing+=("${tool%:*}")
done
found=$("${installed[@]}" "${libraries[@]}" 2> /dev/null || true)
for package in "${libraries[@]}"; do
  grep -qx "$package installed" <<< "$found" || missing+=("$package")
done
say_path() {
  if [[ $manager == dnf ]] && ! command -v mpirun > /dev/null; then
    echo "install_deps: mpirun is not on the PATH; before you build: module load mpi/openmpi-x86_64"
  fi
}
if ((${#missing[@]} == 0)); then
  echo "install_deps: all packages are installed"
  say_path
  exit 0
fi

# --- say it, then do it ---------------------------------------------------------------------------
command -v "$manager" > /dev/null || refuse "$manager was not found; install these packages by hand: ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  command -v sudo > /dev/null ||
    refuse "neither root nor sudo; have an administrator run: ${install[*]} ${missing[*]}"
  as_root=(sudo)
fi
echo "install_deps: will run, as root:"
printf '  %s\n' "${commands[@]}" "${install[*]} ${missing[*]}"
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
root "${install[@]}" "${missing[@]}" ||
  refuse "$manager could not install the packages; its message is above"
say_path
