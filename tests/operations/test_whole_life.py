"""From the registry to a process and back, with nothing of the host's programs but a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.importing import Workplace
from tests.operations.starting import open_modes
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore

pytestmark = pytest.mark.kernel

# $1 is the image in the registry, the words behind it run `enroot`. Only what dash has built in.
LIFE = """
image=$1; shift
if ls 2> /dev/null || mount 2> /dev/null || tar --version 2> /dev/null; then exit 99; fi

"$@" digest "$image" > digest
"$@" import -o i.sqsh "$image"
"$@" info i.sqsh > info
"$@" create -n made i.sqsh
"$@" load -n loaded "$image"
"$@" start made cat /x/dir; echo
"$@" start --rw --root made sh -c 'echo new > /made; id -u'
"$@" start i.sqsh cat /x/file/in; echo

"$@" start made sh -c 'echo > /tmp/up; exec sleep 60' & started=$!
tries=0
until "$@" exec $started test -e /tmp/up 2> /dev/null; do
    tries=$((tries + 1)); [ $tries -lt 600 ]
done
"$@" exec $started cat /made
"$@" list -f > listed
kill $started; wait $started || :

"$@" export -o e.sqsh made
"$@" create -n again e.sqsh
"$@" start again cat /made
"$@" cache list > cached
"$@" remove -f made loaded again
"$@" list
"""


@pytest.fixture(scope="module")
def cases(case_images: ImageStore) -> Iterator[FakeRegistry]:
    with FakeRegistry(case_images) as server:
        yield server


@pytest.fixture
def workplace(place: Workplace) -> Iterator[Workplace]:
    yield place
    open_modes(place.path)


def only_a_shell(folder: Path) -> Path:
    """A folder of programs that holds a shell, and Python under the names it runs as."""
    folder.mkdir()
    shutil.copy("/bin/sh", folder / "sh")
    python = Path(sys.executable)
    for name in {"python3", python.resolve().name}:
        shutil.copy(python.resolve(), folder / name)
    return folder


def check_life(place: Workplace, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n") == ["now a file", "0", "2", "new", "new", ""]
    assert (place.out / "digest").read_text().startswith("sha256:")
    assert "t/wh" in (place.out / "info").read_text()
    assert "sleep 60" in (place.out / "listed").read_text()
    assert "blob" in (place.out / "cached").read_text()
    assert os.listdir(place.data) == []
    assert place.leftovers() == []


def test_a_path_of_nothing_but_a_shell_is_enough(cases: FakeRegistry, workplace: Workplace) -> None:
    programs = workplace.path / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    uri = f"docker://{cases.host}#t/wh:1"
    done = subprocess.run(
        ["/bin/sh", "-ec", LIFE, "sh", uri, *workplace.command()],
        cwd=workplace.out, env={**workplace.environ, "PATH": str(programs)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    check_life(workplace, done)


def test_a_host_of_nothing_but_a_shell_is_enough(cases: FakeRegistry, workplace: Workplace) -> None:
    """Nothing is found by an absolute name either: the folders of programs are covered."""
    programs = only_a_shell(workplace.path / "programs")
    folders = [
        folder
        for folder in ("/usr/local/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", "/bin")
        if os.path.isdir(folder) and not os.path.islink(folder)
    ]
    cover = "".join(f"mount --bind {programs} {folder}\n" for folder in (*folders, "/usr/bin"))
    uri = f"docker://{cases.host}#t/wh:1"
    done = subprocess.run(
        [
            "unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", cover + LIFE, "sh",
            uri, *workplace.command(),
        ],
        cwd=workplace.out, env=workplace.environ, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    check_life(workplace, done)
