"""Command lines of srun and sbatch: flags out, the rest unharmed, tasks through task.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from enroot_py import UsageError
from pyxis_py.command_lines.components import split_components
from pyxis_py.command_lines.slurm_options import SlurmOption, built_in_options
from pyxis_py.command_lines.slurm_table import read_options
from pyxis_py.launchers.sbatch import (
    command_line,
    make_script,
    read_submission,
    strip_directives,
)
from pyxis_py.launchers.srun import plain_flag, rewrite_programs, srun_words, task_words
from pyxis_py.launchers.task import (
    PAYLOAD_MARK,
    expand_counts,
    observe_job,
    parse_line,
    step_folder,
)

SRUN, SBATCH = built_in_options("srun"), built_in_options("sbatch")
TASK = task_words([])[:-1]


def named(name: str) -> list[str]:
    return [f"--job-name={name}", *TASK]


def rewritten(*words: str, environ: dict[str, str] | None = None) -> list[str]:
    return srun_words(split_components(words, SRUN), environ or {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["true"], ["true"]),
        (["-n2", "true", "-n3"], ["-n2", "true", "-n3"]),
        (
            ["--container-image=a", "-n", "2", "cmd", "--container-image=b"],
            ["-n", "2", *named("cmd"), "--container-image=a", "--", "cmd", "--container-image=b"],
        ),
        (
            ["-l", "--container-image", "a b", "-N", "1", "--container-writable", "cmd"],
            [
                "-l",
                "-N",
                "1",
                *named("cmd"),
                "--container-image=a b",
                "--container-writable",
                "--",
                "cmd",
            ],
        ),
        (
            ["--container-image=a", "x", ":", "-n2", "y"],
            [*named("x"), "--container-image=a", "--", "x", ":", "-n2", "y"],
        ),
        (["--container-image=a"], []),
    ],
)
def test_flags_move_to_the_task(words: list[str], expected: list[str]) -> None:
    assert rewritten(*words) == expected


def test_a_variable_alone_makes_a_container() -> None:
    words = rewritten("cmd", environ={"PYXIS_CONTAINER_IMAGE": "a"})
    assert words == [*named("cmd"), "--", "cmd"]


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        (["/bin/a b"], {}, ["--job-name=a b"]),
        (["-J", "mine", "cmd"], {}, []),
        (["--job-n=mine", "cmd"], {}, []),
        (["cmd"], {"SLURM_JOB_NAME": "mine"}, []),
        (["cmd"], {"SLURM_JOB_ID": "7"}, ["--job-name=cmd"]),
        (["folder/"], {}, []),
    ],
)
def test_a_step_without_a_name_is_called_after_its_command(
    words: list[str], environ: dict[str, str], expected: list[str]
) -> None:
    given = rewritten("--container-image=a", *words, environ=environ)
    assert [word for word in given[: given.index(TASK[0])] if "job-name" in word] == expected


def test_the_name_of_a_job_is_what_its_steps_see() -> None:
    environ = {"SLURM_JOB_NAME": "the job's", "SLURM_JOB_ID": "7"}
    given = rewritten("--container-image=a", "cmd", environ=environ)
    assert given[0] == "--job-name=cmd"
    assert parse_line(given[len(TASK) + 1 :]).job_name == "the job's"


@pytest.mark.parametrize(
    "words",
    [
        ["--container-image=a", "--container-image=b", "cmd"],
        ["--container-image=a", "--container-writable", "--container-readonly", "cmd"],
        ["--container-writable=yes", "cmd"],
        ["--nosuch", "cmd"],
    ],
)
def test_mistakes_end_before_submission(words: list[str]) -> None:
    with pytest.raises(UsageError):
        rewritten(*words)


def test_every_program_of_several_starts_through_the_task() -> None:
    text = rewrite_programs("# comment\n0 echo a\n\n1-3  cmd '%t' b\n", ["--container-image=a b"])
    before = " ".join([*TASK, f"--hex={b'--container-image=a b'.hex()}", "--"])
    assert text == f"# comment\n0 {before} echo a\n\n1-3 {before} cmd '%t' b\n"


def test_programs_over_several_lines_stay_what_they_are() -> None:
    text = rewrite_programs("0\ta \\\n1 b\n# no \\\n2 c\n3 d", ["--container-image=x%t"])
    before = " ".join([*TASK, f"--hex={b'--container-image=x%t'.hex()}", "--"])
    assert text == f"0 {before} a \\\n1 b\n# no \\\n2 c\n3 {before} d\n"


def test_a_task_reads_flags_that_are_made_plain() -> None:
    flag = "--container-image=it's \udcff\n%t"
    assert parse_line([plain_flag(flag), "--", "c"]).options == ((0, flag.partition("=")[2]),)
    assert plain_flag("--container-image=a/b:c@d") == "--container-image=a/b:c@d"
    with pytest.raises(UsageError):
        parse_line(["--hex=abc", "--", "c"])


@pytest.mark.parametrize("words", [["--nosuch"], ["-n"], ["--nt=2"], ["-?"], ["--wrap", "a", "b"]])
def test_what_sbatch_refuses(words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        read_submission(words, SBATCH)
    assert refused.value.exit_code == (1 if "--wrap" in words else 255)


def test_a_closed_standard_input_is_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="closed"):
        read_submission([], SBATCH)


@pytest.mark.parametrize(
    ("words", "match"),
    [(["--nosuch=1", "--", "c"], "unknown flag"), (["--batch"], "no command"), ([], "no command")],
)
def test_a_task_takes_only_what_our_launchers_write(words: list[str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        parse_line(words)


def test_a_task_reads_flags_up_to_the_dashes() -> None:
    line = parse_line(["--container-image=a=b", "--batch", "--", "c", "--", "--batch"])
    assert (line.options, line.batch, line.command) == (((0, "a=b"),), True, ("c", "--", "--batch"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("4,2(x2)", [4, 2, 2])],
)
def test_counts_of_tasks(text: str, expected: list[int]) -> None:
    assert expand_counts(text) == expected


@pytest.mark.parametrize("text", ["", "a", "2(x", "1;2"])
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        expand_counts(text)


def test_a_step_is_known_by_slurms_variables() -> None:
    environ = {
        "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_NODEID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "2,5", "SLURM_STEP_NUM_TASKS": "7",
    }  # fmt: skip
    job = observe_job(environ)
    assert (job.job, job.step, job.local_tasks, job.tasks) == (12, 3, 5, 7)
    batch = observe_job(environ, batch=True)
    assert (batch.step, batch.local_tasks, batch.tasks) == (4294967291, 1, 0)
    assert step_folder(job, ["--a"]) != step_folder(job, ["--b"])
    assert step_folder(job, ["--a"]).startswith("12.3.")


SCRIPT = """\
#!/bin/bash
# a comment
#SBATCH -N 2 --container-image=in-script --job-name='two words'
#SBATCH --container-writable
#SBATCH --time=1
echo body
#SBATCH --container-image=too-late
"""


def test_directives_lose_the_flags_and_nothing_else() -> None:
    kept = strip_directives(SCRIPT, SBATCH, origin="job.sh")
    assert kept == "#SBATCH -N 2 '--job-name=two words'\n#SBATCH --time=1\n"


def test_the_command_line_wins_over_the_script(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    submission = read_submission(["--container-image=here", str(path), "arg"], SBATCH)
    assert submission is not None
    flags = [(value.option.name, value.argument) for value in submission.container]
    assert flags == [("container-writable", ""), ("container-image", "here")]
    assert (submission.name, submission.arguments) == ("job.sh", ("arg",))
    text = make_script(submission, SBATCH)
    head, _, payload = text.partition(PAYLOAD_MARK)
    assert payload == SCRIPT
    assert head.splitlines()[0] == "#!/bin/sh"
    assert '--container-image=here --batch -- "$0" "$@"' in head
    assert "in-script" not in head


def test_what_is_no_script_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "job.sh"
    path.write_text("echo no shell named\n")
    with pytest.raises(UsageError, match="no batch script"):
        read_submission([str(path)], SBATCH)


def test_wrapped_commands_become_scripts() -> None:
    submission = read_submission(["--container-image=a", "--wrap=echo 'x'"], SBATCH)
    assert submission is not None
    assert submission.text.startswith("#!/bin/sh\n")
    assert submission.text.endswith("\necho 'x'\n")
    assert submission.slurm == ((),)


def test_components_of_a_job_keep_their_options(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\ntrue\n")
    image = "--container-image=a"
    words = ["-n1", image, ":", "-n2", "-J", "x", ":", image, "-n3", str(path), ":", "y"]
    submission = read_submission(words, SBATCH)
    assert submission is not None
    assert [value.argument for value in submission.container] == ["a"]
    assert submission.arguments == (":", "y")
    name = "--job-name=job.sh"
    expected = ["-n1", name, ":", "-n2", "-J", "x", ":", "-n3", name]
    assert command_line(submission, SBATCH, named=False) == expected
    assert name not in command_line(submission, SBATCH, named=True)


@pytest.mark.parametrize("where", ["command line", "script"])
def test_flags_of_a_component_that_the_script_does_not_run_in_are_refused(
    tmp_path: Path, where: str
) -> None:
    path = tmp_path / "job.sh"
    second = "--container-image=b"
    lines = ["#SBATCH -n1", "#SBATCH hetjob", f"#SBATCH {second}"] if where == "script" else []
    path.write_text("\n".join(["#!/bin/sh", *lines, "true\n"]))
    words = [] if where == "script" else ["-n1", ":", second]
    with pytest.raises(UsageError, match="=b: given to component 1 of the job"):
        read_submission([*words, str(path)], SBATCH)


FAKE_SRUN = """\
#!/bin/sh
echo asked >> "$0.log"
[ ! -e "$0.broken" ] || exit 1
echo '  -N, --nodes=N               number of nodes'
echo '      --shiny-new=THING       an option that no table has'
"""


@pytest.fixture
def fake_srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that prints its options, alone in PATH, and a runtime folder of the test's own."""
    program = tmp_path / "srun"
    program.write_text(FAKE_SRUN)
    program.chmod(0o755)
    tmp_path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PYXIS_PLUGIN_OPTIONS", f"runtime_path={tmp_path}/nosuch")
    return program


