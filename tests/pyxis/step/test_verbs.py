"""What is said of a command line where it is submitted."""

from __future__ import annotations

import pytest

from enroot_py import EnrootError, UsageError
from pyxis_py.job import JobFacts
from pyxis_py.options import OPTIONS
from pyxis_py.protocol.keeper_process import encode_request
from pyxis_py.protocol.request import Log, Request, describe
from pyxis_py.step.verbs import submit

NUMBERS = {option.name: number for number, option in enumerate(OPTIONS)}


def request(*options: tuple[str, str], **extra: str) -> Request:
    job = JobFacts(1000, 1000, 0, 0, cwd="/work", environ={"HOME": "/nowhere"})
    given = [(NUMBERS[name], argument) for name, argument in options]
    return Request(encode_request(job, options=given, extra=tuple(extra.items())))


@pytest.mark.parametrize("image", ["nvcr.io", "registry.example.com", "127.0.0.1:5000"])
def test_sbatch_cuts_references(image: str) -> None:
    """Its # begins a comment: what is left of a reference is a registry."""
    with pytest.raises(UsageError, match=f"--container-image={image} is a registry") as caught:
        submit(request(("container-image", image), context="sbatch"))
    assert "REGISTRY\\#IMAGE" in caught.value.hint


@pytest.mark.parametrize("image", ["./nvcr.io", "/images/nvcr.io", "./127.0.0.1:5000"])
def test_files_of_any_name_are_taken(image: str) -> None:
    assert submit(request(("container-image", image), context="sbatch")) == ([], [])


@pytest.mark.parametrize(("settings", "said"), [("", True), ("own", False)])
def test_whose_a_setting_is(settings: str, said: bool) -> None:
    error = EnrootError("it speaks no TLS", hint="set ENROOT_ALLOW_HTTP=yes")
    lines = describe(error, Log(), request(settings=settings))
    assert lines[:2] == ("it speaks no TLS", "set ENROOT_ALLOW_HTTP=yes")
    assert ("from enroot.conf alone, not from the job" in lines[-1]) is said
