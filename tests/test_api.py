"""The public API: lazy, complete, and typed for those who use it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import enroot_py
from enroot_py import errors

SOURCE = Path(enroot_py.__file__)


def test_importing_the_package_loads_one_module() -> None:
    script = (
        "import sys; before = set(sys.modules)\n"
        "import enroot_py\n"
        "print(*sorted(set(sys.modules) - before - {'__future__'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["enroot_py"]


@pytest.mark.parametrize("name", enroot_py.__all__)
def test_every_name_resolves(name: str) -> None:
    value = getattr(enroot_py, name)
    assert value is getattr(enroot_py, name)
    assert getattr(value, "__doc__", None), f"{name} has no docstring"
    assert name in dir(enroot_py)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="nosuch"):
        _ = enroot_py.nosuch  # type: ignore[attr-defined]


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen, origins = {}, {}
    for statement in block.body:
        if not isinstance(statement, ast.ImportFrom):
            name, inner = ast.unparse(statement).split(" = ")
            seen[name] = f"{origins[inner]}:{inner}"
            continue
        for alias in statement.names:
            origins[alias.name] = statement.module
            if alias.asname:
                assert alias.asname == alias.name  # for type checkers only that re-exports
                seen[alias.asname] = statement.module
    assert seen == enroot_py._EXPORTS


def test_every_error_is_exported() -> None:
    names = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EnrootError)
    ]
    assert sorted(names) == sorted(enroot_py._ERRORS)


RIGHT = """
import enroot_py
from enroot_py import Mount, StartSpec, parse_mount

def launch(settings: enroot_py.Settings) -> int:
    mount: Mount = parse_mount("/data:/data:ro")
    spec = StartSpec("work", ("true",), writable=True, mounts=(mount, "/a:/b"), environ=("A=b",))
    path: str = enroot_py.import_image("docker://x", "x.sqsh", settings=settings, force=True)
    rootfs: str = enroot_py.create(path, "work", settings=settings)
    names = [container.name for container in enroot_py.containers(settings=settings)]
    pids: list[int] = [p.pid for c in enroot_py.containers() for p in c.processes]
    try:
        enroot_py.remove(rootfs + names[0])
    except enroot_py.NotFoundError as error:
        print(error.hint, error.exit_code)
    if pids:
        enroot_py.exec(pids[0], ("true",))
    text: str = enroot_py.dry_run(spec)
    with enroot_py.spawn(spec) as container:
        status: int = container.wait()
    enroot_py.start(spec, settings=settings)
"""

WRONG = [
    ("enroot_py.import_image(3)", "arg-type"),
    ("enroot_py.StartSpec()", "call-arg"),
    ("enroot_py.StartSpec('x', command='true')", "arg-type"),
    ("enroot_py.create('x', colour='red')", "call-arg"),
    ("enroot_py.nosuch", "attr-defined"),
    ("x: int = enroot_py.digest('docker://x')", "assignment"),
    ("enroot_py.containers()[0].nosuch", "attr-defined"),
]


def test_users_get_types(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    lines = ["import enroot_py", *(line for line, _ in WRONG)]
    (tmp_path / "wrong.py").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent"]
        + ["--cache-dir", str(tmp_path / "cache"), "--config-file=", "right.py", "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [
        (int(line.split(":")[1]), line.rpartition("[")[2].rstrip("]"))
        for line in done.stdout.splitlines()
        if line.startswith("wrong.py") and ": error: " in line
    ]
    assert found == [(number, code) for number, (_, code) in enumerate(WRONG, 2)], done.stdout
    assert "right.py" not in done.stdout
