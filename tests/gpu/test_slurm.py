"""CUDA_VISIBLE_DEVICES in containers that hold a subset of the GPUs."""

from __future__ import annotations

import pytest

from enroot_py.errors import DeviceError
from enroot_py.gpu.slurm import task_binding_warning, visible_devices

ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


@pytest.mark.parametrize(
    ("value", "visible", "result"),
    [
        # nothing hidden, nothing changed: local and global numbers alike
        ("0,1", None, ()),
        ("4,5", None, ()),
        # a subset: each number becomes the position in the container
        ("0,1", (0, 1), ()),
        ("1", (1,), (("CUDA_VISIBLE_DEVICES", "0"), ORDER)),
        ("0,1,2,3", (2, 3), (("CUDA_VISIBLE_DEVICES", "0,1"), ORDER)),
        ("3,2", (2, 3), (("CUDA_VISIBLE_DEVICES", "1,0"), ORDER)),
        # names are never changed
        ("GPU-0001", (2, 3), ()),
        ("MIG-0001,MIG-0002", (2, 3), ()),
        ("0,GPU-0001", (2, 3), ()),
        # not set, or nothing selected
        ("", (2, 3), ()),
        ("0", (), ()),
    ],
)
def test_values(value: str, visible: tuple[int, ...] | None, result: object) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": value}, visible) == result


def test_an_order_that_is_set_stays() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert visible_devices(environ, (1,)) == (("CUDA_VISIBLE_DEVICES", "0"),)


def test_when_every_named_gpu_is_hidden_the_start_says_so() -> None:
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES=0,1 names no GPU"):
        visible_devices({"CUDA_VISIBLE_DEVICES": "0,1"}, (2, 3))


@pytest.mark.parametrize(
    ("launcher", "by_index", "warned"),
    [
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "4"}, True, True),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "4"}, False, False),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "1"}, True, False),
        ({"SLURM_NTASKS": "4"}, True, False),
        ({"SLURM_TRES_PER_TASK": "gres/gpu:1", "SLURM_NTASKS": "2"}, True, True),
    ],
)
def test_numbers_with_gpus_bound_to_tasks(
    launcher: dict[str, str], by_index: bool, warned: bool
) -> None:
    assert bool(task_binding_warning(launcher, by_index=by_index)) == warned
