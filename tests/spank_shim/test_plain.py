"""What srun lets through without a keeper is what the keeper would have let through."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pyxis_py.options import OPTIONS
from pyxis_py.protocol.records import encode_records
from pyxis_py.protocol.request import VERSION, Request
from pyxis_py.step.verbs import submit
from tests.spank_shim.harness import Harness

pytestmark = pytest.mark.kernel

NUMBERS = {option.name: number for number, option in enumerate(OPTIONS)}
IMAGE = "container-image=/image.sqsh"

PLAIN = [
    [IMAGE],
    ["container-name=a.b-c_1+@=,"],
    [IMAGE, "container-name=x", "container-workdir=/a b", "container-save=/x.sqsh"],
    [IMAGE, "container-mounts=/a:/b:ro+nosuid,./c,.d:/e,/f"],
    [IMAGE, "container-env=A,_b1"],
    [IMAGE, "no-container-mount-home=", "container-remap-root=", "container-writable="],
]

NOT_PLAIN = [
    ["container-image=ubuntu"],
    ["container-image=./image.sqsh"],
    ["container-image="],
    ["container-workdir=/a"],
    [IMAGE, IMAGE],
    [IMAGE, "container-save=/a/"],
    [IMAGE, "container-name=x:create"],
    [IMAGE, "container-name=.x"],
    [IMAGE, "container-name=" + 201 * "x"],
    [IMAGE, "container-mounts="],
    [IMAGE, "container-mounts=/a:b"],
    [IMAGE, "container-mounts=/a,"],
    [IMAGE, "container-mounts=/a:/b,tmpfs:/c"],
    [IMAGE, "container-env=1A"],
    [IMAGE, "container-env=A,,B"],
    [IMAGE, "container-writable=", "container-readonly="],
    [IMAGE, "container-mount-home=", "no-container-mount-home="],
    [IMAGE, "container-unshare=net"],
    [IMAGE, "container-digest=print"],
    [IMAGE, "environment=x"],
]


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return Harness(tmp_path_factory.mktemp("shim"), *flags)


@pytest.fixture(scope="module")
def refusing(harness: Harness) -> str:
    return harness.keeper("say('status=error', 'error=asked', 'end=')")


def words(flags: list[str]) -> list[str]:
    named = [flag.partition("=") for flag in flags]
    return [f"--{NUMBERS[name]}={value}" for name, _, value in named]


@pytest.mark.parametrize("flags", PLAIN, ids=" ".join)
def test_plain_flags_need_no_interpreter(harness: Harness, refusing: str, flags: list[str]) -> None:
    played = harness.play("local", *words(flags), refusing)
    assert (played.status, played.err) == (0, "")


@pytest.mark.parametrize("flags", NOT_PLAIN, ids=" ".join)
def test_all_others_are_checked(harness: Harness, refusing: str, flags: list[str]) -> None:
    played = harness.play("local", *words(flags), refusing)
    assert (played.status, played.err) == (1, "error: pyxis: asked\n")


def test_a_variable_of_a_flag_is_checked(harness: Harness, refusing: str) -> None:
    played = harness.play("local", *words([IMAGE]), refusing, PYXIS_CONTAINER_ENV="A")
    assert played.status == 1


def test_a_command_line_of_several_components_is_read(harness: Harness, refusing: str) -> None:
    # To the program that plays srun it is a word of plugstack.conf.
    assert harness.play("local", *words([IMAGE]), ":", refusing).status == 1


def test_the_keeper_refuses_nothing_that_is_plain(harness: Harness) -> None:
    rng = random.Random(7)
    pieces = ["/a", "/", "./b", ".", ":", ",", "x", "A1", "_", "-", "1", "ro", "+", "@", "é", " ",
              "=", "tmpfs", "\n", "\udcff", "y" * 199, "/a:/b", "/c,", "A,"]  # fmt: skip
    likely = [option for option in OPTIONS if option.plain not in ("", "switch")]
    plain: Counter[str] = Counter()
    for _ in range(800):
        first = rng.choice(likely if rng.random() < 0.8 else OPTIONS)
        flags = [] if first.field == "image" or rng.random() < 0.1 else [IMAGE]
        for option in (first, *rng.sample(OPTIONS, rng.randint(0, 1))):
            value = "".join(rng.choices(pieces, k=rng.randint(0, 4)))
            flags.append(f"{option.name}={value if option.takes_argument else ''}")
        played = harness.play("local", *words(flags), "python=/bin/false")
        assert "Sanitizer" not in played.err and "runtime error" not in played.err, played.err
        if played.status:
            continue
        plain[first.plain] += 1
        given = [("option", word.removeprefix("--")) for word in words(flags)]
        pairs = [("version", VERSION), *given, ("context", "srun"), ("command", "srun")]
        request = Request(encode_records(pairs), tell=lambda text: None)
        assert submit(request) == ([], []), flags
    forms = {option.plain for option in OPTIONS if option.plain}
    assert all(plain[form] >= 5 for form in forms), plain
