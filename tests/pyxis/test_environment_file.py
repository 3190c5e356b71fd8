"""Environment definition files: found, read, merged; hostile ones refused with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from enroot_py import EnrootError, NotFoundError, UsageError
from pyxis_py.args import Arguments
from pyxis_py.environment_file import (
    Environment,
    annotation_variables,
    expand_variables,
    load_environment,
    merge_environment,
)


def write(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / f"{name}.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def load(folder: Path, name: str, **environ: str) -> Environment:
    return load_environment(name, {"EDF_PATH": str(folder), **environ}, cwd="/")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("imagine = 1", "unknown key 'imagine'"),
        ("image = 1", "image: expected a string"),
        ("image = ['a']", "image: expected a string"),
        ("mounts = 'a'", "mounts: expected a list"),
        ("mounts = [1]", "mounts: expected strings"),
        ("mounts = [['a']]", "mounts: expected strings"),
        ("writable = 'yes'", "writable: expected true or false"),
        ("env = []", "env: expected a table"),
        ("[env]\nA = 1", "env.A: expected a string"),
        ("[env]\n'A B' = 'x'", "not a variable name"),
        ("[env]\nA = 'a\\u0000b'\nB = \"a\\u0000b\"", "env.B"),
        ("image = '${'", "brace is not closed"),
        ("image = '${A B}'", "not a variable"),
        ("[env]\nA = '${'", "env.A: a brace is not closed"),
        ("[env]\nA = '${-}'", "env.A: not a variable"),
        ("[annotations]\na = '${UNSET_VARIABLE}'", "annotations.a: the variable UNSET"),
        ("base_environment = '${UNSET_VARIABLE}'", "base_environment: the variable UNSET"),
        ("image = '${:-a}'", "not a variable"),
        ("image = '${UNSET_VARIABLE}'", "UNSET_VARIABLE is not set"),
        ("image = 'a'\nimage = 'b'", ":2: "),
        ("image = 'a", ":1: "),
        ("[annotations]\na = [1]", "annotations.a"),
        ("base_environment = 1", "base_environment"),
        (b"# comment\nimage = '\xff'", ":2: not UTF-8"),
        ("a = " + "[" * 100000, "bad"),
        ("#" * (1 << 20) + "\n", "larger than 1 MiB"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str | bytes, match: str) -> None:
    path = write(tmp_path, "bad", text)
    with pytest.raises(UsageError, match=match) as caught:
        load(tmp_path, "bad")
    assert path in str(caught.value)


def test_bases_that_lead_back_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a", "base_environment = 'b'")
    write(tmp_path, "b", "base_environment = ['a']")
    with pytest.raises(UsageError, match="leads back"):
        load(tmp_path, "a")


def test_bases_are_ten_deep_at_most(tmp_path: Path) -> None:
    write(tmp_path, "e11", "image = 'deepest'")
    for number in range(11):
        write(tmp_path, f"e{number}", f"base_environment = 'e{number + 1}'")
    assert load(tmp_path, "e1").image == "deepest"
    with pytest.raises(UsageError, match="more than 10 deep"):
        load(tmp_path, "e0")


@pytest.mark.parametrize("name", ["..", ".", "../a", "nosuch", "", "a\0b", "/no/such.toml"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(EnrootError, match="environment"):
        load(tmp_path, name)


def test_a_file_that_is_not_there_is_looked_for_where_the_hint_says(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        load(tmp_path, "mine")
    assert str(tmp_path) in caught.value.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("./near", "there is ./near.toml"),
        ("./folder.toml", "it is a folder"),
        ("other.toml", "as other it is looked for in the folders of EDF_PATH"),
        ("./other.toml", ""),
    ],
)
def test_what_may_have_been_meant(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / "near.toml").write_text("")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(NotFoundError) as caught:
        load_environment(name, {}, cwd=str(tmp_path))
    assert caught.value.hint == hint


def test_files_win_over_their_bases(tmp_path: Path) -> None:
    write(
        tmp_path, "base",
        "image='base'\nworkdir='/b'\nmounts=['/a:/a']\nwritable=true\n[env]\nA='base'\nB='base'\n",
    )  # fmt: skip
    write(tmp_path, "other", "image='other'\ndevices=['nvidia.com/gpu=all']\n")
    write(
        tmp_path, "top",
        "base_environment=['base', 'other']\nmounts=['/a:/a', '/c:/c']\nentrypoint=false\n"
        "[env]\nB='top'\n[annotations]\ncom.hooks.x.enabled=true\n",
    )  # fmt: skip
    environment = load(tmp_path, "top")
    assert environment == Environment(
        image="other", workdir="/b", mounts=("/a:/a", "/c:/c"), writable=True, entrypoint=False,
        env={"A": "base", "B": "top"}, devices=("nvidia.com/gpu=all",),
        annotations={"com.hooks.x.enabled": "true"},
    )  # fmt: skip
    assert annotation_variables(environment) == {"PYXIS_ANNOTATION_COM_HOOKS_X_ENABLED": "true"}


def test_a_file_that_names_no_image_needs_one_from_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, "f", "workdir='/f'\n")
    file = load(tmp_path, "f")
    with pytest.raises(UsageError, match="--environment=f: no image is named"):
        merge_environment(Arguments(environment="f"), file)
    assert merge_environment(Arguments(environment="f", image="flag"), file).workdir == "/f"
    assert merge_environment(Arguments(environment="f", name="kept"), file).image == ""


def test_variables_are_those_of_the_job(tmp_path: Path) -> None:
    write(
        tmp_path, "v",
        "image='${IMG}:1'\nmounts=['${D}:/d', '/x:/$${D}$HOME']\nworkdir='${NONE:-/w}${D:-/no}'\n"
        "devices=['${NONE:-}a']\n[annotations.com.hooks]\nssh.key='${D}/key'\n",
    )  # fmt: skip
    environment = load(tmp_path, "v", IMG="a", D="/s p")
    assert environment.image == "a:1"
    assert environment.mounts == ("/s p:/d", "/x:/${D}$HOME")
    assert environment.workdir == "/w/s p"
    assert environment.devices == ("a",)
    assert environment.annotations == {"com.hooks.ssh.key": "/s p/key"}


def test_bases_may_be_named_by_variables(tmp_path: Path) -> None:
    write(tmp_path, "b-grace", "image='found'")
    write(tmp_path, "v", "base_environment='b-${ARCH}'")
    assert load(tmp_path, "v", ARCH="grace").image == "found"


def test_variables_of_the_container_complete_those_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, "v", "[env]\nPATH='${PATH}:/more'\nA='$$x ${D:-none}'\nP='$HOME'\n")
    environment = load(tmp_path, "v")
    expanded = dict(expand_variables(environment.env.items(), {"PATH": "/image"}, origin="v"))
    assert expanded == {"PATH": "/image:/more", "A": "$x none", "P": "$HOME"}
    with pytest.raises(UsageError, match="--environment=v: env.PATH: the variable PATH is not set"):
        expand_variables(environment.env.items(), {}, origin="v")


def test_a_path_counts_from_the_working_directory(tmp_path: Path) -> None:
    write(tmp_path, "x", "image='a'")
    assert load_environment("./x.toml", {}, cwd=str(tmp_path)).image == "a"
    assert load_environment("x.toml", {}, cwd=str(tmp_path)).image == "a"


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    write(tmp_path, "f", "image='file'\nworkdir='/f'\nwritable=true\nmounts=['/a:/a']\n")
    flags = Arguments(image="flag", writable=False)
    merged = merge_environment(flags, load(tmp_path, "f"))
    assert (merged.image, merged.workdir, merged.writable) == ("flag", "/f", False)
    assert [mount.source for mount in merged.mounts] == ["/a"]
