"""Starts of a container from its folder, by an ordinary user with the installed command."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.contexts import wait_until_asleep, write_file
from tests.hooks.sandbox import Sandbox, identity, sandbox_in
from tests.operations.starting import gone, ignored_signals, long_sleep, running, status_field

pytestmark = pytest.mark.kernel

KINDS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
STATUS = "/proc/self/status"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with sandbox_in(tmp_path) as sandbox:
        yield sandbox


def shell(sandbox: Sandbox, script: str, *options: str, **environ: str) -> str:
    return sandbox.start(*options, "box", "sh", "-c", script, **environ)


def test_the_process_itself_becomes_the_container(sandbox: Sandbox) -> None:
    script = "echo ready; read x; echo $$ $PPID $x; exit 5"
    with running(sandbox, "box", "sh", "-c", script) as process:
        own, _ = process.communicate("word\n")
        assert own.split() == [str(process.pid), str(os.getpid()), "word"]
        assert process.returncode == 5


@pytest.mark.parametrize("options", [(), ("--pid",)])
@pytest.mark.parametrize("status", [0, 1, 7, 200])
def test_the_exit_status_is_the_commands(
    sandbox: Sandbox, options: tuple[str, ...], status: int
) -> None:
    done = sandbox.call("enroot", "start", *options, "box", "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGABRT])
def test_a_deadly_signal_arrives_and_shows(sandbox: Sandbox, number: int) -> None:
    with running(sandbox, "box", "sh", "-c", "echo ready; exec sleep 100") as process:
        # Not to the shell: it may lose an interrupt that comes between two of its commands.
        wait_until_asleep(process.pid, "sleep")
        process.send_signal(number)
        assert process.wait(60) == -number


def test_signals_ignored_by_the_interpreter_are_not_by_the_container(sandbox: Sandbox) -> None:
    for options in ((), ("--pid",)):
        status = sandbox.start(*options, "box", "cat", STATUS)
        assert int(status_field(status, "SigIgn"), 16) == ignored_signals()
        assert status_field(status, "SigBlk") == "0" * 16


def test_streams_pass_bytes_straight_through(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 1000
    done = subprocess.run(
        [str(sandbox.programs / "enroot"), "start", "box", "cat"],
        input=data, env=sandbox.environ, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    assert done.stdout == data


def test_an_ordinary_user_has_no_power_inside(sandbox: Sandbox) -> None:
    status = sandbox.start("box", "cat", STATUS)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status_field(status, name), 16) == 0
    assert status_field(status, "NoNewPrivs") == "1"
    assert status_field(status, "Seccomp") == "2"
    assert status_field(status, "Uid").split() == [str(os.getuid())] * 4
    assert sandbox.start("box", "cat", "/proc/self/setgroups") == "deny\n"


def test_a_remapped_user_has_the_namespaces_capabilities(sandbox: Sandbox) -> None:
    status = sandbox.start("--root", "box", "cat", STATUS)
    assert int(status_field(status, "CapEff"), 16) > 0xFFFFFFFF
    assert int(status_field(status, "CapAmb"), 16) == 0
    assert status_field(status, "NoNewPrivs") == "1"
    maps = sandbox.start("--root", "box", "cat", "/proc/self/uid_map", "/proc/self/gid_map")
    assert maps.split() == ["0", str(os.getuid()), "1", "0", str(os.getgid()), "1"]


@pytest.mark.parametrize("options", [(), ("--root",)])
def test_changes_of_owner_succeed_and_change_nothing(
    sandbox: Sandbox, options: tuple[str, ...]
) -> None:
    (sandbox.rootfs / "bin/chown").symlink_to("busybox")
    output = shell(sandbox, "touch /f; chown 12:34 /f && echo done", "--rw", *options)
    assert output == "done\n"
    assert (sandbox.rootfs / "f").stat().st_uid == os.getuid()


def test_the_rootfs_is_read_only_unless_asked_for(sandbox: Sandbox) -> None:
    script = "touch /new 2> /dev/null && echo written; touch /tmp/x && echo tmp"
    assert shell(sandbox, script) == "tmp\n"
    assert not (sandbox.rootfs / "new").exists()
    assert shell(sandbox, script, "--rw") == "written\ntmp\n"
    assert (sandbox.rootfs / "new").exists()
    (sandbox.rootfs / "new").unlink()
    assert shell(sandbox, script, ENROOT_ROOTFS_WRITABLE="y") == "written\ntmp\n"


def test_the_lock_and_a_bundle_stay_read_only(sandbox: Sandbox) -> None:
    write_file(sandbox.rootfs / ".enroot/bin/x", "bundle")
    script = (
        "(echo x > /.lock) 2> /dev/null || echo lock;"
        "(echo x > /.enroot/bin/x) 2> /dev/null || echo bundle; cat /.enroot/bin/x"
    )
    for options in ((), ("--rw",), ("--rw", "--root")):
        assert shell(sandbox, script, *options) == "lock\nbundle\nbundle"


def test_nothing_setuid_and_no_device_works_inside(sandbox: Sandbox) -> None:
    lines = sandbox.start("box", "cat", "/proc/self/mountinfo").splitlines()
    (root,) = [line.split() for line in lines if line.split()[4] == "/"]
    assert {"nosuid", "nodev", "ro"} <= set(root[5].split(","))


def namespaces(sandbox: Sandbox, *options: str, **environ: str) -> set[str]:
    """Return the kinds of namespaces that are new inside."""
    script = "; ".join(f"readlink /proc/self/ns/{kind}" for kind in KINDS)
    lines = shell(sandbox, script, *options, **environ).split()
    return {kind for kind, line in zip(KINDS, lines, strict=True) if line != identity("self", kind)}


def test_only_the_namespaces_asked_for_are_new(sandbox: Sandbox) -> None:
    usual = {"user", "mnt", "cgroup"}
    assert namespaces(sandbox) == usual
    for kind in ("pid", "net", "ipc", "uts"):
        assert namespaces(sandbox, f"--{kind}") == usual | {kind}
        assert namespaces(sandbox, **{f"ENROOT_UNSHARE_{kind.upper()}": "y"}) == usual | {kind}


def test_a_network_namespace_has_a_loopback_that_is_up(sandbox: Sandbox) -> None:
    assert shell(sandbox, "cat /sys/class/net/lo/flags; ls /sys/class/net", "--net").split() == [
        "0x9",
        "lo",
    ]


def test_a_pid_namespace_has_its_own_proc(sandbox: Sandbox) -> None:
    script = "echo $$; ls /proc | grep -c '^[0-9]'"
    assert shell(sandbox, script, "--pid").split()[0] == "1"
    assert int(shell(sandbox, script, "--pid").split()[1]) <= 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_pid_namespaces_first_process_gets_signals_and_dies_with_the_waiting_one(
    sandbox: Sandbox, number: int
) -> None:
    script = "trap 'echo got; exit 9' TERM INT; echo ready; while :; do sleep 0.1; done"
    with running(sandbox, "--pid", "box", "sh", "-c", script) as process:
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == "got\n"
        assert process.returncode == 9
    script = f"echo ready; exec {long_sleep()}"
    with running(sandbox, "--pid", "box", "sh", "-c", script) as process:
        process.kill()
        process.wait(60)
        assert not gone(long_sleep())


def test_a_pid_namespace_stops_and_continues_as_one(sandbox: Sandbox) -> None:
    with running(sandbox, "--pid", "box", "sh", "-c", "echo ready; read x; echo $x") as process:
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.communicate("on\n", timeout=60)[0] == "on\n"


def test_the_hosts_names_are_shared(sandbox: Sandbox) -> None:
    for name in ("hosts", "hostname", "resolv.conf"):
        if os.path.exists(f"/etc/{name}"):
            assert sandbox.start("box", "cat", f"/etc/{name}") == Path(f"/etc/{name}").read_text()
    made = os.lstat(sandbox.rootfs / "etc/hosts")
    assert (made.st_size, stat.S_IMODE(made.st_mode)) == (0, 0)


def test_mounts_are_done_as_they_are_typed(sandbox: Sandbox, tmp_path: Path) -> None:
    odd = tmp_path / "a folder, with a:colon"
    write_file(odd / "x", "odd")
    write_file(tmp_path / "file", "file")
    script = (
        "cat '/mnt/one dir/x' /mnt/new/file /etc/hostname; ls /mnt/mem; cat /mnt/here/file;"
        "(echo x > /mnt/new/file) 2> /dev/null || echo ro"
    )
    done = subprocess.run(
        [
            str(sandbox.programs / "enroot"), "start",
            "--mount", f"{str(odd).replace(':', chr(92) + '072')}:/mnt/one dir",
            "-m", f"{tmp_path}/file:/mnt/new/file:ro,bind,x-create=file",
            f"--mount={tmp_path}/file:/etc/hostname",
            "-m", "tmpfs:/mnt/mem:size=1m,x-create=dir",
            "-m", ".:/mnt/here",
            "box", "sh", "-c",
            script,
        ],
        env=sandbox.environ, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("oddfilefilefilero\n", "")


@pytest.mark.parametrize("kind", ["setgid", "link", "below a mount", "closed to others"])
def test_any_working_directory_can_be_mounted(sandbox: Sandbox, tmp_path: Path, kind: str) -> None:
    """enroot#36."""
    folder = tmp_path / "work"
    write_file(folder / "x", kind)
    folder.chmod({"setgid": 0o2775, "closed to others": 0o700}.get(kind, 0o755))
    here = folder
    if kind == "link":
        here = tmp_path / "link"
        here.symlink_to("work")
    words = [str(sandbox.programs / "enroot"), "start", "-m", ".:/mnt/here", "-m", f"{here}:/mnt/x"]
    script = 'cd "$0" && exec "$@"'
    if kind == "below a mount":
        script = f'mount -t tmpfs none "$0" && printf "{kind}" > "$0/x" && {script}'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(here), *words,
         "box", "cat", "/mnt/here/x", "/mnt/x/x"],
        env=sandbox.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (kind * 2, "")


