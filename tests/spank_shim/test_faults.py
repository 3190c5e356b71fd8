"""Whatever the keeper does, the plugin says what failed, the task fails, and nothing crashes.

Every play runs three times: as it is, with the compiler's sanitizers, and under valgrind.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spank_shim.harness import PACKAGES, PATIENCE, Harness, Played

pytestmark = pytest.mark.kernel

_VALGRIND = (
    "valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect", "--trace-children=no",
)  # fmt: skip
_BUILDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "plain": (("-O2",), ()),
    "sanitizers": (("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"), ()),
    "valgrind": (("-O1",), _VALGRIND),
}
_SOUND = ("ERROR: AddressSanitizer", "LeakSanitizer", "runtime error:", "==ERROR", "Invalid read")

# name: what the keeper does, what the user is told
ANSWERS = {
    "no answer": ("pass", "there is none"),
    "an exception": ("raise ValueError('out of luck')", "out of luck"),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", "there is none"),
    "ready without an answer": ("ready()", "there is none"),
    "no end": ("say('status=ok', 'pid=1'); ready()", "incomplete"),
    "cut off": ("os.write(4, b'status=ok\\0pid=1'); ready()", "incomplete"),
    "an end that is none": ("os.write(4, b'status=ok\\0end=x\\0'); ready()", "incomplete"),
    "noise": ("os.write(4, os.urandom(70000)); ready()", "no usable answer"),
    "zeros": ("os.write(4, bytes(70000)); ready()", "does not know"),
    "one byte": ("os.write(4, b'\\0'); ready()", "does not know"),
    "too large": ("os.ftruncate(4, 1 << 40); ready()", "too large"),
    "an unknown record": ("say('status=ok', 'frobnicate=1', 'end='); ready()", "another version"),
    "no status": ("say('pid=1', 'end='); ready()", "no status"),
    "an odd status": ("say('status=fine', 'end='); ready()", "no status"),
    "no process": ("say('status=ok', 'end='); ready()", "named no process"),
    "a process that is none": ("say('status=ok', 'pid=-1', 'end='); ready()", "process number"),
    "a process in words": ("say('status=ok', 'pid=12x', 'end='); ready()", "process number"),
    "a huge process": ("say('status=ok', 'pid=99999999999999999999', 'end='); ready()", "process"),
    "a process that is gone": (
        "say('status=ok', 'pid=2147483647', 'join=user', 'end='); ready()", "user namespace"),
    "an unknown namespace": (
        "say('status=ok', f'pid={os.getpid()}', 'join=../../etc', 'end='); ready(); os.read(5, 1)",
        "no such kind of namespace"),
    "too many namespaces": (
        "say('status=ok', f'pid={os.getpid()}', *['join=x' * 9] * 99, 'end='); ready()",
        "no such kind"),
    "a variable without value": (
        "say('status=ok', f'pid={os.getpid()}', 'env=NAME', 'end='); ready(); os.read(5, 1)",
        "environment"),
    "a folder that is not there": (
        "say('status=ok', f'pid={os.getpid()}', 'cwd=/nosuch', 'end='); ready(); os.read(5, 1)",
        "/nosuch"),
    "an error of its own": ("say('status=error', 'error=no such image', 'end='); ready()",
                            "error: pyxis: no such image"),
    "percent signs": ("say('status=error', 'error=%s%n%s%n', 'end='); ready()", "%s%n%s%n"),
}  # fmt: skip


@pytest.fixture(scope="module", params=_BUILDS)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    flags, wrapper = _BUILDS[request.param]
    return Harness(tmp_path_factory.mktemp("shim"), *flags, wrapper=wrapper)


@pytest.fixture(params=["plain", "sanitizers"])
def joining(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    """One without valgrind, which knows no setns."""
    return Harness(tmp_path, *_BUILDS[request.param][0])


def sound(text: str) -> bool:
    return not any(mark in text for mark in _SOUND)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_bad_answer_fails_the_task_and_says_so(harness: Harness, name: str) -> None:
    body, said = ANSWERS[name]
    played = harness.play("step", "--0=/image.sqsh", harness.keeper(body))
    assert played.status == 1, played
    assert said in played.err
    assert sound(played.err), played.err
    assert "/proc/self/ns" not in played.out


@pytest.mark.parametrize("name", ["no answer", "cut off", "an error of its own", "noise", "killed"])
def test_at_submission_it_ends_the_command(harness: Harness, name: str) -> None:
    body, said = ANSWERS[name]
    played = harness.play("local", "--0=ubuntu", harness.keeper(body.replace("ready()", "")))
    assert (played.status, sound(played.err)) == (1, True), played
    assert said in played.err


def test_a_keeper_that_hangs_at_submission_is_ended(harness: Harness) -> None:
    played = harness.play("local", "--0=ubuntu", harness.keeper("time.sleep(600)"), patience=2)
    assert played.status == 1
    assert "took too long" in played.err


# What says nothing of namespaces or variables; those of `start` alone are left out.
_OF_ANY_VERB = (
    "no answer", "an exception", "killed", "ready without an answer", "no end", "cut off",
    "an end that is none", "noise", "zeros", "one byte", "too large", "an unknown record",
    "no status", "an odd status", "a process that is none", "an error of its own",
    "percent signs",
)  # fmt: skip
_DEAF = """
for number in range(1, 32):
    number in (signal.SIGKILL, signal.SIGSTOP) or signal.signal(number, signal.SIG_IGN)
