"""srun's command line."""

from __future__ import annotations

import pytest

from pyxis_py.command_lines.slurm_options import OTHER_NAMES, built_in_options
from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError, cut, parse_time
from pyxis_py.kubernetes.launcher.job.signals import signal_number
from pyxis_py.kubernetes.launcher.srun.option_table import ALIASES, OPTIONS
from pyxis_py.kubernetes.launcher.srun.options import parse_signal, parse_srun


def test_the_table_has_every_option_of_srun_once() -> None:
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))
    # Ours, of sbatch and of the site are not srun's in a job.
    missing = {option.name for option in built_in_options("srun")} - set(names)
    assert missing - set(ALIASES) <= {"usage"}, missing
    assert OTHER_NAMES.items() <= ALIASES.items()


def test_letters_and_arguments_are_those_of_the_package_s_table() -> None:
    known = {option.name: option for option in built_in_options("srun")}
    for option in OPTIONS:
        if option.name in known:
            row = known[option.name]
            assert (option.short, option.argument) == (row.short, row.argument), option.name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nosuch", "true"], "unknown option --nosuch"),
        (["-y", "true"], "unknown option -y"),
        (["--gpu", "1", "true"], "may be any of"),
        (["--pty", "bash"], "no terminal"),
        (["--het-group=1", "true"], "one component"),
        (["--bcast", "true"], "not broadcast"),
        (["--container-save=x", "true"], "pod's container"),
        (["-n", "x", "true"], "not a number"),
        (["-n", "0", "true"], "not a number"),
        (["-n"], "needs a value"),
        (["--label=3", "true"], "takes no value"),
        (["-N", "4-x", "true"], "not a number of nodes"),
        (["-w", "n[1-", "true"], "brackets"),
        (["-w", "./hosts", "true"], "files are not read"),
        (["--gpus=some", "true"], "not a number of GPUs"),
        (["-t", "tomorrow", "true"], "not a time"),
        (["-W", "-1", "true"], "not a number"),
    ],
)
def test_what_cannot_be_done_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(CommandLineError, match=message):
        parse_srun(words, {})


def test_options_end_at_the_first_word_of_the_command() -> None:
    srun = parse_srun(["-N2", "-ln4", "prog", "-n", "8", "--label"], {})
    assert srun.nodes == (2, 0)
    assert srun.ntasks == 4
    assert srun.has("label")
    assert srun.command == ("prog", "-n", "8", "--label")


def test_two_dashes_end_the_options() -> None:
    assert parse_srun(["-n1", "--", "-x"], {}).command == ("-x",)


def test_abbreviations_and_optional_values() -> None:
    srun = parse_srun(["--kill-on=1", "--nodel=a,b", "-K", "prog"], {})
    assert srun.kill_on_bad_exit
    assert srun.nodelist == ("a", "b")


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        ([], {"SLURM_KILL_BAD_EXIT": "1"}, True),
        ([], {"SLURM_KILL_BAD_EXIT": "0"}, False),
        (["-K0"], {"SLURM_KILL_BAD_EXIT": "1"}, False),
        (["--kill-on-bad-exit"], {}, True),
        ([], {}, False),
    ],
)
def test_kill_on_bad_exit(words: list[str], environ: dict[str, str], expected: bool) -> None:
    assert parse_srun([*words, "prog"], environ).kill_on_bad_exit is expected


@pytest.mark.parametrize(("value", "expected"), [("", True), ("1", True), ("yes", True),
                                                 ("0", False), ("no", False)])  # fmt: skip
def test_a_switch_s_variable_may_be_empty_or_false(value: str, expected: bool) -> None:
    assert parse_srun(["prog"], {"SLURM_LABELIO": value}).has("label") is expected


def test_the_command_line_wins_over_variables() -> None:
    environ = {"SLURM_NTASKS": "8", "SLURM_JOB_NUM_NODES": "4", "SLURM_NNODES": "2"}
    assert parse_srun(["prog"], environ).ntasks == 8
    assert parse_srun(["prog"], environ).nodes == (4, 0)
    assert parse_srun(["-n3", "-N1-2", "prog"], environ)[2:4] == ((1, 2), 3)


def test_slurm_cpus_per_task_is_not_read_but_srun_cpus_per_task_is() -> None:
    """As since Slurm 22.05: it would imply --exact."""
    assert parse_srun(["prog"], {"SLURM_CPUS_PER_TASK": "8"}).cpus_per_task == 0
    assert parse_srun(["prog"], {"SRUN_CPUS_PER_TASK": "8"}).cpus_per_task == 8


@pytest.mark.parametrize(
    ("words", "per_node", "total", "per_task"),
    [
        (["--gres=gpu:h100:4"], 4, -1, -1),
        (["--gres=gpu"], 1, -1, -1),
        (["--gres=none"], 0, -1, -1),
        (["--gres=fpga:2"], -1, -1, -1),
        (["--gpus-per-node=a100:2"], 2, -1, -1),
        (["-G", "6"], -1, 6, -1),
        (["--gpus-per-task=1"], -1, -1, 1),
        ([], -1, -1, -1),
    ],
)
def test_gpus(words: list[str], per_node: int, total: int, per_task: int) -> None:
    srun = parse_srun([*words, "prog"], {})
    assert (srun.gpus_per_node, srun.gpus, srun.gpus_per_task) == (per_node, total, per_task)


def test_gpus_on_the_command_line_displace_those_of_variables() -> None:
    srun = parse_srun(["--gpus-per-task=1", "prog"], {"SLURM_GPUS_PER_NODE": "8"})
    assert (srun.gpus_per_node, srun.gpus_per_task) == (-1, 1)


@pytest.mark.parametrize(("text", "seconds"), [("1", 60), ("1:30", 90), ("1:00:00", 3600),
                                               ("1-0", 86400), ("1-2:3", 93780),
                                               ("1-2:3:4", 93784), ("UNLIMITED", None)],
)  # fmt: skip
def test_times(text: str, seconds: int | None) -> None:
    assert parse_time(text, "--time") == seconds


@pytest.mark.parametrize(("text", "expected"), [("USR1@30", (10, 30)), ("B:TERM", (15, 60)),
                                                ("R:10@5", (10, 5)), ("SIGUSR2@0", (12, 0))],
)  # fmt: skip
def test_signals(text: str, expected: tuple[int, int]) -> None:
    assert parse_signal(text) == expected


@pytest.mark.parametrize("text", ["", "NOSUCH", "0", "65", "_DFL", "USR1 "])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(CommandLineError):
        signal_number(text)


def test_options_may_follow_words_where_a_command_allows_it() -> None:
    given, words = cut(["12", "-n", "3", "13"], OPTIONS, mixed=True)
    assert given == [("ntasks", "3")]
    assert words == ["12", "13"]
