"""Random input to everything here that reads what others wrote: an answer or a clear refusal."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from enroot_py.errors import EnrootError, InvalidReferenceError
from enroot_py.image.config import parse_image_config
from enroot_py.image.manifest import Manifest, check_image, parse_manifest
from enroot_py.image.reference import default_filename, parse_reference
from enroot_py.registry.accounts.netrc import parse_netrc
from enroot_py.registry.auth import parse_challenges

NAMES = st.sampled_from(
    ["schemaVersion", "mediaType", "config", "layers", "manifests", "digest", "size", "platform"]
    + ["os", "annotations", "urls", "Env", "Cmd", "Labels", "Volumes", "rootfs", "diff_ids"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=30,
)


@given(st.text(alphabet="docker:/@#.-_ab0[]sha256%\\ \n", max_size=60) | st.text(max_size=60))
def test_references(text: str) -> None:
    for uri in (text, f"docker://{text}", f"dockerd://{text}"):
        try:
            reference = parse_reference(uri)
        except InvalidReferenceError as error:
            assert str(error).isprintable()
            continue
        again = parse_reference(reference.canonical())
        assert again.canonical() == reference.canonical()
        name = default_filename(reference)
        assert "/" not in name and name.isprintable() and not name.startswith((".", "-"))


@given(JSON | st.binary(max_size=60))
def test_documents(document: object) -> None:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    for content_type in ("", "application/json"):
        try:
            found = parse_manifest(data, content_type)
            if isinstance(found, Manifest):
                check_image(found)
        except EnrootError as error:
            assert str(error).isprintable()
    try:
        parse_image_config(data)
    except EnrootError as error:
        assert str(error).isprintable()


@given(st.text(alphabet='Basic earm="\\,; \t', max_size=80) | st.text(max_size=80))
def test_challenges(text: str) -> None:
    for challenge in parse_challenges(text):
        assert challenge.scheme


@given(st.text(alphabet='machinelogpsword "\\$#\n\t(){}', max_size=200))
def test_credentials(text: str) -> None:
    for entry in parse_netrc(text, "file"):
        assert entry.machine and entry.login and entry.password
