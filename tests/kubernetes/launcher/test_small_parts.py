"""Names of output files, --multi-prog, bindings, containers, deadlines, labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyxis_py.kubernetes.launcher.commands.client import CommandError
from pyxis_py.kubernetes.launcher.commands.scontrol import scontrol
from pyxis_py.kubernetes.launcher.job.binding import bind_cpus
from pyxis_py.kubernetes.launcher.job.command_line import CommandLineError
from pyxis_py.kubernetes.launcher.job.deadlines import (
    Deadline,
    eviction_deadlines,
    time_limit_deadlines,
)
from pyxis_py.kubernetes.launcher.job.job_file import parse_job
from pyxis_py.kubernetes.launcher.job.output_names import Place, expand_name, is_per_task
from pyxis_py.kubernetes.launcher.srun.containers import ContainerStep, read_container
from pyxis_py.kubernetes.launcher.srun.hostfile import read_hostfile
from pyxis_py.kubernetes.launcher.srun.launch import check_mpi
from pyxis_py.kubernetes.launcher.srun.multi_prog import parse_programs
from pyxis_py.kubernetes.launcher.srun.options import parse_srun
from pyxis_py.kubernetes.launcher.wire.streams import Labels
from tests.kubernetes.launcher.pods import job_content

STEP = Place(12, "train", "user1", "n3.example", 10, "4", "7", 3, 5)
BATCH = Place(12, "train", "user1", "n0", 12)


@pytest.mark.parametrize(
    ("pattern", "place", "name"),
    [
        ("%x-%j.out", BATCH, "train-12.out"),
        ("%A_%a", STEP, "10_4"),
        ("%a", BATCH, "4294967294"),
        ("%A", BATCH, "12"),
        ("%J.%s.%t.%n.%N", STEP, "12.7.7.5.3.n3"),
        ("%J-%s", BATCH, "12-batch"),
        ("%4t-%2n-%08j", STEP, "0005-03-00000012"),
        ("%99t", STEP, "0000000005"),
        ("%%j-%u-%b", STEP, "%j-user1-4"),
        ("%q", STEP, "%q"),
        ("100%", STEP, "100%"),
        ("\\%j", STEP, "%j"),
        ("%5x", STEP, "train"),
    ],
)
def test_names_of_files(pattern: str, place: Place, name: str) -> None:
    assert expand_name(pattern, place) == name


@pytest.mark.parametrize(("pattern", "expected"), [("o-%t", True), ("%2n", True), ("%N", True),
                                                   ("%j", False), ("%%t", False),
                                                   ("\\%t", False)])  # fmt: skip
def test_files_of_tasks(pattern: str, expected: bool) -> None:
    assert is_per_task(pattern) is expected


def test_programs_of_tasks() -> None:
    text = "# all\n1,3-9 b %t 'x y'\n0 a \\\n  %o\n* rest %o\n2 c # end\n\n"
    assert parse_programs(text, 5, ["more"]) == {
        0: ["a", "0", "more"],
        1: ["b", "1", "x y", "more"],
        2: ["c", "more"],
        3: ["b", "3", "x y", "more"],
        4: ["b", "4", "x y", "more"],
    }


def test_a_star_is_for_tasks_that_no_line_names() -> None:
    assert parse_programs("* rest %t %o\n0 a", 3, []) == {
        0: ["a"], 1: ["rest", "1", "0"], 2: ["rest", "2", "1"],
    }  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [("0 a", "task 1"), ("x a", "not tasks"),
                                               ("0-1", "no program"), ("0 'a", "line 1")],
)  # fmt: skip
def test_malformed_files_of_programs(text: str, message: str) -> None:
    with pytest.raises(CommandLineError, match=message):
        parse_programs(text, 2, [])


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", 0, ()),
        ("none", 0, ()),
        ("verbose", 0, ()),
        ("quiet,none", 1, ()),
        ("cores", 1, (12, 14)),
        ("verbose,threads", 0, (8, 10)),
        ("rank", 2, (8, 10)),
        ("map_cpu:14,8", 1, (8,)),
        ("map_cpu:0x8*2,14", 2, (14,)),
        ("mask_cpu:0x100,0x500", 1, (8, 10)),
    ],
)
def test_cpus_of_tasks(text: str, place: int, expected: tuple[int, ...]) -> None:
    assert bind_cpus(text, (8, 10, 12, 14), place, 2) == expected


@pytest.mark.parametrize("text", ["sockets", "map_ldom:1", "map_cpu:x", "map_cpu:3", "mask_cpu:",
                                  "nosuch", "map_cpu"])  # fmt: skip
def test_bindings_that_a_pod_cannot_have(text: str) -> None:
    with pytest.raises(CommandLineError, match="--cpu-bind"):
        bind_cpus(text, (8, 10), 0, 1)


JOB = parse_job(
    job_content(containerImage="docker://nvcr.io#a/b:1", containerMounts=["/data", "/w"],
                containerEnv=["J"]), {},
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", None),
        ("--container-image=nvcr.io#a/b:1", ContainerStep("", ("J",))),
        ("--container-image=nvcr.io\\#a/b:1 --container-env=A,B --container-workdir=/w",
         ContainerStep("/w", ("A", "B", "J"))),
        ("--container-workdir=/w", ContainerStep("/w", None)),
        ("--container-name=x", ContainerStep("", ("J",))),
        ("--container-image=nvcr.io#a/b:1 --container-mounts=/x:/data:ro,/w",
         ContainerStep("", ("J",))),
    ],
)  # fmt: skip
def test_a_step_s_container_is_the_job_s(words: str, expected: ContainerStep | None) -> None:
    assert read_container(parse_srun([*words.split(), "prog"], {}), JOB) == expected


def test_steps_have_the_job_s_container_options_as_under_slurm() -> None:
    job = JOB._replace(contained=True)
    assert read_container(parse_srun(["prog"], {}), job) == ContainerStep("", ("J",))
    own = parse_srun(["--container-workdir=/w", "--container-env=A", "prog"], {})
    assert read_container(own, job) == ContainerStep("/w", ("A", "J"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--container-image=other", "image-mixed"),
        ("--container-image=nvcr.io#a/b:1 --container-mounts=/data:/other", "mount-mixed.*/other"),
    ],
)
def test_another_container_is_refused_with_a_code(words: str, message: str) -> None:
    with pytest.raises(CommandLineError, match=message):
        read_container(parse_srun([*words.split(), "prog"], {}), JOB)


@pytest.mark.parametrize("kind", ["pmix", "pmix_v4"])
def test_mpi_servers_that_are_not_there(kind: str) -> None:
    srun = parse_srun([f"--mpi={kind}", "prog"], {})
    with pytest.raises(CommandLineError, match="mpirun"):
        check_mpi(srun, JOB)
    check_mpi(srun, JOB._replace(ignore_mpi=True))
    check_mpi(parse_srun(["--mpi=none", "prog"], {}), JOB)
    check_mpi(parse_srun(["--mpi=pmi2", "prog"], {}), JOB)


def test_an_unknown_kind_of_mpi() -> None:
    with pytest.raises(CommandLineError, match="not a type"):
        check_mpi(parse_srun(["--mpi=nosuch", "prog"], {}), JOB)


@pytest.mark.parametrize(
    ("limit", "lead", "expected"),
    [
        (None, 60, ()),
        (100, 0, ((100, "end"), (130, "kill"))),
        (100, 60, ((40, "warn"), (100, "end"), (130, "kill"))),
        (100, 600, ((0, "warn"), (100, "end"), (130, "kill"))),
    ],
)
def test_a_time_limit(limit: int | None, lead: int, expected: tuple[tuple[int, str], ...]) -> None:
    assert time_limit_deadlines(limit, lead) == tuple(Deadline(*row) for row in expected)


@pytest.mark.parametrize(
    ("grace", "warned", "expected"),
    [
        (30, False, ((0, "end"), (27, "kill"))),
        (600, True, ((0, "warn"), (585, "end"), (597, "kill"))),
        (10, True, ((0, "warn"), (0, "end"), (7, "kill"))),
        (1, False, ((0, "end"), (0, "kill"))),
    ],
)
def test_an_eviction(grace: int, warned: bool, expected: tuple[tuple[int, str], ...]) -> None:
    found = eviction_deadlines(grace, warned=warned)
    assert found == tuple(Deadline(*row) for row in expected)


def test_labels_are_as_wide_as_the_largest_number_and_keep_lines_whole() -> None:
    labels = Labels(3, 12)
    assert labels.add(b"one\ntw") == b" 3: one\n"
    assert labels.add(b"o\n\n") == b" 3: two\n 3: \n"
    assert labels.add(b"end") == b""
    assert labels.add(b"") == b" 3: end\n"
    assert labels.add(b"") == b""


def test_a_file_of_hosts(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("b\n# none\na[1-2] # two\n\nb\n")
    assert read_hostfile(str(path)) == ("b", "a1", "a2", "b")
    assert read_hostfile("") == ()
    with pytest.raises(CommandLineError, match="SLURM_HOSTFILE"):
        read_hostfile("/nonexistent")


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("show hostnames a[1-2]", "a1\na2"),
        ("show hostname a[1-2]", "a1\na2"),
        ("sho HOSTN a[1-2]", "a1\na2"),
        ("show hostnames=a[1-2]", "a1\na2"),
        ("show -o hostname a1", "a1"),
        ("show hostl a1,a2", "a[1-2]"),
        ("show hostlistsorted a2,a1,a1", "a[1-2]"),
        ("show hostlists a2,a1", "a[1-2]"),
    ],
)
def test_scontrol_takes_the_beginnings_of_names(
    words: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scontrol(words.split()) == 0
    assert capsys.readouterr().out == f"{printed}\n"


@pytest.mark.parametrize("words", ["show host a1", "sh hostnames a1", "show hostnamesx a1"])
def test_scontrol_takes_no_name_that_slurms_does_not(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYXIS_CONTROLLER", raising=False)
    with pytest.raises(CommandError):
        scontrol(words.split())
