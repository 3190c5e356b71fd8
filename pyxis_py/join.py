"""One task of a launcher that drives the hooks itself (step_hooks.py): join, become the command.

    python -I -S join.py ANSWER_FD LINE_FD -- COMMAND…

Descriptor ANSWER_FD holds the keeper's answer, LINE_FD leads to the keeper.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # The folder that holds both packages; python -I leaves it out.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from enroot_py import run_joined
from pyxis_py.launchers.interpreter import forget_interpreter
from pyxis_py.launchers.task import run_and_explain
from pyxis_py.protocol.records import decode_answer
from pyxis_py.protocol.task_environ import apply_edits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def become(answer_fd: int, line_fd: int, command: tuple[str, ...]) -> NoReturn:
    """Join the container of an answer and execute a command there."""
    answer = decode_answer(os.pread(answer_fd, os.fstat(answer_fd).st_size, 0))
    os.close(answer_fd)
    os.set_inheritable(line_fd, False)
    forget_interpreter()
    environ = dict(os.environ)
    if answer.edits is not None:
        apply_edits(answer.edits, environ)
    run_joined(
        answer.pid,
        command,
        environ,
        namespaces=answer.join,
        folder=answer.cwd,
        filtered=answer.seccomp,
        opened=lambda: _tell(line_fd),
    )


def _tell(line_fd: int) -> None:
    try:
        os.write(line_fd, b"\0")
    except OSError:
        pass  # the keeper is gone; what has been opened is enough


if __name__ == "__main__":
    _, first, second, _, *words = sys.argv
    sys.exit(run_and_explain(lambda: become(int(first), int(second), tuple(words))))
