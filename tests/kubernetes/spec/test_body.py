"""What is found in the body of a script."""

from __future__ import annotations

import pytest

from pyxis_py.kubernetes.launcher.srun.option_table import OPTIONS
from pyxis_py.kubernetes.spec.body import SRUN_FLAGS, scan_body


@pytest.mark.parametrize(("line", "codes"), [
    ("sbatch next.sh", ["nested-sbatch"]),
    ("  /usr/bin/sbatch next.sh", ["nested-sbatch"]),
    ("if true; then sbatch x; fi", ["nested-sbatch"]),
    ("id=$(sbatch --parsable x)", ["nested-sbatch"]),
    ("A=1 sbatch x", ["nested-sbatch"]),
    ("true && sbatch x || sattach 1", ["nested-sbatch", "sattach"]),
    ("`sacct -j 1`", ["sacct"]),
    ("# sbatch x", []),
    ("echo sbatch", []),
    ("my-sbatch x", []),
    ("srun --pty bash", ["pty"]),
    ("srun --bcast=/x a", ["srun-bcast"]),
    ("srun --pty-like a", []),
    ("module load cuda", ["host-command"]),
    ("sudo x", ["host-command"]),
    ("nvidia-smi -pm 1", ["host-command"]),
    ("nvidia-smi -L", []),
    ("export NCCL_SOCKET_IFNAME=bond0", ["nccl-interface"]),
    ("export HF_TOKEN=hf_abcdef", ["script-secret"]),
    ("export HF_TOKEN=$TOKEN", []),
    ("export HF_TOKEN=$(cat ~/t)", []),
    ("srun true", []),
    ("srun --mpi=pmix a", ["mpi-server"]),
    ("srun --mpi pmix_v4 a", ["mpi-server"]),
    ("srun --mpi=pmi2 a", []),
    ("srun --mpi=none a", []),
    ("srun --het-group=1 a", ["srun-option"]),
    ("srun --container-mounts=$D:/d a", ["srun-mounts"]),
    ("srun --container-mounts=/d a", []),
])  # fmt: skip
def test_commands(line: str, codes: list[str]) -> None:
    body = scan_body(f"#!/bin/sh\n\n{line}\n", 3)
    assert [finding.code for finding in body.findings] == codes
    assert {finding.line for finding in body.findings} <= {3}


def test_secrets_in_the_script_are_not_repeated() -> None:
    (finding,) = scan_body("X_TOKEN=abcdefgh\n", 1).findings
    assert "X_TOKEN" in finding.text and "abcdefgh" not in finding.text


def test_lines_that_end_in_a_backslash_are_one() -> None:
    body = scan_body("#!/bin/sh\nsrun -n1 \\\n  --x11 \\\n  xterm\nsbatch x\n", 2)
    assert [(finding.code, finding.line) for finding in body.findings] == [
        ("x11", 2), ("nested-sbatch", 5),
    ]  # fmt: skip


@pytest.mark.parametrize(("line", "images"), [
    ("srun --container-image=a/b:1 x", ["a/b:1"]),
    ("srun --container-image 'nvcr.io#a/b' x", ["nvcr.io#a/b"]),
    (r"srun --container-image=nvcr.io\#a/b x & srun --container-image=c x", ["nvcr.io#a/b", "c"]),
    ("echo --container-image=x", []),
])  # fmt: skip
def test_images_of_srun(line: str, images: list[str]) -> None:
    assert [image for image, _ in scan_body(line, 1).images] == images


@pytest.mark.parametrize(("lines", "image"), [
    ("IMAGE=a/b:1\nsrun --container-image=$IMAGE x", "a/b:1"),
    ("export TAG='25.06' IMAGE=\"nvcr.io#a/b:${TAG}\"\nsrun --container-image=\"$IMAGE\" x", None),
    ("TAG=2\nIMAGE=\"a/b:${TAG}\"\nsrun --container-image \"${IMAGE}\" x", "a/b:2"),
    ("IMAGE=${IMAGE:-a/b:3}\nsrun --container-image=${IMAGE} x", "a/b:3"),
    (": \"${IMAGE:=a/b:4}\"\nsrun --container-image=$IMAGE x", "a/b:4"),
    ("IMAGE=$(cat image)\nsrun --container-image=$IMAGE x", "$IMAGE"),
    ("IMAGE=a\nIMAGE=$X\nsrun --container-image=$IMAGE x", "$IMAGE"),
    ("srun --container-image=$IMAGE x\nIMAGE=a", "$IMAGE"),
    ("srun --container-image=${IMAGE:-b} x", "b"),
    ("U=/$USER\nsrun --container-image=a$U x", "a/user1"),
    ("R=a\nsrun --container-image=\"$R\"/'b':2 x", "a/b:2"),
    ("IMAGE=a\nIMAGE+=/b\nsrun --container-image=$IMAGE x", "a/b"),
    ("IMAGE=$X\nIMAGE+=/b\nsrun --container-image=$IMAGE x", "$IMAGE"),
    ("IMAGE=a\nIMAGE=\"$Y\"/b\nsrun --container-image=$IMAGE x", "$IMAGE"),
    ("R=a\nIMAGE=\"$R\"/b\nsrun --container-image=$IMAGE x", "a/b"),
    ("I=a\nfor I in b c; do\nsrun --container-image=$I x", "$I"),
    ("I=a\nI=(b c)\nsrun --container-image=$I x", "$I"),
    ("I=a; srun --container-image=$I x", "a"),
    ("if x; then I=a; fi\nsrun --container-image=$I x", "a"),
])  # fmt: skip
def test_images_that_variables_of_the_script_name(lines: str, image: str | None) -> None:
    body = scan_body(lines, 1, {"USER": "user1"})
    assert [found for found, _ in body.images] == [image or "nvcr.io#a/b:25.06"]