def test_configured_mounts_and_variables(sandbox: Sandbox) -> None:
    write_file(sandbox.folder / "src/x", "x")
    write_file(
        sandbox.folder / "config/enroot/mounts.d/1.fstab",
        f"{sandbox.folder}/src /mnt/${{WHERE}} none x-create=dir,bind\n"
        "tmpfs /never tmpfs x-create=dir 0 7\n",
    )
    write_file(sandbox.folder / "config/enroot/environ.d/1.env", 'A="${WHERE}"\nENROOT_NO=1\n')
    write_file(sandbox.rootfs / "etc/fstab", "${ENROOT_ROOTFS}/mnt /mnt2 none x-create=dir,bind\n")
    write_file(sandbox.rootfs / "mnt/marker", "")
    output = shell(sandbox, "cat /mnt/w/x; echo $A; ls /mnt2; env | grep ENROOT; true", WHERE="w")
    assert output.split() == ["xw", "marker", "w"]
    assert not (sandbox.rootfs / "never").exists()


def test_the_hosts_environment_stays_outside(sandbox: Sandbox) -> None:
    secret = "only-for-the-host"
    output = sandbox.start("-e", "MINE", "box", "env", SECRET=secret, MINE="yes", TERM="odd")
    variables = dict(line.split("=", 1) for line in output.splitlines())
    assert variables["MINE"] == "yes"
    assert variables["TERM"] == "odd"
    assert secret not in output
    assert not [name for name in variables if name.startswith(("ENROOT", "PYTHON", "XDG"))]


