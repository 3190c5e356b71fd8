"""The keeper by itself: what it answers, when it lets go, and what root has it do."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enroot_py import EnrootError, load_settings
from pyxis_py.job import JobFacts
from pyxis_py.options import OPTIONS
from pyxis_py.protocol.keeper_process import KeeperProcess, ask, await_answer, encode_request
from pyxis_py.protocol.records import Answer, decode_answer
from pyxis_py.step import container
from pyxis_py.step.keeper import main
from pyxis_py.step.pause import pause_program, waiting_program
from pyxis_py.step.plan import DIRECT, FILE, StepPlan
from tests.slurm.images import make_image

NUMBERS = {option.name: number for number, option in enumerate(OPTIONS)}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; pytest's own are root's alone."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def facts(environ: dict[str, str], **more: object) -> JobFacts:
    given = {"PATH": os.environ["PATH"], **environ}
    return JobFacts(os.getuid(), os.getgid(), 12, 3, environ=given, **more)  # type: ignore[arg-type]


def start(
    folder: Path,
    *options: tuple[str, str],
    words: tuple[str, ...] = (),
    extra: tuple[tuple[str, str], ...] = (),
    serve: Callable[[str], int] | None = None,
) -> tuple[KeeperProcess, socket.socket, Answer]:
    folder.chmod(0o700)
    environ = {"XDG_RUNTIME_DIR": str(folder), "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    given = [(NUMBERS[name], argument) for name, argument in options]
    ours, keepers = socket.socketpair()
    keeper = KeeperProcess(
        "start",
        encode_request(facts(environ, cwd=str(folder)), words=words, options=given, extra=extra),
        line_fd=keepers.fileno(),
        serve=serve,
    )
    keepers.close()
    await_answer(ours.fileno(), print)  # news come first where it takes long
    return keeper, ours, decode_answer(keeper.read())


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or since
        return False


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 100
    while exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not exists(pid)


@pytest.mark.kernel
def test_the_pause_program_stops_and_then_waits() -> None:
    fd = os.memfd_create("pause", 0)
    os.write(fd, pause_program(os.uname().machine))
    pid = os.posix_spawn(f"/proc/self/fd/{fd}", ["pause"], {})
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.1)
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("make", [pause_program, waiting_program])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "ppc64le"])
def test_the_programs_are_executables_of_their_machine(
    machine: str, make: Callable[[str], bytes]
) -> None:
    data = make(machine)
    numbers = {"x86_64": 62, "aarch64": 183, "ppc64le": 21}
    assert data[:6] == b"\x7fELF\x02\x01"
    assert int.from_bytes(data[18:20], "little") == numbers[machine]
    # The one segment is the whole file, and the entry lies behind the headers.
    assert int.from_bytes(data[96:104], "little") == len(data)
    assert int.from_bytes(data[24:32], "little") - int.from_bytes(data[80:88], "little") == 120


@pytest.mark.kernel
@pytest.mark.parametrize("how", ["a byte", "the end of file"])
def test_a_container_is_kept_until_the_tasks_have_joined(tmp_path: Path, how: str) -> None:
    image = make_image(tmp_path / "image.sqsh")
    keeper, line, answer = start(tmp_path, ("container-image", str(image)))
    assert answer.status == "ok", answer
    assert answer.join[:1] == ("user",)
    assert "mnt" in answer.join
    assert (answer.cwd, answer.seccomp, answer.state) == ("/srv", True, "")
    assert answer.edits is not None
    assert dict(answer.edits.env)["IN_IMAGE"] == "yes"
    time.sleep(0.2)
    assert exists(answer.pid)
    if how == "a byte":
        line.send(b"\0")
    else:
        line.close()
    keeper.wait()
    assert ends(answer.pid)


@pytest.mark.kernel
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_container_does_not_outlive_a_keeper_that_is_killed(tmp_path: Path, number: int) -> None:
    image = str(make_image(tmp_path / "image.sqsh"))
    # In this session, as under a launcher: of what stops in one of its own the kernel takes care.
    keeper, _line, answer = start(tmp_path, ("container-image", image), serve=main)
    assert exists(answer.pid)
    os.kill(keeper.pid, number)
    keeper.wait()
    assert ends(answer.pid)


@pytest.mark.kernel
def test_a_terminal_that_hangs_up_does_not_end_a_keeper(tmp_path: Path) -> None:
    keeper, line, answer = start(
        tmp_path, ("container-image", str(make_image(tmp_path / "image.sqsh")))
    )
    os.kill(keeper.pid, signal.SIGHUP)
    line.send(b"\0")
    assert os.waitpid(keeper.pid, 0)[1] == 0
    assert ends(answer.pid)


def await_program(pid: int, name: bytes) -> None:
    deadline = time.monotonic() + 100
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(name):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.kernel
def test_a_keeper_lingers_in_a_page_of_memory_until_the_tasks_have_ended(tmp_path: Path) -> None:
    image = make_image(tmp_path / "image.sqsh")
    keeper, line, answer = start(
        tmp_path, ("container-image", str(image)), extra=(("linger", "1"),)
    )
    line.send(b"\0")
    await_program(keeper.pid, b"pyxis-keeper")
    assert ends(answer.pid)
    # A signal to the whole step is for the tasks.
    os.kill(keeper.pid, signal.SIGTERM)
    os.kill(keeper.pid, signal.SIGUSR1)
    time.sleep(0.1)
    assert exists(keeper.pid)
    memory = Path(f"/proc/{keeper.pid}/statm").read_text().split()
    assert int(memory[1]) * os.sysconf("SC_PAGE_SIZE") < 1 << 18
    descriptors = Path(f"/proc/{keeper.pid}/fd")
    assert sorted(os.listdir(descriptors)) == ["3", "5"]
    assert os.readlink(descriptors / "3").startswith("mnt:")
    line.close()
    keeper.wait()


@pytest.mark.kernel
def test_an_image_that_nothing_serves_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = make_image(tmp_path / "image.sqsh")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keeper, line, answer = start(tmp_path, ("container-image", str(image)))
    assert answer.status == "ok", answer
    assert Path(f"/proc/{answer.pid}/root/bin/busybox").is_file()
    line.close()
    keeper.wait()


@pytest.mark.kernel
def test_what_nobody_has_foreseen_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    image = make_image(tmp_path / "image.sqsh")

    def fail(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(container, "start", fail)
    plan = StepPlan(
        DIRECT, "c", temporary=True, pid=0, origin=FILE, image=str(image), load=False, mounts=(),
        keep_environ=(), workdir="", save="", entrypoint=False, entrypoint_log=False, unshare=(),
        gpus="", devices=(), print_digest=False, import_timeout=0,
    )  # fmt: skip
    with pytest.raises(EnrootError, match="exit code 1"):
        container.start_container(
            plan, str(image), load_settings(), folder=str(tmp_path), environ=()
        )
    assert "a fault of ours" in capfd.readouterr().err


@pytest.mark.kernel
def test_a_keeper_that_is_killed_leaves_an_incomplete_answer(tmp_path: Path) -> None:
    keeper = KeeperProcess("start", b"", line_fd=0, serve=lambda verb: signal.pause() or 0)
    os.kill(keeper.pid, signal.SIGKILL)
    keeper.wait()
    with pytest.raises(EnrootError, match="without an answer"):
        keeper.read()


@pytest.mark.parametrize(
    ("options", "words", "match"),
    [
        ([("container-image", "/nosuch")], (), "/nosuch"),
        ([("container-image", "a"), ("container-unshare", "x")], (), "'x'"),
        ([("container-image", "/a")], ("nosuch=1",), "nosuch"),
        ([("container-name", "n")], (), "no such container"),
        ([("environment", "nosuch")], (), "nosuch.toml"),
    ],
)
def test_what_is_wrong_is_an_answer(
    tmp_path: Path, options: list[tuple[str, str]], words: tuple[str, ...], match: str
) -> None:
    keeper, line, answer = start(tmp_path, *options, words=words)
    line.close()
    keeper.wait()
    assert answer.status == "error"
    assert match in answer.errors[0]
    assert not any("Traceback" in line for line in answer.errors)


@pytest.mark.parametrize(
    ("extra", "said"), [((("joins", "1"),), ["--container-writable is ignored"]), ((), [])]
)
def test_no_flag_is_no_container(
    tmp_path: Path, extra: tuple[tuple[str, str], ...], said: list[str]
) -> None:
    """The plugin, which counts joins itself, has said so at srun."""
    keeper, line, answer = start(tmp_path, ("container-writable", ""), extra=extra)
    keeper.wait()
    assert answer.status == "none"
    assert [text.partition(":")[0] for text in answer.logs] == said
    line.close()


@pytest.mark.parametrize("state", ["", "nonsense", "(1,)", "__import__('os')"])
def test_a_state_that_is_none_is_refused(state: str) -> None:
    request = encode_request(facts({}), extra=(("state", state), ("started", "1")))
    with pytest.raises(EnrootError, match="without an answer"):
        ask("finish", request, tell=print)


@pytest.mark.root
def test_root_makes_the_folders_of_a_node_and_a_user(tmp_path: Path) -> None:
    base = tmp_path / "pyxis"
    words = (f"runtime_path={base}",)
    assert ask("init", encode_request(facts({}), words=words), tell=print).status == "ok"
    assert base.stat().st_mode & 0o777 == 0o755
    job = facts({})._replace(uid=4711, gid=4712)
    for _ in range(2):
        assert ask("prepare", encode_request(job, words=words), tell=print).status == "ok"
    status = (base / "4711").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (4711, 4712, 0o700)


@pytest.mark.root
def test_what_a_job_left_goes_as_its_user(open_folder: Path) -> None:
    tmp_path = open_folder
    nobody = pwd.getpwnam("nobody")
    base, home = tmp_path / "pyxis", tmp_path / "home"
    data = home / ".local/share/enroot"
    for name in ("pyxis_12_named", "pyxis_12.0", "pyxis_12.7", "pyxis_120.0", "pyxis_other"):
        (data / name / "etc").mkdir(parents=True)
    for name in ("12.0.aa", "13.0.bb"):
        (base / "65534" / name).mkdir(parents=True)
    precious = tmp_path / "precious"
    precious.mkdir()
    (base / "65534" / "12.0.link").symlink_to(precious)
    subprocess.run(["chown", "-R", "65534:65534", str(home), str(base / "65534")], check=True)
    job = facts({})._replace(uid=nobody.pw_uid, gid=nobody.pw_gid)
    words = (f"runtime_path={base}", "container_scope=job")
    # The settings come from the machine: this user's home is another one for the test.
    code = (
        "import os, pwd, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "entry = pwd.getpwuid(65534)\n"
        f"real = pwd.struct_passwd((*entry[:5], {str(home)!r}, entry[6]))\n"
        "pwd.getpwuid = lambda uid: real\n"
        "from pyxis_py.step.verbs import end_job\n"
        "from pyxis_py.protocol.request import Request\n"
        "print(end_job(Request(sys.stdin.buffer.read())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parents[3])],
        input=encode_request(job, words=words), capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == b"([], [])\n", done
    assert sorted(path.name for path in data.iterdir()) == ["pyxis_120.0", "pyxis_other"]
    assert [path.name for path in (base / "65534").iterdir()] == ["13.0.bb"]
    assert precious.is_dir()
