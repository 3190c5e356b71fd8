"""A whole Debian root filesystem goes round as an ordinary user, and apt works in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PERSON = 54321
"""A user and group that the host's databases do not know."""
# mmdebstrap; everything else runs as an ordinary user. What the first test waits for is made in its
# own time: an image, which alone may take nearly five minutes.
pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]

CONTROL = """Package: made-here
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@localhost>
Description: a package made for a test
"""


class User:
    """An ordinary user with folders of his own and the installed commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.chown(folder, PERSON, PERSON)
        self.environ = {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "TMPDIR": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "ENROOT_SYSCONF_PATH": str(folder / "none"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.data = folder / ".local/share/enroot"

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.environ, user=PERSON, group=PERSON, extra_groups=[],
            capture_output=True, text=True, check=False, timeout=280, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    folder.chmod(0o755)
    yield User(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def debian(user: User) -> str:
    """The name of a container made from Debian's minbase."""
    archive = user.folder / "debian.tar"
    subprocess.run(
        ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "bookworm", str(archive)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    user.run("enroot", "import", "-o", "debian.sqsh", f"tar:{archive}")
    user.run("enroot", "create", "-n", "debian", "debian.sqsh")
    return "debian"


def listing(user: User, name: str) -> list[str]:
    """Every path of a container with what export and create keep: type, mode, size, target.

    Empty files of mode 0000 are mount points that a start made: export leaves them out.
    """
    text = user.run(
        "find", str(user.data / name), "-mindepth", "1", "-path", "*/dev/*", "-prune", "-o",
        "-printf", "%P %y %m %l %Ts ", "-type", "f", "-printf", "%s\\n", "-o", "-printf", "\n",
    )  # fmt: skip
    lines = (line for line in text.splitlines() if not line.startswith(".lock"))
    return sorted(line for line in lines if " f 0 " not in line)


def make_repository(folder: Path) -> None:
    """A repository of one package, for `deb [trusted=yes] file:…`."""
    tree = folder / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL)
    # A user of its own, as many packages make one: needs chown and setuid to succeed.
    (tree / "DEBIAN/postinst").write_text(
        "#!/bin/sh\nset -e\ntouch /var/made-here\nchown daemon:daemon /var/made-here\n"
    )
    (tree / "DEBIAN/postinst").chmod(0o755)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/made-here").write_text("#!/bin/sh\necho installed\n")
    (tree / "usr/bin/made-here").chmod(0o755)
    package = folder / "made-here_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, package], check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    shutil.rmtree(tree)
    data = package.read_bytes()
    (folder / "Packages").write_text(
        CONTROL + f"Filename: ./{package.name}\nSize: {len(data)}\n"
        f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
    )


def test_create_start_exec_export_and_create_again(user: User, debian: str) -> None:
    before = listing(user, debian)
    assert len(before) > 1500
    assert "bookworm" in user.run("enroot", "start", debian, "cat", "/etc/os-release")
    # The first start makes the user's entries and mount points, which are part of the container.
    before = listing(user, debian)
    user.run("enroot", "export", "-o", "again.sqsh", debian)
    user.run("enroot", "create", "-n", "again", "again.sqsh")
    assert listing(user, "again") == before
    user.run("enroot", "remove", "-f", "again")
    assert not (user.data / "again").exists()


def test_apt_installs_from_a_local_repository(user: User, debian: str) -> None:
    repository = user.folder / "repository"
    repository.mkdir()
    make_repository(repository)
    source = user.folder / "local.list"
    source.write_text("deb [trusted=yes] file:/repository ./\n")
    script = (
        "rm -f /etc/apt/sources.list.d/*; cp /local.list /etc/apt/sources.list"
        " && apt-get -q update && apt-get -qy install made-here && made-here && id -u"
    )
    output = user.run(
        "enroot", "start", "--root", "--rw", "-m", f"{repository}:/repository",
        "-m", f"{source}:/local.list", debian, "sh", "-ec", script,
    )  # fmt: skip
    assert output.splitlines()[-2:] == ["installed", "0"]
    # It stays in the container, and belongs to the user outside.
    assert (user.data / debian / "usr/bin/made-here").stat().st_uid == PERSON
    assert user.run("enroot", "start", debian, "made-here") == "installed\n"


def test_trees_without_permissions_are_listed_exported_and_removed(user: User, debian: str) -> None:
    script = (
        "mkdir -p /odd/none/in /odd/read/in /odd/closed; echo x > /odd/none/in/f;"
        " chmod 0 /odd/none; chmod 555 /odd/read; chmod 500 /odd/closed"
    )
    user.run("enroot", "start", "--rw", debian, "sh", "-ec", script)
    assert "debian" in user.run("enroot", "list").split()
    user.run("enroot", "export", "-o", "odd.sqsh", debian)
    user.run("enroot", "create", "-n", "odd", "odd.sqsh")
    assert (user.data / "odd/odd/read/in").is_dir()
    for name in ("odd", debian):
        user.run("enroot", "remove", "-f", name)
        assert not (user.data / name).exists()
