"""The configuration script of `start --conf` and `batch`: a bash file with up to four functions.

`environ` and `mounts` print lines of an environment file and of an fstab, `hooks` does as a hook
does, and `rc` is the command script. One bash reads the file inside the container's namespaces and
runs the functions one after another, so that they share variables. This is the one place where the
start story needs bash.

`read_directives` finds the `#ENROOT_…` lines; what they mean is for `load_settings`.
"""

from __future__ import annotations

import os

from enroot_py.config_file import parse_config
from enroot_py.errors import HookError, NotFoundError, UsageError
from enroot_py.hooks.answers import Answers
from enroot_py.hooks.execute import (
    IGNORED_SIGNALS,
    TIMED_OUT,
    describe_status,
    hook_environment,
    kill_tree,
    wait_for,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from enroot_py.hooks.context import HookContext
    from enroot_py.plan.fstab import Mount

_LARGEST_SCRIPT = 16 << 20

# $1: the script; $2, $3: descriptors of requests and replies. A request is a function's name; the
# reply is a line. Function output goes where the original sends it. `set -e` ends bash, and with
# it the replies, as soon as a command fails.
_DRIVER = r"""
set -euo pipefail
shopt -s lastpipe
if ! "${BASH}" -n "$1"; then exit 200; fi
_enroot_in=$2 _enroot_out=$3
source "${ENROOT_LIBRARY_PATH}/common.sh"
source "$1"
_enroot_names=
for _enroot_name in environ mounts hooks rc; do
    if declare -F "${_enroot_name}" > /dev/null; then _enroot_names+=" ${_enroot_name}"; fi
done
echo "${_enroot_names}" >&"${_enroot_out}"
while read -r _enroot_name <&"${_enroot_in}"; do
    case "${_enroot_name}" in
    environ) eval "environ ${_enroot_in}<&- ${_enroot_out}>&-" >> "${ENROOT_ENVIRON}" ;;
    mounts) eval "mounts ${_enroot_in}<&- ${_enroot_out}>&-" >> "${ENROOT_MOUNTS}" ;;
    hooks) eval "hooks ${_enroot_in}<&- ${_enroot_out}>&-" > /dev/null ;;
    rc) declare -f rc > "${ENROOT_WORKDIR}/rc.function" ;;
    esac
    echo "${_enroot_name}" >&"${_enroot_out}"
done
"""


def read_directives(path: str) -> tuple[tuple[str, str], ...]:
    """Return the `(key, raw value)` pairs of a script's `#ENROOT_KEY value` lines, in order.

    Raises:
        NotFoundError: if there is no such file.
        UsageError: if it cannot be read.

    Source: enroot 4.1.2 enroot.in, start() and batch().
    """
    if not os.path.isfile(path):
        # Nor a fifo: it is read again, by bash.
        raise NotFoundError(f"No such file: {path}")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(_LARGEST_SCRIPT)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}") from error
    lines = [line[1:].lstrip() for line in text.splitlines() if line.startswith("#")]
    return tuple(parse_config("\n".join(line for line in lines if line.startswith("ENROOT_"))))


class ConfScript:
    """A running bash that has read a configuration script; a context manager.

    Start it once the namespaces are entered and the rootfs is mounted. Reading the script goes on
    beside the start: errors in it appear at the first request.

    Args:
        path: host path of the script.
        context: the container; the script sees what hooks see.
    """

    def __init__(self, path: str, context: HookContext) -> None:
        self.path = path
        self._context = context
        self._functions: frozenset[str] | None = None
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        try:
            self._pid = self._start(requests, replies)
        except OSError as error:
            os.close(self._requests)
            os.close(self._replies)
            raise UsageError(
                f"Cannot run {path}: {error.strerror}: bash",
                hint="a configuration script is a bash file: install bash, or do without --conf",
            ) from error
        finally:
            os.close(requests)
            os.close(replies)

    def __enter__(self) -> ConfScript:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End bash; it ends by itself at the end of requests."""
        if self._pid:
            os.close(self._requests)
            os.close(self._replies)
            wait_for(self._pid, self._context.settings.hook_timeout)
            self._pid = 0

    def environ(self) -> dict[str, str]:
        """Return the container's environment with what the `environ` function adds.

        `context.environ` is what the function finds in ENROOT_ENVIRON; it is not changed.
        """
        answers = Answers(self._context)
        self.run_function("environ", answers)
        return answers.environ

    def mounts(self) -> tuple[Mount, ...]:
        """Return what the `mounts` function asks for."""
        answers = Answers(self._context)
        self.run_function("mounts", answers)
        return answers.mounts

    def rc(self) -> str:
        """Return the body of the `rc` function as a script; "" if there is none."""
        if "rc" not in self.functions():
            return ""
        self._request("rc")
        path = os.path.join(self._context.workdir, "rc.function")
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines(keepends=True)
        # bash prints a function as its name, an opening brace, the body and a closing brace.
        return "".join(lines[2:-1])

    def run_function(self, name: str, answers: Answers) -> None:
        """Run a function, if the script has it, and take its answers over.

        Raises:
            HookError: if it fails or takes longer than the limit for hooks.
        """
        if name in self.functions():
            answers.write()
            self._request(name)
            answers.read(self.path)

    def functions(self) -> frozenset[str]:
        """Return which of the four functions the script defines."""
        if self._functions is None:
            self._functions = frozenset(self._reply("").split())
        return self._functions

    def _start(self, requests: int, replies: int) -> int:
        for fd in (requests, replies):
            os.set_inheritable(fd, True)
        arguments = [self.path, str(requests), str(replies)]
        return os.posix_spawnp(
            "bash",
            ["bash", "--norc", "-c", _DRIVER, self.path, *arguments],
            hook_environment(self._context),
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
            setsigdef=IGNORED_SIGNALS,
        )

    def _request(self, name: str) -> None:
        try:
            os.write(self._requests, name.encode() + b"\n")
        except BrokenPipeError:
            pass  # bash has ended: the missing reply says so
        self._reply(name)

    def _reply(self, name: str) -> str:
        """Wait for bash's next line. Raises HookError if there is none in time."""
        timeout = self._context.settings.hook_timeout
        text = b""
        while not text.endswith(b"\n"):
            if not self._readable(timeout):
                kill_tree(self._pid)
                self._fail(name, TIMED_OUT)
            chunk = os.read(self._replies, 4096)
            if not chunk:
                self._fail(name, wait_for(self._pid, timeout))
            text += chunk
        return text.decode()

    def _readable(self, timeout: float) -> bool:
        import select

        return bool(select.select([self._replies], [], [], timeout or None)[0])

    def _fail(self, name: str, status: int) -> None:
        if status == TIMED_OUT:
            os.waitpid(self._pid, 0)
        self._pid = 0
        os.close(self._requests)
        os.close(self._replies)
        part = f"The {name} function of {self.path}" if name else self.path
        if status == 200:
            raise UsageError(f"{self.path} is not a valid bash file")
        if status == TIMED_OUT:
            limit = self._context.settings.hook_timeout
            raise HookError(
                f"{part} was stopped: it took longer than {limit:g} seconds",
                path=self.path,
                status=status,
                hint="raise ENROOT_HOOK_TIMEOUT (seconds, 0 for no limit) if it needs more",
            )
        raise HookError(f"{part} failed: {describe_status(status)}", path=self.path, status=status)
