"""Bundles: programs made out of images."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from enroot_py.operations.bundle import runner
from enroot_py.operations.bundle.header import SIZE, make_header
from enroot_py.operations.bundle.write import PACKAGE, bundled_modules
from tests.hooks.sandbox import Sandbox, sandbox_in


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path / "sandbox") as made:
        yield made


def make_bundle(sandbox: Sandbox, *options: str) -> Path:
    """Make a bundle of the sandbox's container, in a folder that everybody can enter."""
    image, program = sandbox.folder / "box.sqsh", sandbox.folder / "box.run"
    (sandbox.rootfs / "etc/rc").write_text('if [ $# -gt 0 ]; then exec "$@"; fi\necho alone\n')
    if not (sandbox.rootfs / "etc/link").is_symlink():
        (sandbox.rootfs / "etc/link").symlink_to("rc")
    if not (sandbox.rootfs / "bin/busybox2").exists():
        (sandbox.rootfs / "bin/busybox2").hardlink_to(sandbox.rootfs / "bin/busybox")
    for command in (
        ("enroot", "export", "-f", "-o", str(image), "box"),
        ("enroot", "bundle", "-f", "-o", str(program), *options, str(image)),
    ):
        done = sandbox.call(*command)
        assert done.returncode == 0, done.stderr
    return program


