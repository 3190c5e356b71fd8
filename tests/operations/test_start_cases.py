"""From a registry to a running command: images without a shell, command words, variables."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.operations.importing import Workplace
from tests.operations.starting import open_modes
from tests.registry.fake_registry import FakeRegistry
from tests.registry.images import ImageStore, busybox_layer, directory, file

pytestmark = pytest.mark.kernel

ENTRYPOINT = '#!/bin/sh\necho "ep:$#:[$1][$2]"\nexec "$@"\n'
VARIABLES = {
    "A": "one two",
    "Q": 'it\'s "quoted" $HOME `id`',
    "QUOTED": '"whole"',
    "HOST": "${HOME}/x${TERM}",
    "NL": "l1\nl2=3\n#x",
    "BACK": "a\\012b\\",
    "EMPTY": "",
    "LD_PRELOAD": "/evil.so",
}
CONFIG = {
    "Env": [f"{name}={value}" for name, value in VARIABLES.items()],
    "WorkingDir": "/job/new dir",
    "Entrypoint": ["/ep.sh"],
    "Cmd": ["/bin/echo", "a b", "c"],
    "User": "1234:1234",
    "Volumes": {"/data": {}, "/../../../etc": {}, "/link": {}},
    "Labels": {"desc": "line1\nline2\n# x", "k=v": "w"},
}


@pytest.fixture(scope="module")
def store() -> ImageStore:
    store = ImageStore()
    binary = file("echo", Path("/bin/busybox").read_bytes(), 0o755)
    store.image("t/bare", "1", [[binary]], config={"Entrypoint": ["/echo"], "Cmd": ["from", "cmd"]})
    store.image("t/bare", "2", [[binary]], config={"Cmd": ["/echo", "only", "cmd"]})
    store.image("t/bare", "3", [[binary]], config={"Cmd": ["/nonexistent"]})
    store.image(
        "t/bare", "4", [[binary]], config={"Cmd": ["echo"], "WorkingDir": "/proc/self/fd/7"}
    )
    script = file("ep.sh", ENTRYPOINT, 0o755)
    store.image("t/cfg", "1", [busybox_layer(), [directory("job"), script]], config=CONFIG)
    return store


class Case(Workplace):
    """A user with what he imported, as an image or as a container of the same name."""

    def bring(self, registry: FakeRegistry, reference: str, name: str) -> str:
        image = str(self.out / f"{name}.sqsh")
        done = self.run("import", "-o", image, f"docker://{registry.host}#{reference}")
        assert done.returncode == 0, done.stderr
        done = self.run("create", "-n", name, image)
        assert done.returncode == 0, done.stderr
        return image

    def output(self, *words: str, **environ: str) -> str:
        done = self.run("start", *words, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    workplace = Case(tmp_path)
    yield workplace
    workplace.close()
    open_modes(tmp_path)


@pytest.fixture
def served(store: ImageStore) -> Iterator[FakeRegistry]:
    with FakeRegistry(store) as server:
        yield server


@pytest.mark.parametrize("options", [(), ("--rw",), ("--root",)])
@pytest.mark.parametrize("kind", ["container", "image"])
def test_an_image_without_shell_runs_its_entrypoint(
    case: Case, served: FakeRegistry, kind: str, options: tuple[str, ...]
) -> None:
    images = {name: case.bring(served, f"t/bare:{name[1]}", name) for name in ("b1", "b2")}
    targets = images if kind == "image" else {name: name for name in images}
    assert case.output(*options, targets["b1"]) == "from cmd\n"
    assert case.output(*options, targets["b1"], "x", "y") == "x y\n"
    assert case.output(*options, targets["b2"]) == "only cmd\n"
    assert case.output(*options, targets["b2"], "/echo", "hi") == "hi\n"


def test_what_cannot_run_without_a_shell_says_so(case: Case, served: FakeRegistry) -> None:
    case.bring(served, "t/bare:3", "b3")
    done = case.run("start", "b3")
    assert done.returncode == 127
    assert "/nonexistent" in done.stderr
    done = case.run("start", "b3", "missing")
    assert done.returncode == 127
    assert "missing" in done.stderr
    (case.data / "b3/etc/rc").write_text("exec $(id)\n")
    done = case.run("start", "b3")
    assert done.returncode == 127
    assert "no /bin/sh" in done.stderr


def test_a_working_directory_that_is_a_descriptor_leads_nowhere(
    case: Case, served: FakeRegistry
) -> None:
    """CVE-2024-21626: nothing of the host is open when the container chooses where to be."""
    case.bring(served, "t/bare:4", "b4")
    done = case.run("start", "-e", "PATH=/", "b4")
    assert done.returncode == 127
    assert "/proc/self/fd/7" in done.stderr


def test_the_entrypoint_gets_the_words(case: Case, served: FakeRegistry) -> None:
    case.bring(served, "t/cfg:1", "cfg")
    assert case.output("cfg") == "ep:3:[/bin/echo][a b]\na b c\n"
    assert case.output("cfg", "echo", "") == "ep:2:[echo][]\n\n"
    assert case.output("cfg", "echo", "a\nb", "*") == "ep:3:[echo][a\nb]\na\nb *\n"


def test_directory_user_and_variables_are_the_images(case: Case, served: FakeRegistry) -> None:
    image = case.bring(served, "t/cfg:1", "cfg")
    for target in ("cfg", image):
        output = case.output(target, "sh", "-c", "pwd; id -u; cat /proc/self/environ")
        lines = output.split("\n", 3)
        assert lines[1:3] == ["/job/new dir", str(os.getuid())]
        variables = dict(item.split("=", 1) for item in lines[3].split("\0") if "=" in item)
        for name, value in VARIABLES.items():
            assert variables[name] == value


def test_a_variable_on_the_command_line_wins(case: Case, served: FakeRegistry) -> None:
    case.bring(served, "t/cfg:1", "cfg")
    output = case.output("-e", "A=mine", "-e", "Q", "cfg", "sh", "-c", 'echo "$A:$Q"', Q="host's")
    assert output.splitlines()[1] == "mine:host's"


def test_hooks_do_not_see_the_images_variables(case: Case, served: FakeRegistry) -> None:
    case.bring(served, "t/cfg:1", "cfg")
    hook = case.path / "config/hooks.d/50-env.sh"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\nenv > {case.path}/seen\n")
    hook.chmod(0o755)
    case.output("cfg", "true")
    seen = (case.path / "seen").read_text()
    assert "LD_PRELOAD" not in seen
    assert "one two" not in seen


def test_volumes_are_the_rootfs_own_folders(case: Case, served: FakeRegistry) -> None:
    case.bring(served, "t/cfg:1", "cfg")
    (case.data / "cfg/link").symlink_to("/etc")
    script = "echo x > /data/x && cat /data/x; cat /etc/os-release; ls /link/hosts"
    output = case.output("cfg", "sh", "-c", script)
    assert output.splitlines()[1:] == ["x", "NAME=handmade", "ID=handmade", "/link/hosts"]


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("exit 200", 200), ("kill -TERM $$", -15)]
)
def test_the_entrypoints_end_is_passed_through(
    case: Case, served: FakeRegistry, script: str, status: int
) -> None:
    case.bring(served, "t/cfg:1", "cfg")
    assert case.run("start", "cfg", "sh", "-c", script).returncode == status
    shell = subprocess.run(
        ["sh", "-c", '"$@"; echo $?', "sh", *case.command("start", "cfg", "sh", "-c", script)],
        env=case.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    expected = status if status >= 0 else 128 + signal.SIGTERM
    assert shell.stdout.splitlines()[-1] == str(expected)
