"""Command scripts read without a shell."""

from __future__ import annotations

import pytest

from enroot_py.plan.rc import RcScript, parse_rc

NVIDIA = """\
# enroot-provenance: docker://registry#image:tag
# maintainer nobody

mkdir -p {workdir} 2> /dev/null
cd {workdir} && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entrypoint} "$@"
else
    exec {entrypoint} {cmd}
fi
"""


def nvidia(workdir: str = '"/"', entrypoint: str = "", cmd: str = "") -> bytes:
    return NVIDIA.format(workdir=workdir, entrypoint=entrypoint, cmd=cmd).encode()


def test_the_originals_form_is_understood() -> None:
    script = nvidia('"/job/new dir"', "'/ep.sh' '--x'", "'a b' 'c'")
    assert parse_rc(script) == RcScript("/job/new dir", ("/ep.sh", "--x"), ("a b", "c"))


def test_entrypoint_and_command_may_be_missing() -> None:
    assert parse_rc(nvidia(cmd="'/bin/sh'")) == RcScript("/", (), ("/bin/sh",))
    assert parse_rc(nvidia(entrypoint="'/ep'")) == RcScript("/", ("/ep",), ())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("'it'\\''s'", "it's"),
        ("''", ""),
        ("'a\nb'", "a\nb"),
        ("'$(x) `y` $z \\n'", "$(x) `y` $z \\n"),
        ("$'a\\nb\\tc\\'d\\\\e'", "a\nb\tc'd\\e"),
        ("$'\\E[0m\\001\\x41'", "\x1b[0m\x01A"),
        ("$'\\303\\251'", "é"),
        ("$'\\377'", "\udcff"),
        ("$'\\u00e9\\U0001F600'", "é😀"),
        ('"a\\"b\\$c\\\\d\\e"', 'a"b$c\\d\\e'),
        ("plain", "plain"),
        ("a\\ b", "a b"),
        ("'#'x", "#x"),
    ],
)
def test_every_form_of_quoting(written: str, meant: str) -> None:
    assert parse_rc(nvidia(cmd=written)) == RcScript("/", (), (meant,))


def test_bytes_that_are_not_utf_8_are_kept() -> None:
    script = nvidia(cmd="'X'").replace(b"X", b"\xff")
    assert parse_rc(script) == RcScript("/", (), ("\udcff",))


@pytest.mark.parametrize(
    "script",
    [
        b"",
        b"exec foo\n",
        nvidia(cmd="$(touch /tmp/x)"),
        nvidia(cmd='"$HOME"'),
        nvidia(cmd="`id`"),
        nvidia(cmd="'a' & rm x"),
        nvidia(cmd="'a'; rm x"),
        nvidia(cmd="*"),
        nvidia(cmd="'unfinished"),
        nvidia(cmd='"unfinished'),
        nvidia(cmd="$'unfinished"),
        nvidia(cmd="$'\\q'"),
        nvidia(cmd="x\\"),
        nvidia(workdir='"$HOME"', cmd="'a'"),
        nvidia(cmd="'a'") + b"rm -rf /\n",
        b"export A=1\n" + nvidia(cmd="'a'"),
        nvidia(cmd="'a'").replace(b"-gt 0", b"-gt 1"),
        nvidia(entrypoint="'a'", cmd="'b'").replace(b"exec 'a' 'b'", b"exec 'c' 'b'"),
        nvidia(cmd="'a'").replace(b' "$@"', b""),
        b"if [ $# -gt 0 ]; then\nexec\nelse\nexec\nfi\n",
        b"cd\n",
        b"mkdir -p\n",
        b"\0\xff\xfe",
    ],
)
def test_anything_else_is_not_understood(script: bytes) -> None:
    assert parse_rc(script) is None


def test_a_script_without_rc_local_is_understood() -> None:
    script = nvidia(cmd="'a'").split(b"\n")
    del script[6:9]
    assert parse_rc(b"\n".join(script)) == RcScript("/", (), ("a",))
