"""Case C05: a user id beyond 2**31, no account, no privileges, and awkward temporary folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.operations.importing import Workplace
from tests.operations.starting import open_modes
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore

pytestmark = pytest.mark.root

STRANGER = 4147706236
TREES = {
    "opq": "find srv | sort; cat srv/a/keepname",
    "wh": "find x | sort; cat x/dir",
    "perm": "find ro | sort; ls -d void secret; cat ro/a ro/c ro/sub/b",
    "many": "cat last; echo; ls n | wc -l",
}
SEEN = {
    "opq": "srv srv/a srv/a/keepname srv/a/new srv/b srv/b/new upper",
    "wh": "x x/dir x/file x/file/in now a file",
    "perm": "ro ro/a ro/c ro/sub ro/sub/b secret void 132",
    "many": "139 140",
}
PREPARE = {
    "overlay": """mount -t tmpfs none "$1/over"; mkdir "$1/over/upper" "$1/over/work"
        mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/over/upper,workdir=$1/over/work" none \
            "$1/tmp" """,
    "tmpfs": 'mount -t tmpfs -o nodev,nosuid,noexec none "$1/tmp"',
    "ramfs": 'mount -t ramfs none "$1/tmp"',
    "private folder": 'chmod 700 "$1/tmp"',
}
# $1 is the workplace, $2 the user, $3 the registry; the words behind them run `enroot`.
LIFE = """
chown "$2:$2" "$1/tmp"
run() { setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs "$@"; }
user=$2 registry=$3; shift 3
for name in opq wh perm many; do
    run "$@" import -o "$name.sqsh" "docker://$registry#t/$name:1"
    run "$@" create -n "$name" "$name.sqsh"
    run "$@" export -o "$name.again.sqsh" "$name"
    run "$@" create -n "again-$name" "$name.again.sqsh"
done
for name in opq wh perm many; do
    for box in "$name" "$name.sqsh" "again-$name"; do
        eval "command=\\$$name"
        run "$@" start "$box" sh -c "id -u; id -g; $command; echo"
        run "$@" start --root "$box" sh -c "id -u; id -g; $command; echo"
    done
done
run "$@" remove -f opq wh perm many again-opq again-wh again-perm again-many
"""


@pytest.fixture(scope="module")
def cases(case_images: ImageStore) -> Iterator[FakeRegistry]:
    with FakeRegistry(case_images) as server:
        yield server


@pytest.fixture
def place() -> Iterator[Workplace]:
    """Folders of the stranger, where he can reach them."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        place = Workplace(Path(folder) / "place")
        for name in ("lower", "over"):
            (place.path / name).mkdir()
        for path in (place.path, *place.path.iterdir()):
            os.chown(path, STRANGER, STRANGER)
        yield place
        open_modes(Path(folder))


@pytest.mark.parametrize("kind", PREPARE)
def test_a_whole_life_of_a_user_nobody_knows(
    cases: FakeRegistry, place: Workplace, kind: str
) -> None:
    enroot = str(Path(sys.executable).parent / "enroot")
    done = subprocess.run(
        [
            "unshare", "--mount", "sh", "-ec", PREPARE[kind] + LIFE, "sh",
            str(place.path), str(STRANGER), cases.host, enroot,
        ],
        cwd=place.out, env={**place.environ, **TREES}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [
        f"{uid} {uid} {SEEN[name]}"
        for name in TREES
        for uid in (STRANGER, 0, STRANGER, 0, STRANGER, 0)
    ]
    assert done.stdout.split() == " ".join(expected).split()
    assert os.listdir(place.data) == []
    assert place.leftovers() == []
