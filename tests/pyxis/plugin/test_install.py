"""plugstack.conf: where it is, one line of ours and all of the others', and what `status` finds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py import NotFoundError, SettingsError, UnsupportedError
from pyxis_py.plugin import install as module
from pyxis_py.plugin.build import LIBRARY
from pyxis_py.plugin.install import (
    MARK,
    closed_to_users,
    find_plugstack,
    install,
    library_release,
    same_release,
    status,
    uninstall,
)

OTHERS = "# the site's\ninclude /etc/slurm/plugstack.conf.d/*\noptional other.so x=1\n"


class Slurm:
    """Programs that answer as a Slurm would; the real ones are not asked."""

    def __init__(self, folder: Path) -> None:
        self.answers = {
            "scontrol show config": f"PlugStackConfig  = {folder}/opt/slurm/plugstack.conf\n",
            "srun --version": "slurm 24.11.3\n",
            "srun --help": "      --container-image=[USER@]…\n",
        }

    def run(self, *words: str) -> str:
        return self.answers.get(" ".join(words), "")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    slurm = Slurm(tmp_path)
    monkeypatch.setattr(module, "_run", slurm.run)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return slurm


@pytest.fixture
def plugstack(tmp_path: Path, slurm: Slurm) -> Path:
    path = find_plugstack()
    path.parent.mkdir(parents=True)
    path.write_text(OTHERS)
    path.chmod(0o640)
    return path


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that passes for a plugin of the Slurm at hand, where users can read it."""
    monkeypatch.setattr(module, "library_release", lambda path: "24.11.0")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / LIBRARY
        path.write_bytes(b"no library")
        path.chmod(0o755)
        yield path


def test_slurm_says_where_the_file_is(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aws-parallelcluster#3668."""
    assert find_plugstack() == tmp_path / "opt/slurm/plugstack.conf"
    slurm.answers = {}
    monkeypatch.setenv("SLURM_CONF", "/somewhere/slurm.conf")
    assert find_plugstack() == Path("/somewhere/plugstack.conf")


def test_one_line_of_ours_beside_the_others(plugstack: Path, library: Path) -> None:
    install(library, ("container_scope=job",), plugstack, required=True)
    line = install(library, (), plugstack, required=False)
    assert line == f"optional {library}"
    assert plugstack.read_text() == f"{OTHERS}{MARK}\n{line}\n"
    assert plugstack.stat().st_mode & 0o777 == 0o640
    assert uninstall(plugstack)
    assert plugstack.read_text() == OTHERS
    assert not uninstall(plugstack)
    assert [path.name for path in plugstack.parent.iterdir()] == ["plugstack.conf"]


def test_a_line_that_was_written_by_hand_is_replaced(plugstack: Path, library: Path) -> None:
    plugstack.write_text(f"{OTHERS}required /usr/lib/{LIBRARY} execute_entrypoint=1")
    install(library, (), plugstack, required=True)
    assert plugstack.read_text() == f"{OTHERS}{MARK}\nrequired {library}\n"


def test_nothing_is_written_that_would_stop_steps(plugstack: Path, library: Path) -> None:
    with pytest.raises(SettingsError):
        install(library, ("no_such_setting=1",), plugstack, required=True)
    with pytest.raises(NotFoundError, match="No such library"):
        install(library.with_name("missing.so"), (), plugstack, required=True)
    assert plugstack.read_text() == OTHERS


@pytest.mark.parametrize(
    ("release", "said"), [("", "is no plugin of Slurm"), ("22.05.8", "for Slurm 22.05.8, this is")]
)
def test_a_library_that_slurm_cannot_load_is_not_installed(
    plugstack: Path, library: Path, monkeypatch: pytest.MonkeyPatch, release: str, said: str
) -> None:
    monkeypatch.setattr(module, "library_release", lambda path: release)
    with pytest.raises(UnsupportedError, match=said):
        install(library, (), plugstack, required=True)
    assert plugstack.read_text() == OTHERS


def test_a_library_that_users_cannot_read_is_not_installed(plugstack: Path, library: Path) -> None:
    """As in root's home directory."""
    library.parent.chmod(0o700)
    with pytest.raises(UnsupportedError, match=f"{library.parent} has the mode 0700"):
        install(library, (), plugstack, required=True)
    assert plugstack.read_text() == OTHERS


def test_a_package_that_users_cannot_read_is_a_fault(
    plugstack: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = library.parent / "bin/python3"
    python.parent.mkdir()
    python.symlink_to("/usr/bin/python3")
    monkeypatch.setattr(module, "interpreter", lambda: str(python))
    monkeypatch.setattr(module, "PACKAGES", library.parent)
    library.write_bytes(f"\0{library.parent}/pyxis_py/keeper.py\0".encode())
    install(library, (), plugstack, required=True)
    assert status(plugstack).faults == ()
    python.parent.chmod(0o700)
    (fault,) = status(plugstack).faults
    assert f"Users cannot reach {python}: {python.parent} has the mode 0700" in fault


def test_what_is_closed_to_users(library: Path) -> None:
    link = library.with_name("link")
    link.symlink_to(library)
    assert closed_to_users(link) is None
    assert closed_to_users(library.with_name("missing")) is None
    library.parent.chmod(0o750)  # a group's, that of the users
    assert closed_to_users(link) is None
    library.chmod(0o700)
    assert closed_to_users(link) == link


def test_a_link_stays_one(plugstack: Path, library: Path) -> None:
    place = plugstack.rename(plugstack.with_name("real.conf"))
    plugstack.symlink_to(place)
    install(library, (), plugstack, required=True)
    assert plugstack.is_symlink()
    assert str(library) in place.read_text()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("24.11.3", "24.11.0", True), ("24.11.3", "24.05.3", False), ("22.05.8", "23.05.8", False)],
)
def test_releases_that_take_each_others_plugins(one: str, other: str, same: bool) -> None:
    assert same_release(one, other) is same


def test_status_says_what_is_wrong(
    plugstack: Path, library: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyxis#25, #35, #84, #95, #150."""
    assert "pyxis plugin install" in status(plugstack).faults[0]
    install(library, (), plugstack, required=True)
    monkeypatch.setattr(module, "library_release", lambda path: "22.05.8")
    found = status(plugstack)
    assert (found.built_for, found.slurm, len(found.faults)) == ("22.05.8", "24.11.3", 1)
    assert "was built for Slurm 22.05.8, this is 24.11.3" in found.faults[0]
    monkeypatch.setattr(module, "library_release", lambda path: "24.11.0")
    assert status(plugstack).faults == ()
    slurm.answers["srun --help"] = ""
    assert "does not show the flags" in status(plugstack).faults[0]
    library.unlink()
    assert "is not there" in status(plugstack).faults[0]


def test_status_says_which_setting_is_wrong(plugstack: Path, library: Path) -> None:
    plugstack.write_text(f"required {library} container_scope=jobs\n")
    assert "container_scope: invalid value 'jobs'" in status(plugstack).faults[0]


def test_a_file_that_is_no_plugin_has_no_release(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_bytes(b"no library")
    assert library_release(tmp_path / LIBRARY) == ""
