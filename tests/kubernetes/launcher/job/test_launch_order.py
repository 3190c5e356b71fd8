"""What srun tells an agent, there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyxis_py.kubernetes.launcher.job.allocation import Share
from pyxis_py.kubernetes.launcher.job.launch_order import LaunchOrder

ORDER = LaunchOrder(
    step=3, place=1, share=Share(2, (4, 5), 8, (0, 1)), programs={4: ["a"], 5: ["b", "c d"]},
    environ={"A": "\udcff"}, secrets=("T",), image_kept=None, bin="/b", directory="/d",
    umask=0o22, limits={"CORE": -1}, streams=("null", "srun", "output"), stdin_task=4,
    append=True, unbuffered=False, gpu_bind="", gpus_per_task=1, cpu_bind="none",
    cpus_per_task=2, places=(0, 0, 1),
)  # fmt: skip


@pytest.mark.parametrize("order", [ORDER, ORDER._replace(image_kept=("A", "B"), places=())])
def test_it_survives_its_journey(order: LaunchOrder) -> None:
    assert LaunchOrder.from_json(json.loads(json.dumps(order.to_json()))) == order


@pytest.mark.parametrize(
    "changes",
    [{"programs": {"4": ["a"]}}, {"share": [1, 2]}, {"streams": ["null"]}, {"share": None},
     {"programs": {"x": []}}, {"secrets": None}],
)  # fmt: skip
def test_what_is_no_order_is_an_error(changes: dict[str, Any]) -> None:
    content = {**json.loads(json.dumps(ORDER.to_json())), **changes}
    with pytest.raises((KeyError, TypeError, ValueError)):
        LaunchOrder.from_json(content)
    with pytest.raises(KeyError):
        LaunchOrder.from_json({})