_ARGS = "--container-image=a --container-mounts=/d:/e"


@pytest.mark.parametrize("lines", [
    f'A="{_ARGS}"\nsrun $A x',
    'I=a\nA="--container-image=$I"\nA+=" --container-mounts=/d:/e"\nsrun -N1 ${A} x',
    f'A=({_ARGS})\nsrun "${{A[@]}}" x',
    ('D=/d\nA=(\n  --container-image=a # the "newest"\n  # it is (old)\n'
     '  --container-mounts="$D:/e"\n)\nsrun ${A[*]} x'),
    'A=(-N1)\nA+=(--container-image=a)\nA+=( --container-mounts=/d:/e )\nsrun "${A[@]}" x',
    'A="\n  --container-image=a\n  --container-mounts=/d:/e\n"\nsrun $A x',
    'A=" \\\n  --container-image=a \\\n  --container-mounts=/d:/e"\nsrun $A x',
    f'L="srun {_ARGS}"\n$L x',
])  # fmt: skip
def test_options_of_srun_may_come_from_a_variable(lines: str) -> None:
    body = scan_body(lines, 1)
    assert [found for found, _ in body.images] == ["a"]
    assert [found for found, _ in body.mounts] == ["/d:/e"]


@pytest.mark.parametrize("lines", [
    'A="--pty"\nsrun $A x', "A=(-N1)\nA+=(--pty)\nsrun ${A[@]} x",
])  # fmt: skip
def test_what_a_variable_asks_for_is_found(lines: str) -> None:
    assert [finding.code for finding in scan_body(lines, 1).findings] == ["pty"]


@pytest.mark.parametrize("lines", [
    'A=(-a)\nA=$(x)\nsrun "${A[@]}" --x', "A=(--pty)\nA=(-N1)\nsrun ${A[@]} x",
    "A+=(--pty)\nA=b\nsrun ${A[@]} x", 'echo "open\nsbatch" x\nA="unclosed\ntrue',
])  # fmt: skip
def test_what_a_variable_does_not_stand_for_any_more(lines: str) -> None:
    assert [f.code for f in scan_body(lines, 1).findings if f.code == "pty"] == []


def test_mounts_of_srun() -> None:
    lines = 'D=/data\nsrun --container-mounts=$D:/d,"$D/x" a\nsrun --container-mounts "$D:/d" a'
    assert [mounts for mounts, _ in scan_body(lines, 1).mounts] == [
        "/data:/d,/data/x", "/data:/d",
    ]  # fmt: skip


@pytest.mark.parametrize(("lines", "mounts", "unknown"), [
    ('D=/d\nsrun --container-mounts="$D":/a,\'/b\':/c x', ["/d:/a,/b:/c"], []),
    ("srun --container-mounts=/a:/a,$X:/b,/c x", ["/a:/a,/c"], ["$X:/b"]),
    ('srun --container-mounts "$X/$Y:/b" x', [], ["$X/$Y:/b"]),
    ("srun --container-mounts=$PWD:/w,$(pwd)/d:/d,`pwd`:/e x", ["/s:/w,/s/d:/d,/s:/e"], []),
    ('D="$(pwd)"/d\nsrun --container-mounts=$D x', ["/s/d"], []),
    ("cd /x\nsrun --container-mounts=$PWD:/w x", [], ["$PWD:/w"]),
    ("cd /x && srun --container-mounts=$PWD:/w x", [], ["$PWD:/w"]),
    ("OUT=$(srun --container-mounts=/a:/b x)", ["/a:/b"], []),
])  # fmt: skip
def test_mounts_of_which_some_are_known_at_run_time(
    lines: str, mounts: list[str], unknown: list[str]
) -> None:
    body = scan_body(lines, 1, {"PWD": "/s"})
    assert [found for found, _ in body.mounts] == mounts
    assert [finding.text for finding in body.findings if finding.code == "srun-mounts"] == [
        f"--container-mounts: what {entry} stands for is known at run time" for entry in unknown
    ]


def test_flags_that_the_launcher_refuses_are_found_before() -> None:
    """But for those that no script has by mistake."""
    refused = {f"--{option.name}" for option in OPTIONS if option.use == "refused"}
    assert set(SRUN_FLAGS) <= refused
    rare = {"--interactive", "--container", "--container-device", "--container-entrypoint-log",
            "--container-gpus", "--container-id", "--environment", "--clusters", "--reboot",
            "--bb", "--bbf", "--cluster-constraint", "--gid", "--no-allocate", "--uid",
            "--nodefile", "--gpus-per-socket", "--tres-per-node", "--tres-per-socket",
            "--tres-per-task", "--resources-per-task", "--test-only", "--async",
            "--debugger-test"}  # fmt: skip
    assert refused - set(SRUN_FLAGS) == rare


def test_a_script_without_a_body() -> None:
    assert scan_body("#!/bin/sh\n", 0).findings == ()
