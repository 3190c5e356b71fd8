"""The `#SBATCH` lines of batch scripts."""

from __future__ import annotations

import pytest

from enroot_py import UsageError
from pyxis_py.command_lines.sbatch_script import BatchScript, directive_words, parse_script
from pyxis_py.command_lines.slurm_options import built_in_options

TABLE = built_in_options("sbatch")


def parse(text: str) -> BatchScript:
    return parse_script(text, TABLE, origin="job.sh")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#SBATCH -N 2", ["-N", "2"]),
        ("#SBATCH\t--mem=4G\t-n1", ["--mem=4G", "-n1"]),
        ("#SBATCH --job-name='a b' # why", ["--job-name=a b"]),
        ('#SBATCH -J "a # b"', ["-J", "a # b"]),
        (r"#SBATCH --container-image r.io\#n/x:1", ["--container-image", "r.io#n/x:1"]),
        ("#SBATCH --container-image=nvcr.io#nvidia/x:1", ["--container-image=nvcr.io#nvidia/x:1"]),
        (r"#SBATCH -J a\ b", ["-J", "a b"]),
        (r"#SBATCH -J 'a\b'", ["-J", r"a\b"]),
        ("#SBATCH -J ''", ["-J", ""]),
        ("#SBATCH", []),
        ("#SBATCH -J $HOME`id`", ["-J", "$HOME`id`"]),
        ("#SBATCHX -N 2", None),
        ("##SBATCH -N 2", None),
        (" #SBATCH -N 2", None),
        ("echo", None),
    ],
)  # fmt: skip
def test_words(line: str, words: list[str] | None) -> None:
    assert directive_words(line, origin="x") == words


def test_directives_end_at_the_first_command() -> None:
    script = parse(
        "#!/bin/bash -l\n# hello\n#SBATCH -N 2\n\n#SBATCH --mem=1G\nsrun a\n#SBATCH -N 9\n"
    )
    assert [(option.name, option.value, option.line) for option in script.options] == [
        ("nodes", "2", 3), ("mem", "1G", 5),
    ]  # fmt: skip
    assert script.interpreter == "/bin/bash -l"
    assert script.body_line == 6


def test_components_of_a_heterogeneous_job() -> None:
    script = parse("#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\ntrue\n")
    assert [[option.value for option in component] for component in script.components] == [
        ["1"], ["2"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#SBATCH --no-such", ["job.sh:2", "--no-such"]),
        ("#SBATCH -J 'a", ["job.sh:2", "quote"]),
        ("#SBATCH -N 2 true", ["job.sh:2", "'true'"]),
        ("#SBATCH --mem", ["job.sh:2", "--mem"]),
    ],
)
def test_faults_name_file_and_line(line: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"#!/bin/sh\n{line}\n")
    for word in words:
        assert word in str(caught.value)