VALUE = "a \"quoted\" 'x' $HOME ${HOME} $(id) `id` \\ * é\n  second line=1\n"


def test_values_arrive_byte_for_byte(sandbox: Sandbox) -> None:
    for options, host in ((("--env", f"A={VALUE}", "-e", "B="), ""), (("-e", "A"), VALUE)):
        output = sandbox.start(*options, "box", "cat", "/proc/self/environ", A=host)
        assert f"A={VALUE}" in output.split("\0")
    assert "B=" in sandbox.start("-e", "B=", "box", "cat", "/proc/self/environ").split("\0")


def test_a_words_bytes_arrive_as_given(sandbox: Sandbox) -> None:
    words = ["", "a\nb", "*", "$(id)", "a b", "-e", "ü"]
    script = 'for word; do printf "%s|" "$word"; done'
    (sandbox.rootfs / "bin/printf").symlink_to("busybox")
    assert sandbox.start("box", "sh", "-c", script, "sh", *words) == "".join(
        f"{word}|" for word in words
    )


def test_a_command_line_in_one_word_and_a_script_that_cannot_be_executed(sandbox: Sandbox) -> None:
    assert sandbox.start("box", "echo $1-$0", "x") == "x-sh\n"
    write_file(sandbox.rootfs / "script", "echo script $1\n", mode=0o644)
    assert sandbox.start("box", "/script", "x") == "script x\n"


