"""The vocabulary of the table of command lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One command line.

    Attributes:
        name: unique within its scenario.
        words: what follows `enroot`; `${…}` stands for a place or name of the run: REG (the
            registry), IMAGES, ROOT, UID, GID, PID (of the container in the background), and
            DIGEST_app and so on.
        answer: what it reads.
        environ: variables beside the world's.
        look: what of stdout is compared: "lines", "sorted", "table", "variables" or "nothing".
        tree: what is walked afterwards: "container NAME", "image FILE", "names FOLDER" or "".
        program: a program below the root that runs instead of `enroot`; made by an earlier step.
        background: it goes on running while the next steps run; it must print a line, and then
            become a `sleep`.
    """

    name: str
    words: tuple[str, ...]
    answer: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    look: str = "lines"
    tree: str = ""
    program: str = ""
    background: bool = False


@dataclass(frozen=True)
class Scenario:
    """Command lines that run one after the other in fresh folders.

    Attributes:
        name: unique.
        steps: in order.
        containers: name to image: made beforehand.
        files: below the root ("work/…" is where the commands run), names that end in a slash
            are folders.
    """

    name: str
    steps: tuple[Step, ...]
    containers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def step(name: str, *words: str, **more: object) -> Step:
    """A step; see there."""
    return Step(name, words, **more)  # type: ignore[arg-type]
