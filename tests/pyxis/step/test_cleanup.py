"""What a job's end removes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from enroot_py import StartSpec, create, load_settings, spawn
from enroot_py.store.cache_folders import open_cache
from enroot_py.store.locks import FileLock
from pyxis_py.runtime_folder import find_folder, folders_without_site
from pyxis_py.step.cleanup import StepState, clean_job, finish
from tests.slurm.images import make_image

NO_JOB = 3 * 10**6 + os.getpid()


def unfinished(folder: Path, name: str) -> Path:
    path = folder / f".enroot.{name}"
    (path / "etc").mkdir(parents=True)
    (path / "etc/passwd").write_text("root\n")
    path.with_name(path.name + ".lock").touch()
    return path


def test_what_was_being_unpacked_when_it_was_killed_is_removed(tmp_path: Path) -> None:
    paths = {"ENROOT_DATA_PATH": tmp_path / "data", "ENROOT_CACHE_PATH": tmp_path / "cache"}
    settings = load_settings({"HOME": str(tmp_path), **{k: str(v) for k, v in paths.items()}})
    (tmp_path / "data").mkdir(mode=0o700)
    cache = open_cache(settings.cache_path)
    folders = [tmp_path / "data", Path(cache.extracted), Path(cache.images)]
    for folder in folders:
        unfinished(folder, "killed")
    busy = unfinished(Path(cache.extracted), "busy")
    (Path(cache.extracted) / "finished").mkdir()
    with FileLock(f"{busy}.lock"):
        assert clean_job(NO_JOB, settings, folders=[], named=False) == []
    left = [sorted(os.listdir(folder)) for folder in folders]
    assert left == [[], [".enroot.busy", "finished"], []]
    assert (busy / "etc/passwd").exists()


def test_meeting_places_of_tasks_are_removed_wherever_they_were(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path), "ENROOT_DATA_PATH": str(tmp_path / "data")})
    before = folders_without_site(os.getuid())
    without_site = find_folder("/no/such", {})
    assert without_site in folders_without_site(os.getuid())
    site = tmp_path / "site"
    folders = [site, Path(without_site)]
    others = [folder / f"{NO_JOB}0.0.5f3a9c01" for folder in folders]
    places = [folder / f"{NO_JOB}.0.5f3a9c01" for folder in folders]
    try:
        for path in (*places, *others):
            path.mkdir(parents=True)
            (path / "counts").write_text("1 0 0")
        asked = [tmp_path / "none", site, *folders_without_site(os.getuid())]
        assert clean_job(NO_JOB, settings, folders=map(str, asked), named=False) == []
        assert not any(path.exists() for path in places)
        assert all(path.exists() for path in others)
    finally:
        for path in (*places, *others):
            shutil.rmtree(path, ignore_errors=True)
        if without_site not in before:
            os.rmdir(without_site)


@pytest.mark.kernel
def test_what_still_runs_in_a_steps_own_container_ends_with_the_step(tmp_path: Path) -> None:
    """A task that was killed before it joined, or a program that a task has left behind."""
    names = ("HOME", "ENROOT_DATA_PATH", "ENROOT_CACHE_PATH", "ENROOT_RUNTIME_PATH")
    settings = load_settings({name: str(tmp_path / name) for name in names})
    create(str(make_image(tmp_path / "image.sqsh")), "pyxis_5.0", settings=settings)
    spec = StartSpec("pyxis_5.0", ("sleep", "1000"))
    with spawn(spec, settings=settings) as container:
        state = StepState("pyxis_5.0", True, "", "", "")
        assert finish(state, settings, complete=False) == ([], [])
        assert container.wait() == 137
    assert os.listdir(settings.data_path) == []
