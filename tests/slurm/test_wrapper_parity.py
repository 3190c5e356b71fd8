"""The same command lines through srun and through pyxis-srun: statuses, output, signals, ends.

What srun does is not written down here but seen: every row runs through both.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.slurm.rig import Rig
from tests.slurm.watching import Messages, interrupt_twice, is_there, remains

pytestmark = pytest.mark.slurm

SRUN, WRAPPER = "srun", "pyxis-srun"
SH = ("/bin/sh", "-c")
_FLAGS = "FLAGS"  # in a row's words: where the container flags stand; first if nowhere
_OWN_LINES = re.compile(r"srun: (?!job \d+ |Job \d+ step|Step c|Force Term|StepId)(.*)")
_NUMBERS = re.compile(r"node\d+|StepId=\S+|/proc/self/fd/\d+|/\S*/shared/\w+")


@dataclass(frozen=True)
class Row:
    """A command line.

    Attributes:
        name: as tests show it.
        words: srun's options and the command; {shared} is replaced.
        stdin: what the standard input has.
        environ: further variables.
        files: files in the shared folder, by name.
        after: prints what the step has written, as a shell command.
        own_lines: whether the lines that srun prints itself are the same in every run.
    """

    name: str
    words: tuple[str, ...]
    stdin: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    after: str = ""
    own_lines: bool = True


def sh(name: str, script: str, *options: str, **more: object) -> Row:
    """A row whose command is a script for /bin/sh."""
    return Row(name, (*options, *SH, script), **more)  # type: ignore[arg-type]


_ASK = "echo $SLURM_PROCID $(cat)"
_PROGRAMS = """\
# a comment \\
   of two lines
0\t/bin/echo tab %t %o \\
 and more words