os.close(5)
os.kill(os.getpid(), signal.SIGSTOP)
"""
LATER = {
    **{name: ANSWERS[name] for name in _OF_ANY_VERB},
    "a hang": ("time.sleep(600)", "it took too long"),
    "a hang that one signal ends": (_DEAF, "it took too long"),
    "an answer that comes after the end": (
        "if os.fork() == 0: os.read(5, 1); say('status=ok', 'end='); os._exit(0)", "there is none"),
    "a full log": ("os.write(2, b'%n' * 50000 + b'last words'); os.abort()", "last words"),
    "a full disk": ("say('status=error', 'error=No space left', 'end=')", "error: pyxis: No space"),
}  # fmt: skip
# A container that is this process as it is, and wants to be finished.
KEPT = (
    "if verb == 'start':\n"
    "    say('status=ok', f'pid={os.getpid()}', 'state=opaque', 'finish=1', 'end='); ready()\n"
    "    os.read(5, 1); sys.exit()\n"
)


def patience(said: str) -> int:
    """Seconds for a keeper: few only for one that hangs."""
    return 2 if "too long" in said else PATIENCE


@pytest.mark.parametrize("name", LATER)
def test_at_the_end_of_a_step_it_is_told_and_the_tasks_stand(harness: Harness, name: str) -> None:
    body, said = LATER[name]
    keeper = harness.keeper(f"{KEPT}assert verb == 'finish'\n{body}")
    played = harness.play("step", "--0=/image.sqsh", keeper, tasks=2, patience=patience(said))
    assert (played.status, sound(played.err)) == (0, True), played
    assert said in played.err
    assert played.out.count("/proc/self/ns/user") == 2
    assert played.err.count("task_exit failed") == 1  # which Slurm writes to the step's log
    assert "status=error" in body or "(finish) gave no usable answer" in played.err


@pytest.mark.parametrize("name", LATER)
def test_at_the_end_of_a_job_it_is_told_and_the_epilog_succeeds(
    harness: Harness, name: str
) -> None:
    body, said = LATER[name]
    note = left_job(harness)
    keeper = harness.keeper(f"assert verb == 'epilog'\n{body}")
    played = harness.play("epilog", keeper, patience=patience(said))
    # An epilog that fails would take the node out of service.
    assert (played.status, sound(played.err)) == (0, True), played
    assert said in played.err
    assert "status=error" in body or "(epilog) gave no usable answer" in played.err
    assert not note.exists()


@pytest.mark.parametrize("end", ["time.sleep(600)", "os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.parametrize("verb", ["finish", "epilog"])
def test_what_a_keeper_has_started_ends_with_it(harness: Harness, verb: str, end: str) -> None:
    """An importer, or the child that works as the job's user."""
    path = harness.folder / "child"
    path.unlink(missing_ok=True)
    body = (
        f"child = os.fork() or time.sleep(600)\nopen({str(path)!r}, 'w').write(str(child))\n{end}"
    )
    # Long enough for the keeper to come to its end.
    seconds = 5 if "sleep" in end else PATIENCE
    if verb == "finish":
        keeper = harness.keeper(f"{KEPT}{body}")
        harness.play("step", "--0=/image.sqsh", keeper, patience=seconds)
    else:
        left_job(harness)
        harness.play("epilog", harness.keeper(body), patience=seconds)
    child = Path("/proc", path.read_text())
    deadline = time.monotonic() + 20
    with suppress(OSError):  # it is gone
        # Whoever is its parent now need not reap it at once.
        while ") Z " not in child.joinpath("stat").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_an_interpreter_that_goes_while_a_step_runs_is_named(harness: Harness) -> None:
    gone = f"os.unlink({str(harness.folder / 'keeper')!r})\n"
    keeper = harness.keeper(KEPT.replace("    say(", f"    {gone}    say(", 1))
    played = harness.play("step", "--0=/image.sqsh", keeper)
    assert (played.status, sound(played.err)) == (0, True), played
    assert "(finish) gave no usable answer" in played.err
    assert f"cannot execute the Python interpreter {keeper.partition('=')[2]}" in played.err
    left_job(harness)
    played = harness.play("epilog", keeper)
    assert (played.status, sound(played.err)) == (0, True), played
    assert f"cannot execute the Python interpreter {keeper.partition('=')[2]}" in played.err


