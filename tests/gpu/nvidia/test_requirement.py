"""NVIDIA_REQUIRE_* expressions."""

from __future__ import annotations

import pytest

from enroot_py.errors import UsageError
from enroot_py.gpu.nvidia.requirement import (
    GpuFacts,
    Term,
    brand_of_model,
    check_requirement,
    compare_versions,
    cuda_of_driver,
    parse_requirement,
    requirement_variables,
    requirements_disabled,
    unsatisfied_error,
)

DRIVER = GpuFacts(cuda="13.0", driver="580.95.05")
GPU = DRIVER._replace(arch="9.0", brand="nvidia")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("cuda>=12.4", True),
        ("cuda>=13.0", True),
        ("cuda>=13", True),
        ("cuda=13", True),
        ("cuda=13.0.0", True),
        ("cuda!=13.0", False),
        ("cuda!=12", True),
        ("cuda>13.0", False),
        ("cuda>12.9", True),
        ("cuda<13.1", True),
        ("cuda<13", False),
        ("cuda<=13.0", True),
        ("cuda<=12.9", False),
        ("cuda>=13.1", False),
        ("CUDA>=12", True),
        ("driver>=580", True),
        ("driver>=580.95.5", True),
        ("driver<580.100", True),
        ("driver<9", False),
        ("driver=580.95.05", True),
        ("arch>=9", True),
        ("arch<8.9", False),
        ("brand=nvidia", True),
        ("brand=NVIDIA", True),
        ("brand=tesla", False),
        ("brand!=tesla", True),
        ("brand!=nvidia", False),
        ("cuda>=12,driver>=600", False),
        ("cuda>=12,driver>=500", True),
        ("cuda>=13.1 driver>=580", True),
        ("cuda>=13.1 driver>=600", False),
        ("cuda>=13.1 brand=tesla,driver>=470,driver<471 brand=nvidia,driver>=535", True),
        ("flavour=sweet", True),
        ("", True),
        (" , ", True),
    ],
)
def test_expressions(text: str, holds: bool) -> None:
    verdict = check_requirement(parse_requirement(text, "NVIDIA_REQUIRE_X"), (GPU,), DRIVER)
    assert (verdict.unsatisfied == ()) == holds


@pytest.mark.parametrize(
    "text",
    ["cuda", "cuda>=", ">=12", "cuda>=12.x", "driver>=", "brand<tesla", "brand>=x", "arch=nine",
     "cuda!12", "cuda>=12,driver"],
)  # fmt: skip
def test_malformed_terms_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="NVIDIA_REQUIRE_CUDA"):
        parse_requirement(text, "NVIDIA_REQUIRE_CUDA")


def test_the_group_that_came_closest_is_reported() -> None:
    groups = parse_requirement("cuda>=14,driver>=600,arch>=10 driver>=600,cuda>=12", "X")
    verdict = check_requirement(groups, (GPU,), DRIVER)
    assert verdict.unsatisfied == (Term("driver", ">=", "600"),)


def test_every_visible_gpu_must_satisfy() -> None:
    groups = parse_requirement("arch>=8", "X")
    old = GPU._replace(arch="7.5")
    assert check_requirement(groups, (GPU, old), DRIVER).unsatisfied
    assert not check_requirement(groups, (GPU,), DRIVER).unsatisfied


def test_without_a_gpu_arch_and_brand_hold() -> None:
    groups = parse_requirement("arch>=99,brand=none", "X")
    assert check_requirement(groups, (), DRIVER).unsatisfied == ()
    groups = parse_requirement("cuda>=99", "X")
    assert check_requirement(groups, (), DRIVER).unsatisfied


@pytest.mark.parametrize("text", ["arch>=8", "colour=red"])
def test_what_cannot_be_told_holds_with_a_warning(text: str) -> None:
    gpu = DRIVER
    verdict = check_requirement(parse_requirement(text, "X"), (gpu,), DRIVER)
    assert verdict.unsatisfied == () and text in verdict.warnings[0]


def test_the_message_names_condition_variable_and_versions() -> None:
    error = unsatisfied_error((Term("cuda", ">=", "13.1"),), "NVIDIA_REQUIRE_CUDA", DRIVER)
    for part in ("unsatisfied condition: cuda>=13.1", "NVIDIA_REQUIRE_CUDA", "580.95.05", "13.0"):
        assert part in str(error)
    assert "NVIDIA_DISABLE_REQUIRE=1" in error.hint


def test_variables_count_in_order_but_jetpack() -> None:
    environ = {
        "NVIDIA_REQUIRE_DRIVER": "a", "NVIDIA_REQUIRE_CUDA": "b", "NVIDIA_REQUIRE_JETPACK_X": "c",
        "NVIDIA_VISIBLE_DEVICES": "all",
    }  # fmt: skip
    assert requirement_variables(environ) == (
        ("NVIDIA_REQUIRE_CUDA", "b"), ("NVIDIA_REQUIRE_DRIVER", "a"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "disabled"),
    [("", False), ("0", False), ("false", False), ("No", False), ("off", False), ("1", True),
     ("true", True), ("anything", True)],
)  # fmt: skip
def test_switching_the_check_off(value: str, disabled: bool) -> None:
    assert requirements_disabled(value) == disabled


def test_versions_of_different_length() -> None:
    assert compare_versions("12", "12.0.0") == 0
    assert compare_versions("12.10", "12.9") > 0
    assert compare_versions("9", "10") < 0


@pytest.mark.parametrize(
    ("version", "cuda"), [("470.82.01", "11.4"), ("580.95.05", "13.0"), ("1.2", ""), ("", "")]
)
def test_cuda_of_a_driver_branch(version: str, cuda: str) -> None:
    assert cuda_of_driver(version) == cuda


@pytest.mark.parametrize(
    ("model", "brand"),
    [
        ("NVIDIA H200", "nvidia"), ("Tesla V100-SXM2-16GB", "tesla"),
        ("Quadro RTX 6000", "quadrortx"),
        ("Quadro P4000", "quadro"), ("NVIDIA GeForce RTX 4090", "geforcertx"),
        ("GeForce GTX 1080", "geforce"), ("NVIDIA TITAN RTX", "titanrtx"), ("TITAN V", "titan"),
        ("NVIDIA RTX A6000", "nvidiartx"), ("", ""),
    ],
)  # fmt: skip
def test_brands_by_model(model: str, brand: str) -> None:
    assert brand_of_model(model) == brand