* /bin/sh -c 'echo "two  words" $SLURM_PROCID; exit 4'
"""

ROWS = [
    sh("a status", "exit 7"),
    sh("a status above 127", "exit 200"),
    sh("killed", "kill -9 $$"),
    sh("terminated", "kill -TERM $$"),
    sh("interrupted", "kill -INT $$"),
    # Without a core, which a container has another place for.
    sh("aborted", "ulimit -c 0; kill -ABRT $$"),
    sh("a fault", "ulimit -c 0; kill -SEGV $$"),
    sh("several statuses", "exit $((SLURM_PROCID * 3))", "-n4", own_lines=False),
    sh("several nodes' statuses", "exit $((SLURM_PROCID * 3))", "-N4", "-n4", own_lines=False),
    sh(
        "a signal beside a status",
        "test $SLURM_PROCID = 1 || exit 9; kill -TERM $$",
        "-n2",
        own_lines=False,
    ),
    sh(
        "kill on bad exit",
        "test $SLURM_PROCID = 1 || exit 3; exec sleep 30",
        "-n2",
        "-K",
        own_lines=False,
    ),
    Row("no such path", ("/no/such/program",)),
    Row("no such program", ("no-such-program",)),
    Row("a folder", ("/etc",)),
    Row("not executable", ("/etc/passwd",)),
    sh("labels", "echo out; echo err >&2", "-n3", "-l"),
    sh("unbuffered", "printf a; printf b", "-u"),
    sh(
        "files of output",
        "echo $SLURM_PROCID",
        "-n2",
        "-o{shared}/of-%t",
        after="cat of-0 of-1; rm of-0 of-1",
    ),
    sh("input for all", _ASK, "-n3", stdin="a b\nc\n"),
    sh("input for one", _ASK, "-n3", "--input=1", stdin="a b\nc\n"),
    sh("input for none", _ASK, "-n3", "--input=none", stdin="a b\nc\n"),
    sh("input from a file", _ASK, "-n2", "--input={shared}/in", files={"in": "x\ny\n"}),
    sh("much input", "echo $SLURM_PROCID $(wc -c)", "-N4", "-n8", stdin="x" * 300_000),
    Row("words", ("/bin/echo", "", "a\nb", "*", "-l", "--", "--container-image=x", "$HOME")),
    Row("dashes before the command", ("-n1", "--", "/bin/echo", "-n", "--")),
    Row("descriptors", ("/bin/ls", "/proc/self/fd")),
    Row("signals", ("/bin/grep", "-E", "^(SigBlk|SigIgn|ShdPnd)", "/proc/self/status")),
    sh("limits", "umask; ulimit -n; ulimit -c; cut -d' ' -f19 /proc/self/stat"),
    sh("the task is the process", "test $SLURM_TASK_PID = $$ && echo yes"),
    sh("slurm's variables", "env | grep ^SLURM | cut -d= -f1 | sort", "-n2"),
    sh(
        "ranks",
        "echo $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURM_NTASKS",
        # Without a number per node, how many a node gets depends on what else it runs.
        "-N2",
        "--ntasks-per-node=2",
    ),
    sh("no variables", "echo ${FOO-unset}", "--export=NONE", environ={"FOO": "x"}),
    sh("one variable", "echo ${FOO-unset} ${BAR-unset}", "--export=FOO=y", environ={"BAR": "x"}),
    sh("locale", "echo ${LC_CTYPE-unset} $LANG", environ={"LANG": "C"}),
    Row(
        "two components",
        ("-wnode1", "-l", *SH, "echo a; exit 2", ":", "-wnode2", _FLAGS, *SH, "echo b; exit 5"),
        own_lines=False,
    ),  # fmt: skip
    Row("several programs", ("-n3", "--multi-prog", "{shared}/p"), files={"p": _PROGRAMS}),
    Row("a rank without program", ("-n2", "--multi-prog", "{shared}/q"), files={"q": "0 true\n"}),
    Row("no file of programs", ("-n2", "--multi-prog", "{shared}/none"), own_lines=False),
    Row("no such option", ("--nosuch", "true"), own_lines=False),
    Row("an ambiguous option", ("--nt=2", "true"), own_lines=False),
    Row("a value is missing", ("-n",), own_lines=False),
    Row("no such node", ("-w", "node77", "true")),
    Row("a wrong number", ("-n", "x", "true")),
    Row("no command", ("-n1",)),
    Row("version", ("--version",)),
]


@pytest.fixture(scope="module")
def image(rig: Rig) -> tuple[str, str]:
    shared = rig.shared
    return f"--container-image={shared}/image.sqsh", f"--container-mounts={shared}:{shared}"


@pytest.fixture(scope="module")
def outcomes(
    rig: Rig, image: tuple[str, str], request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[list[subprocess.CompletedProcess[str]]]]]:
    """Run the selected rows, a few at a time, each through both."""
    test = "test_a_command_line_does_the_same"
    names = {item.callspec.id for item in request.session.items if item.originalname == test}
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield {
            row.name: pool.submit(run_both, rig, image, row) for row in ROWS if row.name in names
        }
        pool.shutdown(cancel_futures=True)


def run_both(rig: Rig, image: tuple[str, str], row: Row) -> list[subprocess.CompletedProcess[str]]:
    for name, text in row.files.items():
        (rig.shared / name).write_text(text)
    done = []
    for program, flags in ((SRUN, ()), (WRAPPER, image)):
        line: list[str] = []
        for word in (_FLAGS, *row.words):
            line += flags if word == _FLAGS else [word.replace("{shared}", str(rig.shared))]
        done.append(rig.run(program, *line, stdin=row.stdin, **row.environ))
        if row.after:
            done[-1].stdout += rig.run("sh", "-c", row.after).stdout
    return done


def own_lines(text: str) -> list[str]:
    """The lines of srun's, without numbers of steps and what depends on how busy a node is."""
    lines = [_NUMBERS.sub("", line) for line in _OWN_LINES.findall(text)]
    return sorted(lines)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_a_command_line_does_the_same(
    row: Row, outcomes: dict[str, Future[list[subprocess.CompletedProcess[str]]]]
) -> None:
    bare, wrapped = outcomes[row.name].result()
    both = f"{bare}\n{wrapped}"
    assert "Traceback" not in wrapped.stderr
    assert wrapped.returncode == bare.returncode, both
    assert sorted(wrapped.stdout.splitlines()) == sorted(bare.stdout.splitlines()), both
    if row.own_lines:
        assert own_lines(wrapped.stderr) == own_lines(bare.stderr), both


