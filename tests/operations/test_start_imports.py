"""What a start loads, and that it loads nothing once its files are out of reach."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import write_file
from tests.hooks.sandbox import Sandbox, sandbox_in
from tests.operations.starting import make_image

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = {
    "argparse", "asyncio", "click", "collections", "contextlib", "dataclasses", "enum", "functools",
    "http", "importlib", "inspect", "json", "logging", "pathlib", "re", "requests", "selectors",
    "shutil", "signal", "socket", "ssl", "subprocess", "tarfile", "tempfile", "threading", "typing",
    "urllib", "yaml",
}  # fmt: skip
MOST = 60


def loaded_by(statements: str) -> set[str]:
    """Return the modules that statements load in a fresh, bare interpreter."""
    script = (
        f"import sys; sys.path.append({str(ROOT)!r}); before = set(sys.modules)\n"
        f"{statements}\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


LOADS = {
    "start": """
        import enroot_py.cli.main, enroot_py.cli.launch, enroot_py.operations.start
        import enroot_py.hooks.builtin.shadow, enroot_py.hooks.builtin.cgroups
        import enroot_py.hooks.builtin.localtime, enroot_py.hooks.builtin.devices
    """,
    "exec": "import enroot_py.cli.main, enroot_py.cli.launch, enroot_py.operations.exec",
    "spawned": "import enroot_py.operations.spawned, enroot_py.operations.start",
    "image": "import enroot_py.enter.image, _socket, select",
}


@pytest.mark.parametrize("case", LOADS)
def test_only_light_modules_are_loaded(case: str) -> None:
    loaded = loaded_by(textwrap.dedent(LOADS[case]))
    assert not {name.partition(".")[0] for name in loaded} & FORBIDDEN
    assert len([name for name in loaded if name.startswith("enroot_py")]) <= MOST


def test_an_extraction_that_is_there_needs_no_reader_of_images() -> None:
    # What store.locks and contextlib need is all there is beside.
    light = FORBIDDEN - {"collections", "contextlib", "functools"}
    loaded = loaded_by("import enroot_py.operations.extraction")
    assert not {name.partition(".")[0] for name in loaded} & light
    assert "enroot_py.squashfs.reader" not in loaded


def test_importing_the_package_loads_one_module() -> None:
    assert loaded_by("import enroot_py") == {"enroot_py"} | loaded_by("import __future__")


def test_modules_used_after_the_root_switch_import_at_their_top_only() -> None:
    for name in ("execute", "login", "switch_root"):
        tree = ast.parse((ROOT / f"enroot_py/enter/{name}.py").read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    assert not isinstance(node, ast.Import | ast.ImportFrom), (name, function.name)


TRAP = """\
import sys
from enroot_py.operations import start as module
from enroot_py.cli.main import main

class Trap:
    def find_spec(self, name, path=None, target=None):
        raise AssertionError(f"imported after the root switch: {name}")

def switch(kernel, root_fd, original=module.switch_root):
    original(kernel, root_fd)
    sys.meta_path.insert(0, Trap())

module.switch_root = switch
sys.exit(main())
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path) as sandbox:
        yield sandbox


@pytest.mark.kernel
@pytest.mark.parametrize(
    ("options", "command", "status"),
    [
        ((), ("echo", "fine"), 0),
        (("--root", "--rw", "--pid", "--net", "--ipc"), ("echo", "fine"), 0),
        (("-e", "HOME=/nonexistent"), ("echo", "fine"), 0),
        ((), ("nonexistent",), 127),
        (("--no-shell",), ("nonexistent",), 127),
        (("--no-shell",), ("/bin/script",), 127),
        (("--no-shell",), ("/etc",), 126),
        (("--no-shell",), ("/bin/busybox", "echo", "fine"), 0),
        (("--image",), ("echo", "fine"), 0),
        (("--nologin",), ("echo", "fine"), 0),
    ],
)
def test_nothing_is_imported_after_the_root_switch(
    sandbox: Sandbox, options: tuple[str, ...], command: tuple[str, ...], status: int
) -> None:
    write_file(
        sandbox.rootfs / "etc/login.defs",
        "UMASK 022\nUSERGROUPS_ENAB yes\nULIMIT 1000\nMAIL_CHECK_ENAB yes\nENV_TZ /etc/tz\n",
    )
    write_file(sandbox.rootfs / "bin/script", "#!/no/loader\n", mode=0o755)
    target = "box"
    if "--no-shell" in options:
        (sandbox.rootfs / "bin/sh").unlink()
    if "--nologin" in options:
        write_file(sandbox.rootfs / "etc/nologin", "fine\n")
    if "--image" in options:
        target = str(make_image(sandbox.rootfs, sandbox.folder / "box.sqsh"))
    ours = ("--no-shell", "--image", "--nologin")
    given = [word for word in options if word not in ours]
    done = subprocess.run(
        [sys.executable, "-c", TRAP, "start", *given, target, *command],
        env={**sandbox.environ, "PYTHONPATH": str(ROOT)}, cwd="/", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "imported after" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == status, done.stderr
    assert done.stdout == ("fine\n" if status == 0 else "")
