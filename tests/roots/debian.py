"""Small root filesystems with Debian's C library in several versions, and one with musl.

The packages come from the machine's Debian mirror, once per machine: they are kept beside the
copied tree where `make test` runs, else for one run of pytest. Nothing of them is run outside of a
container.
"""

from __future__ import annotations

import lzma
import shutil
import subprocess
import urllib.request
from pathlib import Path

SUITES = {"2.31": "bullseye", "2.36": "bookworm", "newest": "sid"}
"""Debian's suite for each version of the GNU C library that is tested."""

_KEPT = Path("/opt/pyxis-enroot-test/debs")


def packages_folder(temporary: Path) -> Path:
    """The folder to keep packages in: the machine's, if it may be written, else `temporary`."""
    try:
        _KEPT.mkdir(exist_ok=True)
        probe = _KEPT / ".probe"
        probe.touch()
        probe.unlink()
        return _KEPT
    except OSError:
        return temporary


def fetch(suite: str, names: tuple[str, ...], cache: Path) -> list[Path]:
    """Return the files of packages of a suite."""
    folder = cache / suite
    folder.mkdir(exist_ok=True)
    missing = [name for name in names if not list(folder.glob(f"{name}_*.deb"))]
    if missing:
        _download_packages(suite, missing, folder)
    return [next(folder.glob(f"{name}_*.deb")) for name in names]


def mirror() -> str:
    """The address that this machine's apt has its packages from."""
    lines = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE) $(COMPONENT) $(RELEASE)",
         "Created-By: Packages"],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.splitlines()  # fmt: skip
    sites = [line.split() for line in lines]
    return next(site for site, part, release in sites if part == "main" and "-" not in release)


def _download_packages(suite: str, names: list[str], folder: Path) -> None:
    site = mirror()
    packed = _download(f"{site}/dists/{suite}/main/binary-amd64/Packages.xz")
    index = lzma.decompress(packed).decode()
    for name in names:
        at = index.index(f"Package: {name}\n")
        entry = index[at : index.index("\n\n", at)]
        path = next(x.split()[1] for x in entry.splitlines() if x.startswith("Filename: "))
        partial = folder / f"{name}.part"
        partial.write_bytes(_download(f"{site}/{path}"))
        partial.rename(folder / f"{name}_{Path(path).name.partition('_')[2]}")


def _download(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        data: bytes = answer.read()
        return data


def libc_packages(version: str, cache: Path) -> list[Path]:
    """Return the packages of one version of the GNU C library: the library, and its programs."""
    return fetch(SUITES[version], ("libc6", "libc-bin"), cache)


def unpack(packages: list[Path], target: Path) -> None:
    """Unpack packages; those of before merged /usr go behind the links `/lib` and so on."""
    for package in packages:
        tar = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", str(package)], check=True, stdout=subprocess.PIPE
        ).stdout
        subprocess.run(
            ["tar", "-x", "--no-same-owner", "--keep-directory-symlink", "-C", str(target)],
            input=tar, check=True,
        )  # fmt: skip


def build_rootfs(target: Path, packages: list[Path], *, ldconfig: bool = True) -> Path:
    """Make a root filesystem with a C library, busybox as its shell, and Debian's login profile.

    With `ldconfig` the loader's cache is there too, as in every image that was built with it.
    """
    for name in ("dev", "proc", "sys", "tmp", "run", "etc/ld.so.conf.d", "usr/bin", "usr/sbin",
                 "usr/lib/x86_64-linux-gnu", "usr/lib64", "root", "var", "usr/share"):  # fmt: skip
        (target / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (target / name).exists():
            (target / name).symlink_to(f"usr/{name}")
    (target / "var/run").symlink_to("/run")
    (target / "var/lock").symlink_to("/run/lock")
    unpack(packages, target)
    shutil.copy("/bin/busybox", target / "usr/bin/busybox")
    for name in ("sh", "true", "cat", "ls", "env", "stat", "test", "dd", "id", "mount"):
        (target / "usr/bin" / name).symlink_to("busybox")
    for name in ("usr/share/doc", "usr/share/locale", "usr/lib/x86_64-linux-gnu/gconv"):
        shutil.rmtree(target / name, ignore_errors=True)
    (target / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    triplet = "x86_64-linux-gnu"
    (target / f"etc/ld.so.conf.d/{triplet}.conf").write_text(
        f"# Multiarch support\n/usr/local/lib/{triplet}\n/lib/{triplet}\n/usr/lib/{triplet}\n"
    )
    (target / "etc/profile").write_text(
        'PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"\nexport PATH\n'
    )
    (target / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (target / "etc/group").write_text("root:x:0:\n")
    if ldconfig:
        subprocess.run(["/sbin/ldconfig", "-r", str(target)], check=True, stderr=subprocess.DEVNULL)
    else:
        for name in ("usr/sbin/ldconfig", "sbin/ldconfig"):
            (target / name).unlink(missing_ok=True)
    return target
