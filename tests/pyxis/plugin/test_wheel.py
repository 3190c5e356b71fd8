"""The plugin is built out of what pip has installed, where there is no source tree."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from pyxis_py.plugin.build import LIBRARY
from pyxis_py.plugin.install import library_release
from tests.pyxis.plugin.wheel import TREE, build_wheel, install_wheel

pytestmark = pytest.mark.kernel

_HEADER = Path("/usr/include/slurm/slurm_version.h")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_wheel(wheel, tmp_path_factory.mktemp("installed") / "venv")


def plugin(programs: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `pyxis plugin` in a folder."""
    return subprocess.run(
        [str(programs / "pyxis"), "plugin", *words],
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_wheel_has_every_source(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        there = {
            name: archive.read(name)
            for name in archive.namelist()
            if name.startswith("pyxis_py/spank_shim/")
        }
    sources = [*(TREE / "spank_shim").glob("*.c"), *(TREE / "spank_shim").glob("*.h")]
    assert len(sources) > 15
    for path in sources:
        assert there[f"pyxis_py/spank_shim/{path.name}"] == path.read_bytes()


def test_the_plugin_is_for_what_it_was_built_with(programs: Path, tmp_path: Path) -> None:
    done = plugin(programs, tmp_path, "build")
    library = tmp_path / LIBRARY
    assert (done.returncode, done.stdout) == (0, f"{library}\n"), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [LIBRARY]
    assert library.stat().st_mode & 0o777 == 0o755
    found = re.search(r"SLURM_VERSION_NUMBER 0x(..)(..)(..)", _HEADER.read_text())
    assert found is not None
    year, month, micro = (int(number, 16) for number in found.groups())
    assert library_release(library) == f"{year:02}.{month:02}.{micro}"
    data = library.read_bytes()
    (site_packages,) = programs.parent.glob("lib/python*/site-packages")
    assert f"{site_packages}/pyxis_py/keeper.py\0".encode() in data
    assert f"\0{programs}/python".encode() in data
    assert f"{TREE}/pyxis_py".encode() not in data


@pytest.mark.parametrize("output", ["folder", "folder/other.so", "./other.so"])
def test_where_the_library_goes(programs: Path, tmp_path: Path, output: str) -> None:
    (tmp_path / "folder").mkdir()
    done = plugin(programs, tmp_path, "build", "--output", output)
    library = tmp_path / (output if output.endswith(".so") else f"{output}/{LIBRARY}")
    assert (done.returncode, done.stdout) == (0, f"{library}\n"), done.stderr
    assert library.is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--output", "/no/such/x.so"), "No such folder: /no/such"),
        (("--cc", "false"), "cannot be compiled"),
        (("--output", "/proc/x.so"), "Cannot write /proc/x.so"),
        (("--cc", "/no/such/cc"), "Cannot execute the C compiler /no/such/cc"),
        (("--cc", "cc -include no_such_header.h"), "no_such_header.h"),
        (("--cc", "cc -isystem EMPTY -DPYXIS_PYTHON"), "redefined"),
        (("--include", "EMPTY", "surplus"), "surplus"),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_nothing(
    programs: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = plugin(programs, tmp_path, "build", *words)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_headers_are_taken_from_a_folder_that_is_named(programs: Path, tmp_path: Path) -> None:
    """Of a Slurm that is installed elsewhere."""
    folder = tmp_path / "include/slurm"
    folder.mkdir(parents=True)
    for path in _HEADER.parent.glob("*.h"):
        text = path.read_text()
        number = "#define SLURM_VERSION_NUMBER 0x180b05"
        (folder / path.name).write_text(re.sub("#define SLURM_VERSION_NUMBER .*", number, text))
    done = plugin(programs, tmp_path, "build", "-I", str(folder.parent))
    assert done.returncode == 0, done.stderr
    assert library_release(tmp_path / LIBRARY) == "24.11.5"


def test_an_ordinary_user_is_told_who_can_install(programs: Path, tmp_path: Path) -> None:
    plugstack = tmp_path / "plugstack.conf"
    done = plugin(programs, tmp_path, "install", "--plugstack", str(plugstack))
    assert done.returncode != 0
    assert "/usr/local/lib/slurm" in done.stderr
    assert "administrator" in done.stderr or "owner" in done.stderr
    assert "Traceback" not in done.stderr
    assert not plugstack.exists()