# What jobs and steps are called.

_TELL = """echo $SLURM_JOB_ID.$SLURM_STEP_ID $SLURM_JOB_NAME > $0.; mv $0. $0
until test -e $1; do sleep 0.1; done"""


@pytest.mark.parametrize(
    ("before", "options", "environ"),
    [
        ((), (), {}),
        ((), ("-Jmine",), {}),
        (("salloc", "-Jouter", "-n1"), (), {}),
        (("salloc", "-Jouter", "-n1"), ("-Jmine",), {}),
        (("salloc", "-n1"), (), {"SLURM_JOB_NAME": "ours"}),
    ],
    ids=["alone", "alone, named", "in a job", "in a job, named", "in a job, named by a variable"],
)
def test_jobs_and_steps_are_called_the_same(
    rig: Rig,
    image: tuple[str, str],
    before: tuple[str, ...],
    options: tuple[str, ...],
    environ: dict[str, str],
) -> None:
    names = []
    for program, flags in ((SRUN, ()), (WRAPPER, image)):
        folder = rig.folder(f"names-{program}")
        ready, go = folder / "ready", folder / "go"
        ready.unlink(missing_ok=True)
        go.unlink(missing_ok=True)
        words = (*before, program, *flags, *options, *SH, _TELL, str(ready), str(go))
        with rig.popen(*words, **environ) as process:
            is_there(ready)
            step, name = ready.read_text().split()
            job = step.partition(".")[0]
            called = rig.run("squeue", "-h", "-j", job, "-o", "%j").stdout
            step_called = rig.run("squeue", "-h", "-s", step, "-o", "%j").stdout
            go.touch()
            assert process.wait(timeout=60) == 0
        names.append((name, called, step_called))
    assert all(names[0])
    assert names[0] == names[1]


# Signals that srun itself is sent.

_INT, _TERM, _HUP, _USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
_WAIT = "while :; do sleep 0.1; done"


@dataclass(frozen=True)
class Sent:
    """Signals that srun is sent while its task runs.

    Attributes:
        name: as tests show it.
        signals: 2 SIGINT stand for a person who is in earnest.
        script: what the task runs.
        options: of srun.
        free: statuses that srun ends with depending on which of its signals is first.
    """

    name: str
    signals: tuple[int, ...]
    script: str = _WAIT
    options: tuple[str, ...] = ()
    free: tuple[int, ...] = ()


_KILLED = (128 + _INT, 128 + signal.SIGKILL)

SENT = [
    Sent("one interrupt", (_INT,), 'until test -e "$1"; do sleep 0.1; done; echo done; exit 3'),
    Sent("two interrupts", (_INT, _INT), "exec sleep 60", free=_KILLED),
    Sent("two interrupts, ignored", (_INT, _INT), f"trap '' INT; touch $0.; {_WAIT}"),
    Sent("one in a hurry", (_INT,), "exec sleep 60", ("--quit-on-interrupt",), free=_KILLED),
    Sent("termination", (_TERM,), "exec sleep 60"),
    Sent("hanging up", (_HUP,), "exec sleep 60"),
    Sent("another one", (_USR1,), f"trap 'echo caught; exit 4' USR1; touch $0.; {_WAIT}"),
]


