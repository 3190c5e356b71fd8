"""What is found in the body of a script."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


_SECRET = "--container-mounts=/data/secret:/q"
_USE = 'srun "${A[@]}" x'


@pytest.mark.parametrize(("lines", "images", "mounts"), [
    (f'A=(--container-image=a/b:1-py3 --x="j$(date +%s)"\n --container-mounts=/d:/e)\n{_USE}',
     ["a/b:1-py3"], ["/d:/e"]),
    (f"A=(--container-image=a/b:1 --x=$(f $(g (h)) )\n --container-mounts=/d:/e\n)\n{_USE}",
     ["a/b:1"], ["/d:/e"]),
    (f"A=(--container-image=a # the old one (stable)\n--container-mounts=/d:/e)\n{_USE}",
     ["a"], ["/d:/e"]),
    (f"A=(--container-image=a # it's one\n # it's \"\n--container-mounts=/d:/e)\n{_USE}",
     ["a"], ["/d:/e"]),
    (f"A=(\n--container-image=a\n# {_SECRET}\n)\n{_USE}", ["a"], []),
    (f"A=(--container-image=a # {_SECRET})\n)\n{_USE}", ["a"], []),
    (f"A=('--x=(' --container-image=a\n ')' --container-mounts=/d:/e)\n{_USE}", ["a"], ["/d:/e"]),
    (f'A=(--x=")"\n--container-image=a)\nA+=(\n--container-mounts=/d:/e\n)\n{_USE}',
     ["a"], ["/d:/e"]),
    ("I=a; A='\n--x'\nsrun --container-image=$I $A b", ["a"], []),
    ("I=a\nI+=b; A='\n--x'\nsrun --container-image=$I $A b", ["ab"], []),
    ("I=a; O=$(srun --container-image=$I b |\n cat)", ["a"], []),
    (f"A=(--container-image=a\nI=b\nsrun --container-image=$I c\n{_USE}", ["b"], []),
    (f"A=(--container-image=a --x$(\n{_USE}", [], []),
    ("I='a\nsrun --container-image=$I c", ["$I"], []),
    (f"A=(--container-image=$I)\nI=b\n{_USE}", [], []),
    (f"A=(--container-image=$I)\n: ${{I:=b}}\n{_USE}", [], []),
    (f"A=(-N$N --container-image=b)\n{_USE}", ["b"], []),
    ("I=a\necho 'b\nI=c d' >e\nsrun --container-image=$I f", ["a"], []),
    ("I=a\nbash -c '\nI=b\nsrun --container-image=$I c\n'\nsrun --container-image=$I d",
     ["b", "a"], []),
    ("I=a\ncat <<E\nI=b\nsrun --container-image=$I c\nE\nsrun --container-image=$I d",
     ["b", "a"], []),
    ("I=a\ncat <<E\nI=\"b\nE\nsrun --container-image=$I c", ["a"], []),
])  # fmt: skip
def test_of_an_array_all_is_known_or_nothing(
    lines: str, images: list[str], mounts: list[str]
) -> None:
    body = scan_body(lines, 1)
    assert [found for found, _ in body.images] == images
    assert [found for found, _ in body.mounts] == mounts


@pytest.mark.parametrize(("lines", "images"), [
    ("I=/data/srun_images/x.sqsh\nsrun --container-image=$I a", ["/data/srun_images/x.sqsh"]),
    ("I=/data/srun/x.sqsh\nsrun --container-image=$I a", ["/data/srun/x.sqsh"]),
    ("srun_image=a/b:1\nsrun --container-image=$srun_image a", ["a/b:1"]),
    ("my_srun=a; I=b\nsrun --container-image=$I a", ["b"]),
    ("echo my-srun; I=b\nsrun --container-image=$I a", ["b"]),
    ("S=/usr/bin/srun\n$S --container-image=b a", ["b"]),
    ("S='exec srun --container-image=b'\n$S a", ["b"]),
    ("S='srun -N1'; I=b\n$S --container-image=$I a", ["b"]),
    ("I=b; time /usr/bin/srun --container-image=$I a", ["b"]),
    ("I=b; if true; then exec srun --container-image=$I a; fi", ["b"]),
    ("I=b; X=1 srun --container-image=$I a", ["b"]),
    ("I=b; I=c srun --container-image=$I a\nsrun --container-image=$I/d a", ["b", "b/d"]),
    ("I=b; (srun --container-image=$I a) && I=c; srun --container-image=$I a", ["b", "c"]),
    ("I=b; srun --container-image=$I env I=c &\nsrun --container-image=$I/d a", ["b", "b/d"]),
    ("srun -N1 2>&1 >/dev/null --container-image=b a", ["b"]),
    ("srun -N$(f (g) ; h) --container-image=b a; I=c", ["b"]),
    ("srun \"a; b\" --container-image=b &>c --x; srun --container-image=c a", ["b", "c"]),
    ("ls /data/srun-images --container-image=b", []),
    ("ls srun.log --container-image=b", []),
    ("srun --container-image=\\\nb a", ["b"]),
    ("R=r.io\nsrun --container-image=${R}#a/b c", ["r.io#a/b"]),
    ("R=r.io; I=\"${R}\"#a/b\nsrun --container-image=$I c", ["r.io#a/b"]),
    ("srun --container-image=$(r)#a/b c", ["$(r)#a/b"]),
    ("srun --container-image=`r`#a/b c", ["`r`#a/b"]),
])  # fmt: skip
def test_srun_is_a_command_and_not_letters_in_a_word(lines: str, images: list[str]) -> None:
    assert [found for found, _ in scan_body(lines, 1).images] == images


@pytest.mark.parametrize("line", [
    'echo "Running on nodes="$SLURM_JOB_NODELIST',
    "echo 'Running on nodes='$SLURM_JOB_NODELIST",
    'echo "Running on\n nodes="$SLURM_JOB_NODELIST',
    "echo 'Running on\n nodes='$SLURM_JOB_NODELIST",
    'echo "a \\" nodes="$X',
    'cat <<EOF\nname="foo\nEOF', "cat <<-'E F'\nname=\"foo it's\n\tE F",
    'cat <<A <<B\nx="\nA\ny=(\nB', 'cat <<< "a"', "echo $((1<<x))",
    'X=1 # use lr="3e-4', "X=1; # it's", 'X=1 ;# a="', "X=1 # a \\", "# a \\",
    "X=$'it\\'s'", 'X="${Y:-it\'s}"', "X=${Y#\\\"}", "echo ${#X} $#",
    "X=(\na # (\n)", "X=`a\nb`", "X=$(a 'b)'\n)", "X='\n\"'", 'X="\n\'"',
    "case $X in\na) Y=1 ;;\nesac", "f() {\n  :\n}", "X=(never closed", 'X="never closed',
    "bash -c '\n  true # it is\n'",
])  # fmt: skip
def test_a_quote_in_a_line_hides_nothing_below_it(line: str) -> None:
    """Commands are found at their lines, and what is commented out is not."""
    lines = (f"I=new\n{line}\n# srun --container-image=old {_SECRET}\n#I=old\nsbatch a # salloc\n"
             "srun --container-image=$I b # --container-mounts=/d:/e\n")  # fmt: skip
    body, number = scan_body(lines, 1), line.count("\n") + 5
    assert [(f.code, f.line) for f in body.findings] == [("nested-sbatch", number)]
    assert body.images == (("new", number + 1),)
    assert body.mounts == ()


def test_commands_within_an_assignment_are_found_at_their_lines() -> None:
    body = scan_body("A='\ncd x\nsbatch y'\nB=$(\n  salloc\n)\n", 1)
    assert [(f.code, f.line) for f in body.findings] == [("nested-sbatch", 3), ("salloc", 5)]


_COMMENTED = st.lists(
    st.tuples(
        st.sampled_from(["#", "  #", "\t# ", "true #", "X=1 # ", "Y='a' #", "A=(b) # ", "f; #"]),
        st.lists(st.sampled_from(
            [" srun", " --container-image=a", " --container-mounts=/a:/b", ' X="', " '", " A=(",
             ")", " $(", "`", " <<E", "; sbatch x", " --pty", "&", "#", " \\"]), max_size=6),
    ).map(lambda line: line[0] + "".join(line[1])), max_size=6,
)  # fmt: skip


@given(_COMMENTED)
def test_nothing_is_found_in_comments(lines: list[str]) -> None:
    body = scan_body("\n".join([*lines, 'srun "${A[@]}" $X $Y z']), 1)
    assert (body.findings, body.images, body.mounts) == ((), (), ())


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
