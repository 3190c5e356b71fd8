"""Requests: precedence of flags, environments and configuration."""

from __future__ import annotations

import pytest

from enroot_py.errors import SettingsError, UsageError
from enroot_py.gpu.nvidia.selection import DeviceList
from enroot_py.gpu.request import GpuOptions, GpuRequest, parse_channels, read_options, read_request

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def read(
    launcher: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    *,
    gpus: str = "",
    devices: tuple[str, ...] = (),
) -> GpuRequest:
    environ = launcher or {}
    return read_request(environ, container or {}, read_options(environ), gpus=gpus, devices=devices)


@pytest.mark.parametrize(
    ("launcher", "container", "gpus", "text", "explicit"),
    [
        ({}, {}, "", "", False),
        ({}, {VISIBLE: "all"}, "", "all", False),
        ({VISIBLE: "0"}, {VISIBLE: "all"}, "", "0", True),
        ({VISIBLE: ""}, {VISIBLE: "all"}, "", "", True),
        ({VISIBLE: "0"}, {VISIBLE: "all"}, "2", "2", True),
        ({"ENROOT_GPU_DEFAULT_DEVICES": "all"}, {}, "", "all", True),
        ({"ENROOT_GPU_DEFAULT_DEVICES": "all"}, {VISIBLE: "void"}, "", "void", False),
        ({"ENROOT_GPU_REQUIRED": "y"}, {VISIBLE: "all"}, "", "all", True),
        ({"ENROOT_GPU_LEGACY_IMAGES": "y"}, {"CUDA_VERSION": "9.0"}, "", "all", False),
        (
            {"ENROOT_GPU_LEGACY_IMAGES": "y"},
            {"CUDA_VERSION": "9.0", "NVIDIA_REQUIRE_CUDA": "cuda>=9"},
            "",
            "",
            False,
        ),
        ({}, {"CUDA_VERSION": "9.0"}, "", "", False),
    ],
)
def test_who_asks(
    launcher: dict[str, str], container: dict[str, str], gpus: str, text: str, explicit: bool
) -> None:
    request = read(launcher, container, gpus=gpus)
    assert (request.text, request.explicit) == (text, explicit)
    assert request.devices.nothing == (text in ("", "void"))