RC = 'echo "rc:$#:$1"; cd /mnt; if [ $# -gt 0 ]; then exec "$@"; else exec echo default; fi\n'


def test_the_command_script_gets_the_words(sandbox: Sandbox, tmp_path: Path) -> None:
    write_file(sandbox.rootfs / "etc/rc", RC)
    assert sandbox.start("box") == "rc:0:\ndefault\n"
    assert sandbox.start("box", "echo", "a b") == "rc:2:echo\na b\n"
    other = write_file(tmp_path / "other", 'echo "other:$1"; ls /proc/self/fd | grep -c .\n')
    assert sandbox.start("--rc", str(other), "box", "x").splitlines()[0] == "other:x"
    script = f"exec {sandbox.programs}/enroot start --rc <(echo 'echo from a pipe $1') box word"
    done = subprocess.run(
        ["bash", "-c", script], env=sandbox.environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("from a pipe word\n", "")


def test_a_script_that_is_missing_is_named(sandbox: Sandbox) -> None:
    done = sandbox.call("enroot", "start", "--rc", "/nonexistent/rc", "box")
    assert done.returncode == 1
    assert "/nonexistent/rc" in done.stderr


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (("nonexistent",), 127, ("nonexistent",)),
        (("/nonexistent/x",), 127, ("/nonexistent/x",)),
        (("/mnt",), 126, ("/mnt",)),
    ],
)
def test_a_command_that_cannot_run(
    sandbox: Sandbox, command: tuple[str, ...], status: int, words: tuple[str, ...]
) -> None:
    done = sandbox.call("enroot", "start", "box", *command)
    assert done.returncode == status
    assert all(word in done.stderr for word in words)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nonexistent", ("nonexistent", "enroot list")),
        ("bx", ("bx", "did you mean box")),
        ("/nonexistent/x.sqsh", ("/nonexistent/x.sqsh",)),
        ("./box", ("./box",)),
        ("../box", ("../box",)),
        ("/etc/passwd", ("Not a squashfs image", "/etc/passwd")),
        ("/etc", ("/etc", "folder")),
        ("", ()),
    ],
)
def test_a_target_that_cannot_be_started(
    sandbox: Sandbox, target: str, words: tuple[str, ...]
) -> None:
    done = sandbox.call("enroot", "start", target, "true")
    assert done.returncode == 1
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr


