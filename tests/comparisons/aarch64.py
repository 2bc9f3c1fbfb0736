#!/usr/bin/env python3
"""Builds Bertha for aarch64 with Debian's cross compiler and libraries, runs it under qemu-user, and
compares it with a program of this machine: shards byte for byte, losses within tolerance.

    apt-get install g++-aarch64-linux-gnu qemu-user mmdebstrap
    python3 tests/comparisons/aarch64.py build/release/bertha FOLDER

FOLDER keeps Debian's libraries (600 MB) and the build for the next time. On Debian, as root or where
users may have namespaces; the first time takes half an hour on two cores.
"""
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from small_data import make_small_data, must  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TRIPLE = "aarch64-linux-gnu"
PACKAGES = """libc6-dev libstdc++-{gcc}-dev libopenmpi-dev libhdf5-dev libyaml-cpp-dev libopenblas-dev
    libcli11-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libicu-dev libhwloc-dev
    libxxhash-dev libssl-dev libisal-dev libprotobuf-dev zlib1g-dev liblzma-dev libzstd-dev"""
# Names of the chosen variants, which Debian's maintainer scripts would make: none of them runs here.
LINKS = {"libopenblas.so.0": "openblas-pthread/libopenblas.so.0",
         "libmpi.so": "openmpi/lib/libmpi.so",
         "pkgconfig/mpi-c.pc": "ompi-c.pc",
         "pkgconfig/openblas.pc": "../openblas-pthread/pkgconfig/openblas.pc"}
STEPS = 4
LOSS_F32 = 300 * 2.0**-24  # as in tests/end_to_end/support.py: roundings of a loss


def run(*words, **how):
    print("  $", *words, flush=True)
    return subprocess.run([str(word) for word in words], check=True, **how)


def make_root(root):
    """Debian's libraries for aarch64, of this system's release, unpacked."""
    gcc = subprocess.check_output([f"{TRIPLE}-gcc", "-dumpversion"], text=True).split(".")[0].strip()
    packages = ",".join(PACKAGES.format(gcc=gcc).split())
    run("mmdebstrap", "--architectures=arm64", "--variant=extract", f"--include={packages}",
        platform.freedesktop_os_release()["VERSION_CODENAME"], root, "http://deb.debian.org/debian")
    for name, target in LINKS.items():
        (root / "usr/lib" / TRIPLE / name).symlink_to(target)
    for link in root.glob("usr/lib/**/*"):
        if link.is_symlink() and os.readlink(link).startswith("/"):  # it would lead out of the root
            target = root / os.readlink(link)[1:]
            link.unlink()
            link.symlink_to(os.path.relpath(target, link.parent))


def build(root, folder):
    """Builds the program; returns a script that runs it here."""
    emulator = [shutil.which("qemu-aarch64"), "-L", str(root)]
    settings = {
        "CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "aarch64", "CMAKE_SYSROOT": root,
        "CMAKE_LIBRARY_ARCHITECTURE": TRIPLE, "CMAKE_CROSSCOMPILING_EMULATOR": ";".join(emulator),
        **{f"CMAKE_{name}": shutil.which(f"{TRIPLE}-{tool}") for name, tool in
           {"C_COMPILER": "gcc", "CXX_COMPILER": "g++", "AR": "ar", "RANLIB": "ranlib"}.items()},
        "BERTHA_NATIVE": "OFF", "BERTHA_TESTS": "OFF", "BERTHA_WERROR": "ON",
        # Not the compiler wrappers of this machine's MPI and HDF5; so its tools have to be named.
        **{f"CMAKE_FIND_ROOT_PATH_MODE_{kind}": "ONLY"
           for kind in ("PROGRAM", "LIBRARY", "INCLUDE", "PACKAGE")},
        "CMAKE_MAKE_PROGRAM": shutil.which("ninja"), "BERTHA_CUDA": "OFF",
        "BERTHA_CCACHE": shutil.which("ccache") or "",
        "PKG_CONFIG_EXECUTABLE": shutil.which("pkg-config"),
        "Protobuf_PROTOC_EXECUTABLE": shutil.which("protoc")}
    folders = f"{root}/usr/lib/{TRIPLE}/pkgconfig:{root}/usr/share/pkgconfig"
    run("cmake", "--preset", "release", "-B", folder / "build",
        *(f"-D{name}={value}" for name, value in settings.items()), cwd=SOURCE,
        env={**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(root), "PKG_CONFIG_LIBDIR": folders})
    run("cmake", "--build", folder / "build", "--target", "bertha", "--parallel", os.cpu_count())
    start = folder / "bertha"
    start.write_text(f'#!/bin/sh\nexec {" ".join(emulator)} {folder}/build/bertha "$@"\n')
    start.chmod(0o755)
    return start


def shards(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.hdf5"))}


def losses(program, config, output):
    settings = {"max_steps": STEPS, "seed": 3}
    must(program, "train", "--config", config, "--output-dir", output,
         *(f"--set=train.{name}={value}" for name, value in settings.items()))
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["kind"] == "step"]


def main():
    here, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    root = folder / "root"
    if not root.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_root(root)
    there = build(root, folder)
    run(there, "--version")
    found = {}
    for name, program in (("here", here), ("aarch64", there)):
        data = folder / name
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir()
        config = make_small_data(program, data)
        found[name] = shards(data), losses(program, config, data / "run")
    (files, wanted), (their_files, their_losses) = found["here"], found["aarch64"]
    assert files and their_files == files, "the shards differ"
    assert len(wanted) == len(their_losses) == STEPS, found
    worst = max(abs(theirs / ours - 1) for ours, theirs in zip(wanted, their_losses))
    print(f"aarch64: {len(files)} shards are equal; losses of {STEPS} steps differ by {worst:.1e} of "
          f"their value, {LOSS_F32:.1e} are allowed")
    return 0 if worst <= LOSS_F32 else 1


if __name__ == "__main__":
    sys.exit(main())