def left_job(harness: Harness) -> Path:
    """The note of a job that had a container, without which an epilog has nothing to do."""
    note = harness.folder / "run/jobs/7"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()
    return note


def test_without_an_interpreter_the_error_names_it(harness: Harness) -> None:
    played = harness.play("step", "--0=/image.sqsh", "python=/no/such/python", tasks=3)
    assert (played.status, sound(played.err)) == (1, True), played
    assert "/no/such/python" in played.err
    # The first task says what failed, the others that one did.
    assert played.err.count("another task of this step could not start the container") == 2


def test_without_the_package_the_error_names_it(tmp_path: Path) -> None:
    harness = Harness(tmp_path, "-O2", '-DKEEPER_SCRIPT="/no/such/keeper.py"')
    played = harness.play("step", "--0=/image.sqsh")
    assert played.status == 1
    assert "/no/such/keeper.py" in played.err


# name: what of the package is lost or broken, which verbs need it, what Python says
BROKEN = {
    "half removed": ("pyxis_py/step", None, ("start", "finish", "epilog", "local"),
                     "No module named 'pyxis_py.step'"),
    "a module is missing": ("pyxis_py/step/verbs.py", None, ("finish", "epilog", "local"),
                            "No module named 'pyxis_py.step.verbs'"),
    "the other package is missing": ("enroot_py", None, ("start", "finish", "epilog", "local"),
                                     "No module named 'enroot_py'"),
    "a module is cut off": ("pyxis_py/step/cleanup.py", "def finish(\n", ("finish",),
                            "SyntaxError"),
    "a module is of another version": ("pyxis_py/step/container.py", "", ("start",),
                                       "cannot import name"),
    "the program itself is cut off": ("pyxis_py/keeper.py", "import os, sys\nif", (
        "start", "finish", "epilog", "local"), "SyntaxError"),
}  # fmt: skip


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """One whose package is a copy that may be broken."""
    folder = tmp_path_factory.mktemp("packaged")
    return Harness(folder, "-O2", packages=folder / "packages")


