"""Command lines of srun and sbatch are cut as getopt_long cuts them."""

from __future__ import annotations

import pytest

from enroot_py import UsageError
from pyxis_py.command_lines.slurm_options import (
    OTHER_NAMES,
    built_in_options,
    options_from_help,
    split_command_line,
)
from pyxis_py.options import OPTIONS

SRUN = built_in_options("srun")
SBATCH = built_in_options("sbatch")


def split(line: str) -> tuple[list[tuple[str, str]], list[str]]:
    given, command = split_command_line(line.split(), SRUN)
    return [(option.name, option.value) for option in given], command


@pytest.mark.parametrize(
    ("line", "options", "command"),
    [
        ("true", [], ["true"]),
        ("-N2 true -n 3", [("nodes", "2")], ["true", "-n", "3"]),
        ("-N 2 -n4 true", [("nodes", "2"), ("ntasks", "4")], ["true"]),
        ("-lN 2 true", [("label", ""), ("nodes", "2")], ["true"]),
        ("-vvv true", [("verbose", "")] * 3, ["true"]),
        ("--nodes=2 --ntasks 4 true", [("nodes", "2"), ("ntasks", "4")], ["true"]),
        ("--ntasks-per-no=2 true", [("ntasks-per-node", "2")], ["true"]),
        ("--exclusive true", [("exclusive", "")], ["true"]),
        ("--exclusive=user true", [("exclusive", "user")], ["true"]),
        ("-K true", [("kill-on-bad-exit", "")], ["true"]),
        ("-K0 true", [("kill-on-bad-exit", "0")], ["true"]),
        ("--container-image=a -- -x", [("container-image", "a")], ["-x"]),
        ("--container-image a -l", [("container-image", "a"), ("label", "")], []),
        ("--container-writable true", [("container-writable", "")], ["true"]),
        ("--export=NONE - --pty", [("export", "NONE")], ["-", "--pty"]),
        ("--mem= true", [("mem", "")], ["true"]),
        ("--tasks-per-node 2 true", [("ntasks-per-node", "2")], ["true"]),
        ("--tasks=2 true", [("ntasks-per-node", "2")], ["true"]),
        ("--cpu_bind=none --pack-group 1 x", [("cpu-bind", "none"), ("het-group", "1")], ["x"]),
        ("--overlap=force --resv-ports=2 x", [("overlap", "force"), ("resv-ports", "2")], ["x"]),
        ("--overlap true", [("overlap", "")], ["true"]),
        ("-F hosts true", [("nodefile", "hosts")], ["true"]),
        ("--accel-bind g --msg-timeout=9 x", [("accel-bind", "g"), ("msg-timeout", "9")], ["x"]),
    ],
)
def test_lines(line: str, options: list[tuple[str, str]], command: list[str]) -> None:
    assert split(line) == (options, command)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("--no-such-option true", "--no-such-option"),
        ("--nt=2 true", "ambiguous"),
        ("--label=yes true", "takes no value"),
        ("--nodes", "needs a value"),
        ("-N", "needs a value"),
        ("-l9 true", "-9"),
        ("--=x true", "unknown"),
    ],
)
def test_wrong_lines(line: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        split(line)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--export", "NONE", "job.sh"], "export", "NONE"),
        (["--acctg-freq", "30", "job.sh"], "acctg-freq", "30"),
        (["--batch", "haswell", "job.sh"], "batch", "haswell"),
        (["--context", "c", "job.sh"], "context", "c"),
        (["--cluster", "a", "job.sh"], "clusters", "a"),
        (["--ntasks-per-tres", "2", "job.sh"], "ntasks-per-gpu", "2"),
    ],
)
def test_lines_of_sbatch(words: list[str], name: str, value: str) -> None:
    (given,), command = split_command_line(words, SBATCH, command="sbatch")
    assert (given.name, given.value, given.words) == (name, value, tuple(words[:2]))
    assert command == ["job.sh"]


def test_every_other_name_stands_for_an_option_with_the_same_value() -> None:
    for table in (SRUN, SBATCH):
        rows = {option.name: option for option in table}
        for other, name in OTHER_NAMES.items():
            assert other not in rows or rows[other].argument == rows[name].argument


def test_words_are_kept_so_that_srun_gets_what_was_typed() -> None:
    given, _ = split_command_line(["-lN", "2", "--mem", "4G", "x"], SRUN)
    assert [option.words for option in given] == [("-l",), ("-N", "2"), ("--mem", "4G")]


def test_both_tables_have_every_container_flag() -> None:
    for table in (SRUN, SBATCH):
        rows = {option.name: option for option in table}
        for flag in OPTIONS:
            assert rows[flag.name].argument == ("required" if flag.takes_argument else "none")


def test_names_and_letters_are_unique_in_each_table() -> None:
    for table in (SRUN, SBATCH):
        names = [option.name for option in table]
        letters = [option.short for option in table if option.short]
        assert len(set(names)) == len(names)
        assert len(set(letters)) == len(letters)


HELP = """Usage: srun [OPTIONS(0)...] executable
  -A, --account=name          charge job to specified account
      --brand-new=value       a later Slurm's option
      --newer[=value]         another one
  -y, --newest                and one more
      --container             Path to OCI container bundle
"""


def test_help_teaches_options_that_the_table_lacks() -> None:
    table = options_from_help(HELP, "srun")
    given, command = split_command_line(
        ["--brand-new", "1", "--newer", "-y", "-lA", "me", "x"], table
    )
    assert [(option.name, option.value) for option in given] == [
        ("brand-new", "1"), ("newer", ""), ("newest", ""), ("label", ""), ("account", "me"),
    ]  # fmt: skip
    assert command == ["x"]
    assert {row.name: row for row in table}["container"].argument == "required"