def test_a_bad_image_is_named_for_what_it_is_where_no_container_has_its_name(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "tool.sqsh").write_text("half a download")

    def start() -> str:
        command = [str(sandbox.programs / "enroot"), "start", "tool.sqsh", "echo", "started"]
        done = subprocess.run(
            command, env=sandbox.environ, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert "Not a squashfs image: tool.sqsh" in start()
    sandbox.rootfs.rename(sandbox.rootfs.with_name("tool.sqsh"))
    assert start() == "started\n"


def test_a_program_of_another_machine_and_one_without_its_loader(sandbox: Sandbox) -> None:
    header = bytearray((sandbox.rootfs / "bin/busybox").read_bytes()[:4096])
    header[18:20] = (0xF3).to_bytes(2, "little")  # e_machine: RISC-V
    write_file(sandbox.rootfs / "bin/foreign", bytes(header), mode=0o755)
    write_file(sandbox.rootfs / "bin/script", "#!/no/loader\n", mode=0o755)
    for name in ("sh", "busybox"):
        (sandbox.rootfs / "bin" / name).unlink()
    done = sandbox.call("enroot", "start", "box", "/bin/foreign")
    assert done.returncode == 126
    assert "architecture" in done.stderr
    done = sandbox.call("enroot", "start", "box", "/bin/script")
    assert done.returncode == 127
    assert "interpreter or loader" in done.stderr


def test_it_works_without_any_program_of_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    assert shell(sandbox, "id -u", "--root", "--pid", "--net", "--ipc", "--uts", PATH="") == "0\n"
    assert shell(sandbox, "id -u", PATH=str(tmp_path)) == f"{os.getuid()}\n"


def test_a_configuration_folder_of_nobody_is_enough(sandbox: Sandbox) -> None:
    """No HOME, no XDG folders, no passwd lookups that matter."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"):
        del sandbox.environ[name]
    assert shell(sandbox, "id -u", TMPDIR=str(sandbox.folder)) == f"{os.getuid()}\n"


def test_no_shell_and_login_files_of_every_kind(sandbox: Sandbox) -> None:
    write_file(sandbox.rootfs / "etc/login.defs", "UMASK 027\nENV_PATH PATH=/bin:/mine\n")
    write_file(sandbox.rootfs / "etc/locale.conf", 'LANG="C.UTF-8"\nOTHER=1\n')
    output = shell(sandbox, "umask; echo $PATH $LANG $OTHER $USER; pwd")
    lines = output.splitlines()
    assert lines[0] == "0027"
    assert lines[1].startswith("/bin:/mine C.UTF-8 ")
    assert lines[2] != "/"
    output = shell(sandbox, "umask; echo :$PATH:$LANG", ENROOT_LOGIN_SHELL="no")
    assert "0027" not in output and "C.UTF-8" not in output


def test_logins_may_be_off(sandbox: Sandbox) -> None:
    write_file(sandbox.rootfs / "etc/nologin", "closed for maintenance\n")
    done = sandbox.call("enroot", "start", "box", "echo", "inside")
    assert (done.returncode, done.stdout) == (0, "closed for maintenance\n")
    assert sandbox.start("--root", "box", "echo", "inside") == "inside\n"
    assert sandbox.start("box", "echo", "inside", ENROOT_LOGIN_SHELL="no") == "inside\n"


def test_a_home_that_is_missing(sandbox: Sandbox) -> None:
    environ = ("-e", "HOME=/nonexistent/home")
    done = sandbox.call("enroot", "start", *environ, "box", "readlink", "/proc/self/cwd")
    assert (done.returncode, done.stdout) == (0, "/\n")
    assert "/nonexistent/home" in done.stderr
    write_file(sandbox.rootfs / "etc/login.defs", "DEFAULT_HOME no\n")
    done = sandbox.call("enroot", "start", *environ, "box", "true")
    assert done.returncode == 127
    assert "/nonexistent/home" in done.stderr


def test_many_starts_of_one_container_at_once(sandbox: Sandbox) -> None:
    """Case C08: every one of them runs, and listing them never fails meanwhile."""
    command = [str(sandbox.programs / "enroot"), "start", "box", "sh", "-c", "read x; echo hello"]
    waiting, end = os.pipe()
    with os.fdopen(end, "w") as held:
        processes = [
            subprocess.Popen(
                command, env=sandbox.environ, stdin=waiting, stdout=subprocess.PIPE, text=True
            )
            for _ in range(64)
        ]
        os.close(waiting)
        most = 0
        while any(process.poll() is None for process in processes):
            done = sandbox.call("enroot", "list", "-f")
            assert (done.returncode, done.stderr) == (0, "")
            most = max(most, done.stdout.count("echo hello"))
            if most > 1:
                held.close()
    assert [process.communicate()[0] for process in processes] == ["hello\n"] * 64
    assert {process.returncode for process in processes} == {0}
    assert most > 1


@pytest.mark.parametrize(
    ("options", "environ", "passed"),
    [
        ((), {}, set()),
        (("--preserve-fds", "1"), {}, {"first"}),
        (("--preserve-fds", "9"), {}, {"first", "second"}),
        ((), {"LISTEN_FDS": "2"}, {"first", "second"}),
        ((), {"PMI_FD": "4"}, {"second"}),
    ],
)
@pytest.mark.parametrize("more", [(), ("--pid",)])
def test_descriptors_are_passed_on_by_request(
    sandbox: Sandbox,
    tmp_path: Path,
    more: tuple[str, ...],
    options: tuple[str, ...],
    environ: dict[str, str],
    passed: set[str],
) -> None:
    command = [str(sandbox.programs / "enroot"), "start", *more, *options, "box"]
    script = f'exec 3< {tmp_path}/first 4< {tmp_path}/second; exec "$@"'
    for name in ("first", "second"):
        write_file(tmp_path / name, "")
    done = subprocess.run(
        ["bash", "-c", script, "bash", *command, "ls", "-l", "/proc/self/fd"],
        env={**sandbox.environ, **environ}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert {name for name in ("first", "second") if f"{tmp_path}/{name}" in done.stdout} == passed
    numbers = {line.split()[-3] for line in done.stdout.splitlines() if "->" in line}
    assert len(numbers) <= 4 + len(passed)
