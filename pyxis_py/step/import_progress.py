"""Make news of how much of an image has arrived. Only for imports: a progress is slow to load."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from enroot_py import Progress
from pyxis_py.protocol.news import News


class ReportedProgress(Progress):
    """Is told how an import goes, and tells the step's news."""

    def __init__(self, news: News) -> None:
        super().__init__()
        self._news = news
        self._arrived: dict[str, int] = {}
        self._total = 0

    def begin(
        self, layers: Sequence[Any], missing: Sequence[Any], *, here: Collection[Any] = ()
    ) -> None:
        """The image's layers are known, and those that are missing."""
        super().begin(layers, missing, here=here)
        self._total = sum(layer.size for layer in missing)

    def received(self, layer: Any, count: int) -> None:
        """Of a layer, `count` bytes have arrived."""
        super().received(layer, count)
        self._arrived[str(layer.digest)] = count
        arrived = sum(self._arrived.values())
        self._news.detail(f"{_mebibytes(arrived)} of {_mebibytes(self._total)} MiB have arrived")


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f}"