def run_sent(rig: Rig, program: str, flags: tuple[str, ...], row: Sent) -> tuple[int, str, str]:
    folder = rig.folder(f"sent-{program}-{row.name.replace(' ', '-')}")
    ready, go = folder / "ready", folder / "go"
    script = f"touch $0; {row.script}"
    last = f"{ready}." if "$0." in row.script else str(ready)
    words = (program, *flags, *row.options, *SH, script, str(ready), str(go))
    with rig.popen(*words) as process:
        messages = Messages(process)
        is_there(Path(last))
        if len(row.signals) == 2:
            interrupt_twice(process, messages)
        else:
            process.send_signal(row.signals[0])
        if row.name == "one interrupt":
            assert messages.wait_for("interrupt (one more", more_than=0)
        go.touch()
        assert process.stdout is not None
        out = process.stdout.read()
        process.wait(timeout=60)
        return process.returncode, out, messages.all()


@pytest.fixture(scope="module")
def sent(
    rig: Rig, image: tuple[str, str], request: pytest.FixtureRequest
) -> Iterator[dict[tuple[str, str], Future[tuple[int, str, str]]]]:
    """Run the selected rows, a few at a time, each through both."""
    test = "test_a_signal_to_srun_does_the_same"
    names = {item.callspec.id for item in request.session.items if item.originalname == test}
    with ThreadPoolExecutor(max_workers=4) as pool:
        yield {
            (row.name, program): pool.submit(run_sent, rig, program, flags, row)
            for row in SENT
            for program, flags in ((SRUN, ()), (WRAPPER, image))
            if row.name in names
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in SENT])
def test_a_signal_to_srun_does_the_same(
    row: Sent, sent: dict[tuple[str, str], Future[tuple[int, str, str]]]
) -> None:
    bare, wrapped = (sent[row.name, program].result() for program in (SRUN, WRAPPER))
    if row.free:
        assert {bare[0], wrapped[0]} <= set(row.free), (bare, wrapped)
    else:
        assert wrapped[0] == bare[0], (bare, wrapped)
    assert wrapped[1] == bare[1]


def test_signals_leave_nothing(
    rig: Rig, sent: dict[tuple[str, str], Future[tuple[int, str, str]]]
) -> None:
    for outcome in sent.values():
        outcome.result()
    rig.wait_until_idle()
    assert remains(rig) == []


# Batch scripts.


@dataclass(frozen=True)
class Batch:
    """A submission, which is waited for.

    Attributes:
        name: as tests show it.
        words: sbatch's options, script and arguments.
        stdin: the script where it comes that way; {flags} is a line of container flags.
        on_the_line: the container flags are on the command line.
    """

    name: str
    words: tuple[str, ...]
    stdin: str = ""
    on_the_line: bool = True


_BODY = 'echo $SLURM_JOB_NAME $# "$@"; basename $0; exit 3\n'
BATCHES = [
    Batch("input", (), "#!/bin/sh\n#SBATCH -J given\n{flags}\n" + _BODY, on_the_line=False),
    Batch("input and flags", (), "#!/bin/sh\n" + _BODY),
    Batch("input that is no script", (), "echo x\n"),
    Batch("no input", ()),
    Batch("wrap", ("--wrap", _BODY)),
    Batch("wrap and arguments", ("--wrap", _BODY, "more")),
    Batch("killed", ("--wrap", "kill -9 $$")),
    Batch("no such script", ("no-such-script",)),
    Batch("no such option", ("--nosuch", "x")),
    Batch("array", ("--array=1-2", "--wrap", "echo $SLURM_ARRAY_TASK_ID; exit 6")),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in BATCHES])
def test_a_batch_script_does_the_same(rig: Rig, image: tuple[str, str], row: Batch) -> None:
    outcomes = []
    for program, flags in (("sbatch", ()), ("pyxis-sbatch", image)):
        folder = rig.folder("batch")
        line = f"#SBATCH {' '.join(flags)}" if flags else ""
        words = (*(flags if row.on_the_line else ()), "--wait", f"--output={folder}/%a", *row.words)
        done = rig.run(program, *words, stdin=row.stdin.replace("{flags}", line))
        texts = [path.read_text() for path in sorted(folder.iterdir())]
        submitted = done.stdout.startswith("Submitted batch job ")
        outcomes.append((done.returncode, submitted, texts))
    assert outcomes[0] == outcomes[1], done.stderr
