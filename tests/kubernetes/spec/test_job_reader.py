"""From a command line, variables and a script to one specification."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pyxis_py.command_lines.slurm_options import OTHER_NAMES, GivenOption, built_in_options
from pyxis_py.kubernetes.spec import option_rules
from pyxis_py.kubernetes.spec.job_reader import _READERS, merge, read_job
from pyxis_py.kubernetes.spec.jobspec import JobSpec
from pyxis_py.kubernetes.spec.notes import REFUSALS, Ledger, RefusedError
from pyxis_py.options import OPTIONS
from tests.kubernetes.samples import SCRIPT, container, render, script


def read(
    text: str, *words: str, environ: Mapping[str, str] | None = None
) -> tuple[JobSpec, Ledger]:
    return read_job([*words, "x/job.sh"], lambda path: text, environ or {})


def test_every_option_of_sbatch_has_exactly_one_rule() -> None:
    container = {option.name for option in OPTIONS}
    rules = [
        *option_rules.READ, *option_rules.LAUNCHER, *option_rules.IGNORED, *option_rules.REFUSED,
    ]  # fmt: skip
    assert len(rules) == len(set(rules))
    names = {option.name for option in built_in_options("sbatch")} - set(OTHER_NAMES)
    assert names == set(rules) | container


def test_every_option_that_is_read_has_a_reader() -> None:
    assert set(_READERS) == option_rules.READ - {"wrap"}


def test_every_variable_stands_for_an_option() -> None:
    names = {option.name for option in built_in_options("sbatch")}
    assert set(option_rules.VARIABLES.values()) <= names


@pytest.mark.parametrize(("script", "environ", "words", "expected"), [
    ("-N 2", {}, (), 2),
    ("-N 2", {}, ("-N", "8"), 8),
    ("--nodes=2", {}, ("-N8",), 8),
    ("-N 2\n#SBATCH -N 3", {}, (), 3),
])  # fmt: skip
def test_the_command_line_wins(
    script: str, environ: dict[str, str], words: tuple[str, ...], expected: int
) -> None:
    assert read(f"#!/bin/sh\n#SBATCH {script}\n", *words, environ=environ)[0].nodes == expected


@pytest.mark.parametrize(("words", "expected"), [((), "env"), (("-p", "line"), "line")])
def test_variables_stand_between_script_and_command_line(
    words: tuple[str, ...], expected: str
) -> None:
    text = "#!/bin/sh\n#SBATCH -p script\n"
    job, _ = read(text, *words, environ={"SBATCH_PARTITION": "env"})
    assert job.partitions == (expected,)


def test_options_that_exclude_each_other_displace_those_of_weaker_sources() -> None:
    job, ledger = read("#!/bin/sh\n#SBATCH --mem=1G\n#SBATCH --requeue\n", "--mem-per-cpu=2G",
                       "--no-requeue")  # fmt: skip
    assert (job.memory, job.memory_per, job.requeue) == (2048, "cpu", False)
    ledger.close()


def test_options_that_exclude_each_other_within_one_source_are_refused() -> None:
    _, ledger = read("#!/bin/sh\n#SBATCH --mem=1G\n#SBATCH --mem-per-cpu=1G\n")
    with pytest.raises(RefusedError) as caught:
        ledger.close()
    assert [(note.code, note.line) for note in caught.value.notes] == [("invalid-value", 3)]


def test_merging_keeps_the_last_of_each_name() -> None:
    first, second = (GivenOption("nodes", value, ()) for value in "12")
    assert merge([[first], [second]]) == [second]


def test_the_training_script() -> None:
    job, ledger = read(SCRIPT)
    ledger.close()
    assert job.script == SCRIPT
    assert job.script_name == "job.sh"
    assert (job.nodes, job.segment, job.time_limit) == (64, 16, 259200)
    assert job.container.image == "nvcr.io#nvidia/pytorch:25.06-py3"
    assert len(job.container.mounts) == 3


def test_arguments_of_the_script() -> None:
    job, _ = read_job(["-N2", "job.sh", "-N3", "x"], lambda path: "#!/bin/sh\n", {})
    assert (job.nodes, job.arguments) == (2, ("-N3", "x"))


def test_a_wrapped_command() -> None:
    job, _ = read_job(["--wrap=echo hi", "-N2"], lambda path: pytest.fail("no script"), {})
    assert job.script.endswith("\n\necho hi\n") and job.name == "wrap" and job.nodes == 2


def test_a_wrapped_command_of_several_lines() -> None:
    job, ledger = read_job(["--wrap=a\n\tb"], lambda path: pytest.fail("no script"), {})
    ledger.close()
    assert job.script.endswith("\n\na\n\tb\n")


def test_a_wrapped_command_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(RefusedError, match="--wrap: not UTF-8"):
        read_job(["--wrap=\udcff"], lambda path: pytest.fail("no script"), {})


def test_a_wrapped_command_and_a_script_are_an_error() -> None:
    with pytest.raises(RefusedError, match="both --wrap and a script"):
        read("#!/bin/sh\n", "--wrap=x")


def test_a_script_without_a_shell_is_an_error() -> None:
    with pytest.raises(RefusedError, match="its first line has to begin with #!"):
        read("srun true\n")


@pytest.mark.parametrize(("text", "words", "code", "said"), [
    ("#!/bin/sh\n#SBATCH --nope\n", (), "unknown-option", "job.sh:2: sbatch: unknown option"),
    ("#!/bin/sh\n#SBATCH --n\n", (), "unknown-option", "job.sh:2: sbatch: option --n is amb"),
    ("#!/bin/sh\n#SBATCH -N\n", (), "unknown-option", "job.sh:2: sbatch: -N"),
    ("#!/bin/sh\n#SBATCH word\n", (), "unknown-option", "job.sh:2: not an option: 'word'"),
    ("#!/bin/sh\n#SBATCH 'x\n", (), "invalid-value", "job.sh:2: a quote is not closed"),
    ("#!/bin/sh\n", ("--nope",), "unknown-option", "unknown option --nope"),
    ("", (), "invalid-value", "job.sh is no batch script: it is empty"),
    (" \n\n", (), "invalid-value", "it is empty"),
    ("\ufeff#!/bin/sh\n", (), "invalid-value", "its first line has to begin with #!"),
    ("#!/bin/sh\necho \0\n", (), "invalid-value", "null character"),
    ("#!/bin/sh\r\necho\r\n", (), "invalid-value", "line ends of DOS"),
    ("#!/bin/sh\n", ("--wrap=x",), "invalid-value", "both --wrap and a script"),
])  # fmt: skip
def test_what_sbatch_cannot_read_is_refused(
    text: str, words: tuple[str, ...], code: str, said: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        read(text, *words)
    assert caught.value.codes == {code}
    assert said in str(caught.value)


@pytest.mark.parametrize(("words", "given"), [
    (("--requeue", "--no-requeue"), {"no-requeue"}),
    (("--no-requeue", "--requeue"), {"requeue"}),
    (("--exclusive", "-s"), {"oversubscribe"}),
    (("-s", "--exclusive=exclusive"), {"exclusive"}),
    (("--dependency=", "-C", "", "--gres="), set()),
    (("--open-mode=a", "--hint=nomultithread,compute_bound"), {"open-mode", "hint"}),
    (("-m", "block:cyclic,NoPack", "--gpu-bind=verbose,map_gpu:0,1"), {"distribution", "gpu-bind"}),
    (("--tasks-per-node=2",), {"ntasks-per-node"}),
    (("--exclusive=EXCLUSIVE",), {"exclusive"}), (("--exclusive=User",), {"exclusive"}),
])  # fmt: skip
def test_what_sbatch_takes_is_taken(words: tuple[str, ...], given: set[str]) -> None:
    """Held against sbatch 22.05."""
    job, ledger = read("#!/bin/sh\n", *words)
    ledger.close()
    assert {option.name for option in job.given} == given


@pytest.mark.parametrize("words", [
    ("--open-mode=foo",), ("--hint=foo",), ("--hint=",), ("-m", "foo"), ("-m", "plane"),
    ("--gpu-bind=foo",), ("-m", "fcyclic"), ("--threads-per-core=a",), ("--ntasks-per-socket=0",),
    ("--ntasks-per-gpu=2", "--gpus-per-task=1"), ("--ntasks-per-gpu=2", "--ntasks-per-node=2"),
    ("--mem=1", "--mem-per-cpu=2"), ("-m", "plane=0"), ("-m", "plane=4,pack"),
    ("-m", "plane=4:block"), ("--gpu-bind=map_gpu:x",), ("--gpu-bind=map_gpu:a",),
    ("--gpu-bind=mask_gpu:g",),
])  # fmt: skip
def test_what_sbatch_refuses_is_refused(words: tuple[str, ...]) -> None:
    """Held against sbatch 22.05."""
    _, ledger = read("#!/bin/sh\n", *words)
    with pytest.raises(RefusedError) as caught:
        ledger.close()
    assert caught.value.codes == {"invalid-value"}


def test_an_empty_value_takes_the_script_s_back() -> None:
    job, _ = read("#!/bin/sh\n#SBATCH -d afterok:1\n", "--dependency=")
    assert job.dependency == read("#!/bin/sh\n")[0].dependency


@pytest.mark.parametrize(("environ", "name", "value"), [
    ({"SBATCH_OVERCOMMIT": ""}, "overcommit", ""),
    ({"SBATCH_DISTRIBUTION": "cyclic"}, "distribution", "cyclic"),
    ({"SBATCH_WAIT": "1"}, "wait", ""),
    ({"SBATCH_SPREAD_JOB": "YeS"}, "spread-job", ""),
    ({"SBATCH_NO_REQUEUE": " -01"}, "no-requeue", ""),
    ({"SBATCH_EXCLUSIVE": ""}, "exclusive", ""),
    ({"SBATCH_REQ_SWITCH": "1"}, "switches", "1"),
    ({"SBATCH_REQ_SWITCH": "1", "SBATCH_WAIT4SWITCH": "10"}, "switches", "1@10"),
])  # fmt: skip
def test_variables_of_sbatch(environ: dict[str, str], name: str, value: str) -> None:
    job, _ = read("#!/bin/sh\n", environ=environ)
    assert [(option.name, option.value) for option in job.given] == [(name, value)]


@pytest.mark.parametrize("value", ["0", "00", "no", "n", "y", "foo", "true", "on", "1x", "0x1"])
@pytest.mark.parametrize("name", ["OVERCOMMIT", "REQUEUE", "NO_REQUEUE", "WAIT", "USE_MIN_NODES"])
def test_variables_that_leave_a_switch_unset(name: str, value: str) -> None:
    """Held against sbatch 22.05."""
    job, ledger = read("#!/bin/sh\n", environ={f"SBATCH_{name}": value})
    ledger.close()
    assert not job.given


@pytest.mark.parametrize("option", ["error", "input", "output"])
@pytest.mark.parametrize(("value", "expected"), [
    ("none", "/dev/null"), ("NoNe", "/dev/null"), ("none.txt", "none.txt"), ("./none", "./none"),
])  # fmt: skip
def test_none_is_no_file(option: str, value: str, expected: str) -> None:
    for words, environ in (
        ((f"--{option}={value}",), {}),
        ((), {f"SBATCH_{option.upper()}": value}),
    ):
        job, _ = read("#!/bin/sh\n", *words, environ=environ)
        assert {"output": job.output, **dict(job.launcher)}[option] == expected


def test_a_wrong_mount_leaves_the_image() -> None:
    job, ledger = read("#!/bin/sh\n", "--container-image=a", "--container-mounts=b:/c")
    (note,) = [note for note in ledger.notes if note.kind == "refused"]
    assert (note.option, note.text) == ("--container-mounts", "not a mount source: 'b'")
    assert job.container.image == "a"


def test_all_refusals_are_found_before_any_is_reported() -> None:
    _, ledger = read("#!/bin/sh\n#SBATCH -t x\n#SBATCH --bb=y\n#SBATCH -C [a]\nsbatch z\n")
    with pytest.raises(RefusedError) as caught:
        ledger.close()
    assert [(note.code, note.line) for note in caught.value.notes] == [
        ("invalid-value", 2), ("bb", 3), ("constraint-matching-or", 4), ("nested-sbatch", 5),
    ]  # fmt: skip


def test_control_characters_in_values_are_refused() -> None:
    _, ledger = read("#!/bin/sh\n", "--job-name=a\x1b[31m")
    with pytest.raises(RefusedError, match=r"control character in 'a\\x1b"):
        ledger.close()


@pytest.mark.parametrize(
    "option", ["-e\udcff", "--comment=a\udcff", "--container-mounts=/a\udcff", "-D\udcff"]
)
def test_values_that_are_not_utf_8_are_refused(option: str) -> None:
    _, ledger = read("#!/bin/sh\n", option)
    with pytest.raises(RefusedError, match="not UTF-8") as caught:
        ledger.close()
    str(caught.value).encode("utf-8")


def test_a_script_whose_name_is_not_utf_8_is_refused() -> None:
    with pytest.raises(RefusedError, match="not UTF-8"):
        read_job(["a\udcff"], lambda path: "#!/bin/sh\n", {})


def test_ignored_options_say_why() -> None:
    _, ledger = read("#!/bin/sh\n#SBATCH --mail-type=END\n#SBATCH --nice\n")
    assert [(note.kind, note.line) for note in ledger.notes] == [("ignored", 2), ("ignored", 3)]


def test_variables_of_pyxis_count() -> None:
    job, _ = read("#!/bin/sh\n", environ={"PYXIS_CONTAINER_IMAGE": "ubuntu"})
    assert job.container.image == "ubuntu"


def test_mounts_of_srun_are_the_pod_s() -> None:
    text = script("-p cpu", body="D=/lustre\nsrun --container-mounts=$D:/data:ro,/home:/h true\n")
    rendering = render(text)
    targets = [mount["mountPath"] for mount in container(rendering)["volumeMounts"]]
    assert {"/data", "/h"} <= set(targets)
    assert "approx-srun-mounts" in {note.code for note in rendering.notes}


def test_two_steps_cannot_mount_different_things_at_one_place() -> None:
    body = "srun --container-mounts=/lustre/b:/data x\n"
    text = script("-p cpu", "--container-mounts=/lustre/a:/data", body=body)
    rendering = render(text)
    assert "mount-twice" in {note.code for note in rendering.notes}
    (mount,) = (row for row in container(rendering)["volumeMounts"] if row["mountPath"] == "/data")
    assert mount["subPath"] == "a"


@pytest.mark.parametrize(("options", "sources"), [
    ("-J train", ["/r/train", "/home/me", "/submit"]),
    ("-J train -D /work", ["/r/train", "/home/me", "/submit"]),
    ("-J train --container-image=x", ["/r/train", "/home/me", "/submit"]),
])  # fmt: skip
def test_mounts_of_srun_may_name_variables_that_slurm_sets(
    options: str, sources: list[str]
) -> None:
    line = "srun --container-mounts=/r/$SLURM_JOB_NAME:/a,$HOME:/b,${SLURM_SUBMIT_DIR}:/c x\n"
    environ = {"HOME": "/home/me", "PWD": "/submit"}
    job, _ = read(f"#!/bin/sh\n#SBATCH {options}\n{line}", environ=environ)
    assert [mount.source for mount in job.container.mounts] == sources


@pytest.mark.parametrize(("chdir", "source"), [
    ("", "/submit"), ("/work", "/work"), ("sub", "/submit/sub"), ("../x/.", "/x"), (".", "/submit"),
])  # fmt: skip
def test_the_directory_is_the_one_where_the_script_starts(chdir: str, source: str) -> None:
    line = "srun --container-image=ubuntu --container-mounts=$PWD:/w,$SLURM_SUBMIT_DIR:/s x\n"
    words = ["-D", chdir] if chdir else []
    job, _ = read(f"#!/bin/sh\n{line}", *words, environ={"PWD": "/submit"})
    assert [mount.source for mount in job.container.mounts] == [source, "/submit"]


@pytest.mark.parametrize(("path", "hint"), [
    ("dir/my job.sh", r"sed -i 's/\r$//' 'dir/my job.sh'"), ("-", ""),
])  # fmt: skip
def test_how_to_mend_line_ends_of_dos(path: str, hint: str) -> None:
    words = [path] if path != "-" else []
    with pytest.raises(RefusedError) as caught:
        read_job(words, lambda name: "#!/bin/sh\r\necho\r\n", {})
    (note,) = caught.value.notes
    assert note.way_out == (hint or REFUSALS["invalid-value"])
    assert "sed" in note.way_out if hint else "sed" not in note.way_out


def test_a_finding_in_the_body_tells_how_to_go_on() -> None:
    _, ledger = read("#!/bin/sh\ncat <<END\nsrun --pty bash\nEND\n")
    (note,) = [note for note in ledger.notes if note.kind == "refused"]
    assert note.way_out == "use kubectl exec -it; --allow pty if it is never run"


def test_a_wrong_mount_of_srun_is_refused_with_its_line() -> None:
    _, ledger = read("#!/bin/sh\n\nsrun --container-mounts=/r/a:b:/c x\n")
    (note,) = [note for note in ledger.notes if note.kind == "refused"]
    assert (note.line, note.option, note.text) == (
        3, "--container-mounts", "not a mount target: 'b'",
    )  # fmt: skip