def times_asked(program: Path) -> int:
    log = Path(f"{program}.log")
    return len(log.read_text().split()) if log.exists() else 0


def test_the_options_of_the_slurm_at_hand_are_asked_for_once(fake_srun: Path) -> None:
    first = read_options("srun")
    again = read_options("srun")
    assert again == first
    assert times_asked(fake_srun) == 1
    assert SlurmOption("shiny-new", "required", "", ("srun",)) in first
    assert {"container-image", "label"} <= {option.name for option in first}
    # Another Slurm is asked anew.
    fake_srun.write_text(FAKE_SRUN.replace("shiny-new", "even-newer"))
    assert "even-newer" in {option.name for option in read_options("srun")}
    assert times_asked(fake_srun) == 2


@pytest.mark.parametrize("damage", ["x", "a b c d\n", "nodes several N\n", " none \n"])
def test_a_damaged_table_is_made_anew(fake_srun: Path, damage: str) -> None:
    first = read_options("srun")
    (table,) = (fake_srun.parent / "pyxis").glob("srun-*.options")
    table.write_text(damage)
    assert read_options("srun") == first
    assert times_asked(fake_srun) == 2
    assert read_options("srun") == first
    assert times_asked(fake_srun) == 2


def test_a_slurm_that_cannot_be_asked_has_the_options_that_are_known(fake_srun: Path) -> None:
    Path(f"{fake_srun}.broken").touch()
    assert read_options("srun") == built_in_options("srun")
    fake_srun.unlink()
    assert read_options("srun") == built_in_options("srun")


def test_who_has_no_slurm_is_told_what_needs_none() -> None:
    script = "import sys; from pyxis_py.launchers.srun import become; sys.exit(become('srun', []))"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PATH": "/nowhere"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 127
    assert "cannot execute srun" in done.stderr
    assert "`pyxis run` needs no Slurm" in done.stderr