def run(
    program: Path, *words: str, cwd: Path, home: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a bundle as somebody without this package would: system Python, nothing else."""
    return subprocess.run(
        [str(program), *words],
        cwd=cwd, env={"PATH": "/usr/bin:/bin", "HOME": str(home or cwd), **environ},
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_the_header_fits_and_names_the_offsets() -> None:
    header = make_header(runner_size=1234, manifest_size=567)
    assert len(header) == SIZE
    assert header.startswith(b"#!/bin/sh\n")
    assert b"file.read(1234)" in header
    assert b"file.read(567)" in header
    assert b"%d" % (SIZE + 1234 + 567) in header


@pytest.mark.parametrize(
    ("words", "expected", "command"),
    [
        (["a", "-r"], {}, ["a", "-r"]),
        (["-r", "-w", "--", "-x"], {"root": True, "writable": True}, ["-x"]),
        (["-e", "A=1", "--env=B=2"], {"environ": ["A=1", "B=2"]}, []),
        (
            ["-m", "/a:/b", "--rc", "f", "-c", "g"],
            {"mounts": ["/a:/b"], "rc": "f", "conf": "g"},
            [],
        ),
        (["--conf=g", "-"], {"conf": "g"}, ["-"]),
    ],
)
def test_options(words: list[str], expected: dict[str, object], command: list[str]) -> None:
    options, rest = runner.parse(words)
    assert rest == command
    assert options == {"environ": [], "mounts": [], **expected}


@pytest.mark.parametrize("words", [["--nope"], ["-e"], ["--env="], ["-e=A"], ["-rw"], ["--pid"]])
def test_wrong_options(words: list[str]) -> None:
    with pytest.raises(runner.UsageError):
        runner.parse(words)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "..", "", "."])
def test_names_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(runner.BundleError):
        runner.parent_folder(str(tmp_path), name)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    rootfs, outside = tmp_path / "rootfs", tmp_path / "outside"
    rootfs.mkdir()
    outside.mkdir()
    (rootfs / "a").symlink_to(outside)
    with pytest.raises(OSError, match="Not a directory"):
        runner.place(tarfile.TarFile(tmp_path / "t", "w"), tarfile.TarInfo("a/b"), str(rootfs), [])
    assert list(outside.iterdir()) == []


def test_removal_copes_with_closed_folders(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").touch()
    (folder / "a/link").symlink_to("/")
    (folder / "a/b").chmod(0o500)
    (folder / "a").chmod(0)
    runner.remove(str(folder))
    assert not folder.exists()
    assert Path("/").exists()


NOT_CARRIED = {
    "enroot_py.operations.dry_run",  # no option of a bundle
    "enroot_py.operations.extraction",  # of images; a bundle has unpacked its own
    "enroot_py.layers.scan",  # enroot-mksquashovlfs, which is not among the programs of a bundle
    "enroot_py.squashfs.options",
    "enroot_py.squashfs.writer",
}


def test_what_is_carried_finds_what_it_imports() -> None:
    names = {_module(path): path for path in bundled_modules()}
    everything = {_module(path) for path in PACKAGE.rglob("*.py")}
    wanted = set()
    for path in names.values():
        for node in _imports(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            else:
                wanted |= {
                    str(node.module),
                    *(f"{node.module}.{alias.name}" for alias in node.names),
                }
    assert wanted & everything - names.keys() == NOT_CARRIED


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Every import that may be executed: not those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        checking = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        if not checking:
            yield from _imports(node)
        elif isinstance(node, ast.If):
            for other in node.orelse:
                yield from _imports(ast.Module([other], []))


@pytest.mark.kernel
class TestRuns:
    def test_elsewhere_with_a_read_only_home(self, sandbox: Sandbox, tmp_path: Path) -> None:
        program = make_bundle(sandbox, "-d", "a box")
        home, cwd, temp = tmp_path / "home", tmp_path / "cwd", tmp_path / "temp"
        for folder in (home, cwd, temp):
            folder.mkdir()
        home.chmod(0o500)
        environ = {"home": home, "cwd": cwd, "TMPDIR": str(temp), "XDG_RUNTIME_DIR": str(temp)}
        done = run(program, "-e", "A=b c", "sh", "-c", 'echo "$A"; exit 7', **environ)  # type: ignore[arg-type]
        assert (done.stdout, done.returncode) == ("b c\n", 7), done.stderr
        assert run(program, **environ).stdout == "alone\n"  # type: ignore[arg-type]
        assert run(program, "-r", "id", "-u", **environ).stdout == "0\n"  # type: ignore[arg-type]
        written = run(program, "-w", "sh", "-c", "echo x > /etc/x; cat /etc/x", **environ)  # type: ignore[arg-type]
        assert written.stdout == "x\n"
        mounted = run(program, "-m", f"{cwd}:/mnt", "touch", "/mnt/seen", **environ)  # type: ignore[arg-type]
        assert mounted.returncode == 0
        assert os.listdir(cwd) == ["seen"]
        assert list(home.iterdir()) == []
        assert [path for path in temp.iterdir() if path.name.startswith("bundle-")] == []

    def test_kept_and_extracted(self, sandbox: Sandbox, tmp_path: Path) -> None:
        program = make_bundle(sandbox, "-t", "kept")
        environ = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        assert run(program, "-x", cwd=tmp_path, **environ).returncode == 0
        kept = tmp_path / "kept"
        assert os.readlink(kept / "etc/link") == "rc"
        assert (kept / "bin/busybox").stat().st_ino == (kept / "bin/busybox2").stat().st_ino
        again = run(program, "-k", "true", cwd=tmp_path, **environ)
        assert (again.returncode, "already exists" in again.stderr) == (1, True)
        runner.remove(str(kept))
        assert run(program, "-k", "cat", "/etc/rc", cwd=tmp_path, **environ).returncode == 0
        assert kept.is_dir()
        runner.remove(str(kept))
        done = run(program, "-x", "elsewhere", cwd=tmp_path, **environ)
        assert (done.returncode, f"unpacks to {kept}" in done.stderr) == (1, True)
        done = run(program, "-k", "true", cwd=Path("/proc"), **environ)
        assert (done.returncode, "Cannot make /proc/kept" in done.stderr) == (1, True)

    def test_one_changed_byte_is_refused(self, sandbox: Sandbox, tmp_path: Path) -> None:
        program = make_bundle(sandbox, "-c")
        whole = program.read_bytes()
        assert run(program, "true", cwd=tmp_path, TMPDIR=str(tmp_path)).returncode == 0
        runner_at, payload_at = SIZE + 100, len(whole) // 2
        # In the shell's comment, in the runner, in the archive, in the last byte; and cut short.
        for at in (30, runner_at, payload_at, len(whole) - 1):
            changed = bytearray(whole)
            changed[at] ^= 1
            program.write_bytes(changed)
            done = run(program, "true", cwd=tmp_path, TMPDIR=str(tmp_path))
            assert (done.returncode, "Checksum" in done.stderr) == (1, True), at
        program.write_bytes(whole[:-1])
        assert run(program, "true", cwd=tmp_path, TMPDIR=str(tmp_path)).returncode == 1

    def test_a_damaged_archive_is_refused_without_a_checksum_too(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        program = make_bundle(sandbox)
        changed = bytearray(program.read_bytes())
        changed[len(changed) // 2] ^= 0xFF
        program.write_bytes(changed)
        done = run(program, "true", cwd=tmp_path, TMPDIR=str(tmp_path))
        assert (done.returncode, done.stderr[:7]) == (1, "[ERROR]")
        assert [path for path in tmp_path.iterdir() if path.name.startswith("bundle-")] == []

    def test_information_and_usage(self, sandbox: Sandbox, tmp_path: Path) -> None:
        program = make_bundle(sandbox, "-c", "-d", "a box of tools")
        shown = run(program, "--info", cwd=tmp_path)
        assert "Description: a box of tools\n" in shown.stdout
        assert "Checksum: sha256" in shown.stdout
        asked = run(program, "--help", cwd=tmp_path)
        assert (asked.returncode, "a box of tools" in asked.stdout) == (0, True)
        wrong = run(program, "--nope", cwd=tmp_path)
        assert (wrong.returncode, "--nope" in wrong.stderr, "Usage" in wrong.stdout) == (
            1,
            True,
            True,
        )
        assert run(program, "-v", cwd=tmp_path).returncode == 0

    def test_without_python_it_says_so(self, sandbox: Sandbox, tmp_path: Path) -> None:
        program = make_bundle(sandbox)
        done = subprocess.run(
            ["/bin/sh", str(program), "true"], env={"PATH": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, "Python 3.8" in done.stderr) == (1, True)

    def test_hooks_and_the_users_own_come_along(self, sandbox: Sandbox, tmp_path: Path) -> None:
        hook = '#!/bin/sh\necho "HOOKED=yes" >> "$ENROOT_ENVIRON"\n'
        sandbox.hook("50-mine.sh", hook)
        environ = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        words = ("sh", "-c", "echo ${HOOKED-no}")
        assert run(make_bundle(sandbox), *words, cwd=tmp_path, **environ).stdout == "no\n"
        program = make_bundle(sandbox, "--all")
        done = run(program, *words, cwd=tmp_path, **environ)
        assert done.stdout == "yes\n", done.stderr

    def test_a_configuration_script(self, sandbox: Sandbox, tmp_path: Path) -> None:
        conf = tmp_path / "own.conf"
        conf.write_text("#ENROOT_ROOTFS_WRITABLE=y\nenviron() {\n    echo FROM_CONF=1\n}\n")
        environ = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        words = ("-c", str(conf), "sh", "-c", "echo $FROM_CONF; touch /new && echo written")
        done = run(make_bundle(sandbox), *words, cwd=tmp_path, **environ)
        assert done.stdout == "1\nwritten\n", done.stderr

    def test_an_existing_file_is_kept(self, sandbox: Sandbox) -> None:
        program = make_bundle(sandbox)
        image = str(sandbox.folder / "box.sqsh")
        done = sandbox.call("enroot", "bundle", "-o", str(program), image)
        assert (done.returncode, "already exists" in done.stderr) == (1, True)


@pytest.mark.root
def test_another_user_runs_it(tmp_path: Path) -> None:
    """Made by root, run by nobody, in a folder of nobody's."""
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        folder.chmod(0o755)
        sandbox = Sandbox(folder / "sandbox")
        for path in (folder / "sandbox", folder):
            path.chmod(0o755)
        program = make_bundle(sandbox, "-c")
        place = folder / "place"
        place.mkdir()
        os.chown(place, 65534, 65534)
        done = subprocess.run(
            [str(program), "id", "-u"], cwd=place, user=65534, group=65534, extra_groups=[],
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TMPDIR": str(place)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.stdout, done.returncode) == ("65534\n", 0), done.stderr
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_this_python_is_not_needed() -> None:
    """The runner imports the standard library alone until the container's own modules are there."""
    code = f"import sys; sys.path.insert(0, {str(Path(runner.__file__).parent)!r}); import runner"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