def test_other_variables_of_the_launcher_win_too() -> None:
    request = read(
        {"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        {VISIBLE: "all", "NVIDIA_DRIVER_CAPABILITIES": "all", "NVIDIA_REQUIRE_CUDA": "cuda>=12"},
    )
    assert request.capabilities == {"utility"}
    assert request.requirements == (("NVIDIA_REQUIRE_CUDA", "cuda>=12"),)


def test_names_of_other_kinds_do_not_reach_over() -> None:
    request = read({"SLURM_X": "1"}, {VISIBLE: "all", "LD_PRELOAD": "/evil.so"})
    assert request.requirements == ()


def test_the_check_of_requirements_can_be_switched_off() -> None:
    container = {VISIBLE: "all", "NVIDIA_REQUIRE_CUDA": "cuda>=99", "NVIDIA_DISABLE_REQUIRE": "1"}
    assert read({}, container).requirements == ()


@pytest.mark.parametrize(
    ("launcher", "items"),
    [
        ({"SLURM_JOB_GPUS": "2,3", VISIBLE: "slurm"}, ("host:2", "host:3")),
        ({"SLURM_JOB_GPUS": "2,3", "SLURM_STEP_GPUS": "3", VISIBLE: "slurm"}, ("host:3",)),
        ({VISIBLE: "slurm"}, ()),
    ],
)
def test_the_jobs_gpus(launcher: dict[str, str], items: tuple[str, ...]) -> None:
    request = read(launcher)
    assert request.devices == DeviceList(items=items)
    assert request.origin.endswith("slurm")


def test_cdi_names_from_flags_and_the_launcher_count() -> None:
    request = read({VISIBLE: "a.b/c=1,0"}, {}, devices=("a.b/c=2", "a.b/c=1"))
    assert request.cdi == ("a.b/c=2", "a.b/c=1")
    assert request.devices.items == ("0",)


@pytest.mark.parametrize(
    ("launcher", "device", "nothing"),
    [
        ({}, "nvidia.com/gpu=0", True),
        ({}, "hpe.com/slingshot=all", False),
        ({VISIBLE: "1"}, "nvidia.com/gpu=0", False),
    ],
)
def test_gpus_by_cdi_stand_instead_of_those_that_the_image_asks_for(
    launcher: dict[str, str], device: str, nothing: bool
) -> None:
    request = read(launcher, {VISIBLE: "all"}, devices=(device,))
    assert request.devices.nothing == nothing and request.cdi == (device,)


def test_an_image_of_before_the_variables() -> None:
    request = read({"ENROOT_GPU_LEGACY_IMAGES": "y"}, {"CUDA_VERSION": "9.0.176"})
    assert request.devices.everything and "ngx" in request.capabilities
    assert request.requirements == (("CUDA_VERSION", "cuda>=9.0"),)


def test_a_list_of_cdi_names_alone_asks_for_nothing_else() -> None:
    request = read({}, {}, gpus="a.b/c=1")
    assert request.cdi == ("a.b/c=1",) and request.devices.nothing


def test_an_image_must_not_choose_cdi_devices() -> None:
    request = read({}, {VISIBLE: "evil.com/x=y"})
    assert request.cdi == ()
    assert "evil.com/x=y" in request.warnings[0] and "--device" in request.warnings[0]


def test_mig_administration() -> None:
    request = read({"NVIDIA_MIG_CONFIG_DEVICES": "all"}, {VISIBLE: "all"})
    assert request.mig_config and request.mig_explicit and not request.mig_monitor
    request = read({}, {VISIBLE: "all", "NVIDIA_MIG_MONITOR_DEVICES": "ALL"})
    assert request.mig_monitor and not request.mig_explicit
    with pytest.raises(UsageError, match="NVIDIA_MIG_CONFIG_DEVICES"):
        read({"NVIDIA_MIG_CONFIG_DEVICES": "0"}, {VISIBLE: "all"})


def test_gates_are_opened_by_the_word_enabled() -> None:
    container = {VISIBLE: "all", "NVIDIA_GDS": "Enabled", "NVIDIA_GDRCOPY": "yes"}
    assert read({}, container).gates == {"gds"}


@pytest.mark.parametrize(
    ("text", "channels"),
    [("", None), ("all", None), ("0", {0}), ("channel3, 0,3", {0, 3}), ("1048575", {1048575})],
)
def test_imex_channels(text: str, channels: set[int] | None) -> None:
    assert parse_channels(text) == channels


@pytest.mark.parametrize("text", ["x", "channel", "1048576", "-1", "\u0661", "1.5"])
def test_malformed_imex_channels(text: str) -> None:
    with pytest.raises(UsageError, match="NVIDIA_IMEX_CHANNELS"):
        parse_channels(text)


def test_the_defaults_of_the_configuration() -> None:
    assert read_options({}) == GpuOptions()


@pytest.mark.parametrize(
    ("name", "value"),
    [("ENROOT_GPU_PROC", "some"), ("ENROOT_GPU_COMPAT", "on"), ("ENROOT_CDI_UNKNOWN_HOOKS", "x"),
     ("ENROOT_CDI_REHOME_LIBRARIES", "maybe")],
)  # fmt: skip
def test_unknown_values_of_settings_are_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_options({name: value})


def test_settings() -> None:
    options = read_options(
        {
            "ENROOT_GPU_REQUIRED": "y",
            "ENROOT_GPU_PROC": "full",
            "ENROOT_GPU_COMPAT": "off",
            "ENROOT_CDI_DIRS": "/a::/b",
            "ENROOT_CDI_UNKNOWN_HOOKS": "run",
            "ENROOT_GPU_COMPAT_PATH": "/opt/compat",
        }  # fmt: skip
    )
    assert options.required and options.proc == "full" and options.compat == "off"
    assert options.cdi_folders == ("/a", "/b") and options.unknown_hooks == "run"
    assert options.compat_folder == "/opt/compat"
