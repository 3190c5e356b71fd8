"""Generated specifications: valid by CDI's rules, and read back the same as native discovery."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import yaml

from enroot_py.errors import NotFoundError
from enroot_py.gpu.cdi.planning import plan_cdi
from enroot_py.gpu.cdi.schema import parse_spec
from enroot_py.gpu.driver_root import DriverRoot
from enroot_py.gpu.injection import Injection
from enroot_py.gpu.planning import plan_request
from enroot_py.gpu.request import GpuOptions, read_options, read_request
from enroot_py.gpu.situation import Situation
from enroot_py.operations import gpu as operation
from enroot_py.settings import load_settings
from tests.gpu.cdi.specs import write
from tests.roots.driver import FakeDriver, FakeGpu, eight_gpus, full_driver, one_gpu, uuid_of

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the fake driver is x86-64")


@pytest.fixture
def text_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the operation see text nodes as devices, and CDI take files for nodes."""
    from tests.roots.driver import TextNodes

    real = operation.driver_root
    monkeypatch.setattr(operation, "driver_root", lambda environ: TextNodes(*real(environ)))


def generate(driver: FakeDriver, **options: str) -> dict[str, object]:
    settings = load_settings({"HOME": "/", "PATH": "/bin", "ENROOT_GPU_ROOT": str(driver.path)})
    return operation.cdi_generate(settings=settings, **options)


def graphics_driver(path: Path, gpus: list[FakeGpu]) -> FakeDriver:
    driver = full_driver(path, gpus)
    for number, gpu in enumerate(gpus):
        driver.drm(gpu, number)
    driver.socket()
    driver.firmware()
    driver.imex(0)
    driver.library("libcuda", folder="usr/lib/i386-linux-gnu", machine="i386")
    driver.cache()
    return driver


def visible(injection: Injection) -> dict[str, object]:
    """What a container sees of an injection, without the reasons."""
    return {
        "devices": {(d.target, d.source) for d in injection.devices},
        "libraries": {
            (lib.soname, lib.source, lib.bits, lib.folder, frozenset(lib.names))
            for lib in injection.libraries
        },
        "programs": {(p.target, p.source) for p in injection.programs},
        "binds": {(b.target, b.source, b.kind) for b in injection.binds},
        "links": {(link.path, link.target) for link in injection.links},
        "hidden": set(injection.hidden),
        "positions": injection.visible_gpus,
    }


def native(root: DriverRoot, gpus: str) -> Injection:
    launcher = {"NVIDIA_DRIVER_CAPABILITIES": "all"}
    options = read_options(launcher)
    request = read_request(launcher, {}, options, gpus=gpus)
    injection = plan_request(request, options, Situation(root, "x86_64", launcher, {}))
    return injection._replace(texts=())  # the profile is written by a hook of its own


def read_back(
    tmp_path: Path, document: dict[str, object], root: DriverRoot, name: str
) -> Injection:
    write(tmp_path / "cdi/nvidia.yaml", document)
    options = GpuOptions(cdi_folders=(str(tmp_path / "cdi"),), unknown_hooks="error")
    names = (f"nvidia.com/gpu={name}",)
    return plan_cdi(names, options, Situation(root, "x86_64", {}, {}))


@pytest.mark.parametrize("hook", ["none", "/usr/bin/nvidia-cdi-hook", "/usr/bin/nvidia-ctk"])
@pytest.mark.usefixtures("text_nodes")
def test_it_is_valid(tmp_path: Path, hook: str) -> None:
    document = generate(graphics_driver(tmp_path / "driver", eight_gpus()), hook=hook)
    spec = parse_spec(document, "/x")
    assert spec.kind == "nvidia.com/gpu"
    names = [device.name for device in spec.devices]
    assert len(names) == 17 and names[:2] == ["0", uuid_of(3)] and names[-1] == "all"
    text = operation.format_cdi(document)
    assert yaml.safe_load(text) == document
    assert parse_spec(yaml.safe_load(text), "/x") == spec
    assert bool(spec.edits.hooks) == (hook != "none")


@pytest.mark.parametrize("hook", ["none", "/usr/bin/nvidia-cdi-hook"])
@pytest.mark.parametrize("name", ["all", "0", "5", uuid_of(7)])
@pytest.mark.usefixtures("text_nodes")
def test_read_back_it_equals_native_discovery(tmp_path: Path, hook: str, name: str) -> None:
    driver = graphics_driver(tmp_path / "driver", eight_gpus())
    document = generate(driver, hook=hook)
    found = visible(read_back(tmp_path, document, driver.root, name))
    expected = visible(native(driver.root, name))
    if hook == "none":  # without hooks there are no links below /dev
        links = expected["links"]
        assert isinstance(links, set)
        expected["links"] = {pair for pair in links if not pair[0].startswith("/dev/")}
    assert found == expected


@pytest.mark.parametrize("name", ["all", "0", "0:1", "1"])
@pytest.mark.usefixtures("text_nodes")
def test_mig_devices_read_back(tmp_path: Path, name: str) -> None:
    gpus = [
        FakeGpu(1, "0000:1b:00.0", uuid_of(1), mig={1: (0,), 2: (0, 1)}),
        FakeGpu(0, "0000:2b:00.0", uuid_of(0)),
    ]
    driver = full_driver(tmp_path / "driver", gpus)
    document = generate(driver)
    found = visible(read_back(tmp_path, document, driver.root, name))
    expected = visible(native(driver.root, name if name != "0" else "0,0:0,0:1,0:2"))
    assert found == expected


@pytest.mark.usefixtures("text_nodes")
def test_inside_a_second_injection_is_off(tmp_path: Path) -> None:
    document = generate(full_driver(tmp_path / "driver"))
    spec = parse_spec(document, "/x")
    assert "NVIDIA_VISIBLE_DEVICES=void" in spec.edits.env
    assert any(text.startswith("NVIDIA_CTK_LIBCUDA_DIR=/usr/lib") for text in spec.edits.env)


@pytest.mark.usefixtures("text_nodes")
def test_the_hook_is_found_where_it_is_installed(tmp_path: Path) -> None:
    driver = full_driver(tmp_path / "driver")
    assert "hooks" not in generate(driver)["containerEdits"]  # type: ignore[operator]
    driver.write("usr/bin/nvidia-cdi-hook", "")
    spec = parse_spec(generate(driver), "/x")
    assert {hook.path for hook in spec.edits.hooks} == {"/usr/bin/nvidia-cdi-hook"}


@pytest.mark.usefixtures("text_nodes")
def test_without_gpus_or_driver_there_is_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no NVIDIA driver"):
        generate(FakeDriver(tmp_path / "a"))
    driver = full_driver(tmp_path / "b", one_gpu())
    driver.node("nvidia0", 195, 0, "no")
    with pytest.raises(NotFoundError, match="no GPU"):
        generate(driver)
