"""Which hooks run, built in or executed, and which files are refused."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from enroot_py.errors import HookError
from enroot_py.hooks import known
from enroot_py.hooks.find import BUILTINS, STANDARD, STUB, Hook, check_writers, find_hooks
from enroot_py.settings import load_settings, package_share_path
from tests.hooks.contexts import Container

FOREIGN = "#!/bin/sh\n"
SHARE = Path(package_share_path())


def stub(name: str) -> str:
    return f"{STUB}{name}\n"


def find(container: Container) -> list[tuple[str, str]]:
    return [(hook.name, hook.builtin) for hook in find_hooks(container.context().settings)]


def test_without_folders_the_standard_hooks_are_on(container: Container) -> None:
    assert find(container) == [(name, name[3:-3]) for name in STANDARD]


def test_an_empty_system_folder_turns_everything_off(container: Container) -> None:
    (container.sysconf / "hooks.d").mkdir()
    assert find(container) == []


def test_names_and_contents_of_the_system_folder_decide(container: Container) -> None:
    container.hook("10-shadow.sh", stub("shadow"))
    container.hook("20-home.sh", "#!/bin/sh\nchanged\n")
    container.hook("05-zone.sh", stub("localtime"))
    container.hook("30-off.sh", FOREIGN, mode=0o644)
    container.hook("notes.txt", FOREIGN)
    container.hook(".hidden.sh", FOREIGN)
    assert find(container) == [
        ("05-zone.sh", "localtime"),
        ("10-shadow.sh", "shadow"),
        ("20-home.sh", ""),
    ]


def test_the_system_runs_before_the_user(container: Container) -> None:
    container.hook("90-a.sh", FOREIGN)
    container.hook("10-b.sh", FOREIGN, user=True)
    container.hook("90-a.sh", FOREIGN, user=True)
    paths = [hook.path for hook in find_hooks(container.context().settings)]
    system, user = container.sysconf / "hooks.d", container.config / "hooks.d"
    assert paths == [f"{system}/90-a.sh", f"{user}/10-b.sh", f"{user}/90-a.sh"]


def test_order_is_of_bytes(container: Container) -> None:
    for name in ("b.sh", "B.sh", "10.sh", "9.sh", "é.sh", "_.sh"):
        container.hook(name, FOREIGN)
    assert [name for name, _ in find(container)] == sorted(
        os.listdir(container.sysconf / "hooks.d"), key=os.fsencode
    )


def test_a_user_file_replaces_the_standard_hook_of_its_name(container: Container) -> None:
    container.hook("10-shadow.sh", FOREIGN, user=True)
    container.hook("10-cgroups.sh", FOREIGN, user=True, mode=0o644)
    container.hook("50-mine.sh", FOREIGN, user=True)
    found = dict(find(container))
    assert found["10-shadow.sh"] == ""
    assert "10-cgroups.sh" not in found
    assert list(found)[-3:] == ["50-mine.sh", "98-nvidia.sh", "99-mellanox.sh"]


def test_a_builtin_hook_runs_once(container: Container) -> None:
    container.hook("10-shadow.sh", stub("shadow"))
    container.hook("10-shadow.sh", stub("shadow"), user=True)
    assert find(container) == [("10-shadow.sh", "shadow")]


def test_a_link_to_a_hook_is_that_hook(container: Container) -> None:
    folder = container.sysconf / "hooks.d"
    folder.mkdir()
    # A copy: the tests' own tree may belong to somebody else than who runs them.
    stub = shutil.copy(SHARE / "extra/hooks.d/50-slurm-pmi.sh", container.sysconf)
    (folder / "50-slurm-pmi.sh").symlink_to(stub)
    (folder / "60-dangling.sh").symlink_to("nowhere")
    assert find(container) == [("50-slurm-pmi.sh", "slurm-pmi")]


@pytest.mark.parametrize("change", ["#\n{}", "{}#\n", "{}\n"])
def test_a_stub_that_was_edited_is_foreign(container: Container, change: str) -> None:
    container.hook("10-shadow.sh", change.format(stub("shadow")))
    assert find(container) == [("10-shadow.sh", "")]


def test_a_stub_of_an_unknown_hook_is_foreign(container: Container) -> None:
    container.hook("10-x.sh", stub("no-such"))
    assert find(container) == [("10-x.sh", "")]


def test_an_original_file_runs_built_in(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    digest = hashlib.sha256(b"#!/bin/sh\noriginal\n").hexdigest()
    monkeypatch.setitem(known.ORIGINALS, "shadow", (digest,))
    container.hook("77-any-name.sh", "#!/bin/sh\noriginal\n")
    container.hook("78-changed.sh", "#!/bin/sh\noriginal\n#\n")
    assert find(container) == [("77-any-name.sh", "shadow"), ("78-changed.sh", "")]


def test_every_original_is_a_builtin_hook_and_a_digest() -> None:
    assert set(known.ORIGINALS) == set(BUILTINS)
    digests = [digest for digests in known.ORIGINALS.values() for digest in digests]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 64 and int(digest, 16) for digest in digests)


def test_the_shipped_stubs_are_recognised(container: Container) -> None:
    for folder in ("hooks.d", "extra/hooks.d"):
        for path in (SHARE / folder).iterdir():
            copy = container.hook(path.name, path.read_bytes().decode())
            assert path.stat().st_mode & 0o111, path
            assert path.read_bytes() == copy.read_bytes()
    assert sorted(builtin for _, builtin in find(container)) == sorted(BUILTINS)
    assert sorted(os.listdir(SHARE / "hooks.d")) == list(STANDARD)


def test_an_unreadable_executable_is_foreign(container: Container) -> None:
    container.hook("10-compiled.sh", stub("shadow"), mode=0o111)
    if os.getuid():
        assert find(container) == [("10-compiled.sh", "")]


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777])
def test_a_hook_that_everybody_may_write_is_refused(container: Container, mode: int) -> None:
    path = container.hook("10-x.sh", FOREIGN, mode=mode)
    with pytest.raises(HookError, match=str(path)) as caught:
        find(container)
    assert "chmod o-w" in caught.value.hint


def test_a_world_writable_stub_is_refused_too(container: Container) -> None:
    container.hook("10-shadow.sh", stub("shadow"), mode=0o757)
    with pytest.raises(HookError):
        find(container)


def test_a_writable_file_that_is_off_is_no_reason_to_stop(container: Container) -> None:
    container.hook("10-x.sh", FOREIGN, mode=0o666)
    assert find(container) == []


def test_a_folder_that_everybody_may_write_is_refused(container: Container) -> None:
    container.hook("10-x.sh", FOREIGN)
    (container.sysconf / "hooks.d").chmod(0o1777)
    with pytest.raises(HookError, match="hooks.d"):
        find(container)


@pytest.mark.parametrize(
    ("uid", "refused"), [(0, False), (os.getuid(), False), (4242, True), (65534, True)]
)
def test_owners_other_than_root_and_the_user_are_refused(uid: int, refused: bool) -> None:
    status = os.stat_result((stat.S_IFREG | 0o755, 1, 1, 1, uid, 0, 1, 0, 0, 0))
    if not refused:
        check_writers("/x", status)
        return
    with pytest.raises(HookError, match="another user"):
        check_writers("/x", status)


def test_a_folder_that_is_a_file_is_no_folder(container: Container) -> None:
    (container.config / "hooks.d").write_text("")
    assert len(find(container)) == len(STANDARD)


def test_the_same_folder_for_system_and_user_is_read_once(container: Container) -> None:
    container.hook("10-x.sh", FOREIGN)
    settings = load_settings(
        {
            "ENROOT_SYSCONF_PATH": str(container.sysconf),
            "ENROOT_CONFIG_PATH": str(container.sysconf),
        }
    )
    assert find_hooks(settings) == (Hook("10-x.sh", f"{container.sysconf}/hooks.d/10-x.sh", ""),)
