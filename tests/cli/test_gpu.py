"""The commands about accelerators, on a fake driver root with real device nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.cli.command import Command
from tests.roots.driver import eight_gpus, full_driver, make_nodes, uuid_of


@pytest.fixture
def host(enroot: Command, tmp_path: Path) -> Command:
    """A machine with eight GPUs, of which this process may not use the last one."""
    driver = full_driver(tmp_path / "driver", eight_gpus())
    make_nodes(driver)
    enroot.environ["ENROOT_GPU_ROOT"] = str(tmp_path / "driver")
    return enroot


def test_without_accelerators_the_list_says_so(enroot: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    enroot.environ["ENROOT_GPU_ROOT"] = str(tmp_path / "empty")
    done = enroot.run("gpu", "list")
    assert (done.returncode, done.stdout) == (0, "There is no accelerator on this host.\n")
    found = json.loads(enroot.run("gpu", "list", "--json").stdout)
    assert (found["nvidia"], found["driver"]) == ([], "")


@pytest.mark.parametrize("words", [["gpu", "plan"], ["gpu", "plan", "--json"], ["cdi", "generate"]])
def test_without_a_driver_there_is_nothing_to_plan(
    enroot: Command, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    enroot.environ["ENROOT_GPU_ROOT"] = str(tmp_path / "empty")
    done = enroot.run(*words)
    assert done.returncode == 1
    assert done.stdout == "" and done.stderr.startswith("[ERROR] ")


@pytest.mark.root
def test_gpus_are_listed_by_the_number_that_start_takes(host: Command) -> None:
    done = host.run("gpu", "list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["NUMBER", "KIND", "NAME", "ADDRESS", "MODEL"]
    assert lines[1].split()[:4] == ["0", "nvidia", uuid_of(3), "0000:1b:00.0"]
    assert len(lines) == 10 and lines[-1].startswith("NVIDIA driver ")
    found = json.loads(host.run("gpu", "list", "--json").stdout)["nvidia"]
    assert [gpu["number"] for gpu in found] == list(range(8))
    assert [gpu["uuid"] for gpu in found] == [line.split()[2] for line in lines[1:9]]
    assert all(gpu["denied"] == "" and gpu["mig"] == [] for gpu in found)


@pytest.mark.root
def test_a_gpu_that_is_missing_has_no_number(host: Command) -> None:
    os.unlink(Path(host.environ["ENROOT_GPU_ROOT"]) / "dev/nvidia3")
    lines = host.run("gpu", "list").stdout.splitlines()
    assert all(not line.startswith("0 ") or uuid_of(3) not in line for line in lines)


@pytest.mark.root
def test_a_plan_gives_every_item_a_reason(host: Command) -> None:
    done = host.run("gpu", "plan", "--gpus", "0")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["WHAT", "FROM", "AS", "WHY"]
    assert any(line.startswith("device") and line.endswith("GPU 0") for line in lines)
    assert any(line.startswith("library") and " libcuda.so.1 " in line for line in lines)
    assert any(line.startswith("hidden") and " /dev/nvidia1 " in line for line in lines)
    report = json.loads(host.run("gpu", "plan", "--gpus", "0", "--json").stdout)
    targets = [device["target"] for device in report["injection"]["devices"]]
    assert "/dev/nvidia3" in targets and "/dev/nvidia1" not in targets
    assert all(device["reason"] for device in report["injection"]["devices"])


@pytest.mark.root
def test_a_plan_for_a_container_says_where_things_go(host: Command) -> None:
    (host.data / "box/etc").mkdir(parents=True)
    report = json.loads(host.run("gpu", "plan", "--json", "--gpus=all", "box").stdout)
    assert report["placement"]["binds"] or report["placement"]["own_binds"]
    done = host.run("gpu", "plan", "nosuch")
    assert done.returncode == 1 and "nosuch" in done.stderr


@pytest.mark.root
def test_a_cdi_specification_is_yaml_or_json(host: Command) -> None:
    text = host.run("cdi", "generate", "--hook", "none")
    assert text.returncode == 0, text.stderr
    document = yaml.safe_load(text.stdout)
    assert document["kind"] == "nvidia.com/gpu"
    assert {"0", "7", uuid_of(3), "all"} <= {device["name"] for device in document["devices"]}
    assert json.loads(host.run("cdi", "generate", "--hook=none", "--json").stdout) == document