@pytest.mark.parametrize("name", BROKEN)
def test_a_package_that_is_broken_is_told(packaged: Harness, name: str) -> None:
    path, text, verbs, said = BROKEN[name]
    packages = packaged.packages
    shutil.rmtree(packages, ignore_errors=True)
    for package in ("enroot_py", "pyxis_py"):
        shutil.copytree(
            PACKAGES / package, packages / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    broken = packages / path
    if text is not None:
        broken.write_text(text)
    elif broken.is_dir():
        shutil.rmtree(broken)
    else:
        broken.unlink()
    for verb in verbs:
        played = play_verb(packaged, verb)
        assert played.status == (1 if verb in ("start", "local") else 0), (verb, played)
        assert f"({verb}) gave no usable answer" in played.err, (verb, played)
        assert said in played.err, (verb, played)


def play_verb(harness: Harness, verb: str) -> Played:
    """Have the real keeper called for a verb, and no other."""
    if verb == "epilog":
        left_job(harness)
        return harness.play("epilog", f"python={sys.executable}")
    if verb == "finish":
        words = f"[{sys.executable!r}, *sys.argv[1:]]"
        real = f"if verb == 'finish': os.lseek(3, 0, 0); os.execv({sys.executable!r}, {words})"
        return harness.play("step", "--0=/image.sqsh", harness.keeper(f"{real}\n{KEPT}"))
    context = "step" if verb == "start" else "local"
    return harness.play(context, "--0=ubuntu", f"python={sys.executable}")


def test_all_tasks_fail_when_the_first_is_killed(harness: Harness) -> None:
    # The keeper kills the task that waits for it, which holds the mutex.
    body = (
        "me = os.environ['PATH']\n"
        "for name in os.listdir('/proc'):\n"
        "    try:\n"
        "        words = open(f'/proc/{name}/stat').read().rpartition(')')[2].split()\n"
        "        if int(words[1]) == os.getppid() and int(name) != os.getpid():\n"
        "            os.kill(int(name), signal.SIGKILL)\n"
        "            break\n"
        "    except (OSError, ValueError): pass\n"
        "time.sleep(1)"
    )
    played = harness.play("step", "--0=/image.sqsh", harness.keeper(body), tasks=2)
    assert played.status != 0
    assert sound(played.err), played.err


def test_without_flags_nothing_is_run(harness: Harness) -> None:
    played = harness.play("step", "python=/no/such/python")
    assert played.status == 0, played
    assert "/proc/self/ns/user" in played.out


def test_a_step_that_wants_no_container_runs_as_it_is(harness: Harness) -> None:
    keeper = harness.keeper("say('status=none', 'log=ignored', 'end='); ready()")
    played = harness.play("step", "--2=/opt", keeper)
    assert played.status == 0, played
    assert "pyxis: ignored" in played.err


JOINED = """
import subprocess
child = subprocess.Popen(["unshare", "-Urm", "sleep", "300"], stdin=0, stdout=1, stderr=2)
while not open(f"/proc/{child.pid}/cmdline", "rb").read().startswith(b"sleep"):
    time.sleep(0.01)  # its namespaces are complete by then
assert [r for r in request if r.startswith(b"option=")] == [b"option=0=/image.sqsh"], request
assert b"word=WORD" not in request and b"tasks=4" in request, request
assert b"cwd=/tmp" in request, request
say("status=ok", f"pid={child.pid}", "join=user", "join=mnt", "join=net", "unset=PLAY_GONE",
    "env=PLAY_SET=one=two", "default=PLAY_JOB=image", "default=PLAY_NEW=image",
    "copy=PLAY_JOB=PLAY_COPY", "copy=PLAY_NOWHERE=PLAY_NOTHING", "cwd=/usr", "seccomp=1",
    "state=opaque", "finish=1", "end=")
ready()
told = os.read(5, 1)
child.kill()
"""
FINISHED = (
    'if verb == "finish":\n'
    "    started = [r for r in request if r.startswith((b'started=', b'state='))]\n"
    "    say('status=ok', f'log=finished {started}', 'end='); sys.exit()\n"
)


def test_tasks_join_and_the_last_one_finishes(joining: Harness) -> None:
    keeper = joining.keeper(FINISHED + JOINED)
    played = joining.play(
        "step", "--0=/image.sqsh", keeper, tasks=4, PLAY_GONE="here", PLAY_JOB="job"
    )
    assert (played.status, sound(played.err)) == (0, True), played
    lines = played.out.splitlines()
    assert lines.count("PLAY_SET=one=two") == 4
    assert lines.count("PLAY_JOB=job") == lines.count("PLAY_COPY=job") == 4
    assert lines.count("PLAY_NEW=image") == 4
    assert not [line for line in lines if line.startswith(("PLAY_GONE", "PLAY_NOTHING"))]
    assert lines.count("/proc/self/cwd=/usr") == 4
    assert [line.split() for line in lines].count(["Seccomp:", "2"]) == 4
    users = {line for line in lines if line.startswith("/proc/self/ns/user")}
    assert len(users) == 1
    assert played.err.count("finished [b'state=opaque', b'started=4']") == 1


def test_variables_of_an_answer_enter_the_environment_at_submission(harness: Harness) -> None:
    body = (
        "assert request.count(b'option=1=/a:/b') == 1 and b'option=1=/c:/d' in request\n"
        "assert any(r == b'env=SLURM_PYXIS_REPEATED_1=/a:/b\\x1e/c:/d' for r in request), request\n"
        "say('status=ok', 'setenv=PLAY_PIN=a=b', 'log=note', 'end=')"
    )
    played = harness.play("local", "--1=/a:/b", "--1=/c:/d", harness.keeper(body))
    assert (played.status, played.out) == (0, "PLAY_PIN=a=b\n"), played
    assert "pyxis: note" in played.err


def test_news_reach_the_user_while_the_keeper_works(harness: Harness) -> None:
    body = (
        "os.write(5, b'still importing\\nand %s more'); time.sleep(0.2)\n"
        "os.write(5, b'\\n' + b'x' * 700 + b'\\n')\n"
        "say('status=none', 'end='); os.write(5, b'cut off\\0later')"
    )
    played = harness.play("step", "--0=/image.sqsh", harness.keeper(body), tasks=3)
    assert played.status == 0, played
    said = [line for line in played.err.splitlines() if "pyxis: " in line]
    assert said[0].endswith("pyxis: still importing")
    assert said[1].endswith("pyxis: and %s more")
    assert [line.count("x") for line in said[2:]] == [512, 190]  # one of them in "pyxis"
    dead = harness.keeper("os.write(5, b'still importing\\n'); os._exit(1)")
    played = harness.play("step", "--0=/image.sqsh", dead)
    assert played.status == 1
    assert "pyxis: still importing" in played.err


GROUPS = (
    "say('status=ok', *(['setenv=SLURM_PYXIS_GROUPS=0 1'] if b'command=local' in request else []),"
    " 'end=')"
)


def test_components_that_differ_keep_their_flags_for_the_nodes(harness: Harness) -> None:
    # The word ":" is what srun's own command line would have between them.
    keeper = harness.keeper(GROUPS)
    stale = {"SLURM_PYXIS_COMPONENT_1": "9=", "SLURM_PYXIS_COMPONENT_7": "9="}
    differ = harness.play(
        "local", "--0=/a", "--1=/b:/b", "--1=/c:/c", "::0=/d", ":", keeper, **stale
    )
    assert differ.status == 0, differ
    lines = differ.out.split("\n")
    assert "SLURM_PYXIS_COMPONENT_0=0=/a\0361=/b:/b\0361=/c:/c" in lines
    assert "SLURM_PYXIS_COMPONENT_1=0=/d" in lines
    assert "SLURM_PYXIS_COMPONENT_7=9=" not in lines
    without = harness.play("local", "--0=/a", "::", ":", keeper)
    assert "SLURM_PYXIS_COMPONENT_1=" in without.out.splitlines(), without
    alike = harness.play("local", "--0=/a", "::0=/a", ":", keeper, **stale)
    assert (alike.status, "COMPONENT" in alike.out) == (0, False), alike
    # The keeper does not say which component goes where: nodes could not choose.
    unknown = harness.play(
        "local", "--0=/a", "::0=/d", ":", harness.keeper("say('status=ok', 'end=')"),
        SLURM_PYXIS_GROUPS="0 1",
    )  # fmt: skip
    assert unknown.status == 1, unknown
    assert "use pyxis-srun" in unknown.err


def test_the_runtime_folder_is_made_and_links_are_not_followed(harness: Harness) -> None:
    run = harness.folder / "run"
    shutil.rmtree(run, ignore_errors=True)  # other tests'
    keeper = harness.keeper("say('status=none', 'end='); verb == 'start' and ready()")
    assert harness.play("slurmd").status == 0
    assert run.stat().st_mode & 0o7777 == 0o755
    assert harness.play("step", "--0=/image.sqsh", keeper).status == 0
    own = next(path for path in run.iterdir() if path.name != "jobs")
    assert own.stat().st_mode & 0o7777 == 0o700
    assert [path.name for path in (run / "jobs").iterdir()] == ["7"]
    # The job's note is what makes the epilog run the keeper, once.
    told = harness.keeper("say('status=error', f'error=verb {verb}', 'end=')")
    assert "verb epilog" in harness.play("epilog", told).err
    assert harness.play("epilog", told).err == ""
    run.rename(harness.folder / "moved")
    run.symlink_to(harness.folder / "moved")
    refused = harness.play("step", "--0=/image.sqsh", keeper)
    assert refused.status == 1
    assert "cannot make the runtime folder" in refused.err
    run.unlink()
