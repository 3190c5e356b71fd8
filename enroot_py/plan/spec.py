"""What a caller asks for: the arguments of a start, as typed data. Pure.

`plan/start.py` turns a spec, the settings and the host's facts into a plan.
"""

from __future__ import annotations

from enroot_py.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple

    from enroot_py.plan.fstab import Mount
else:
    from enroot_py.record import NamedTuple


class StartSpec(NamedTuple):
    """A container to start.

    Attributes:
        target: a container's name, or the path of a squashfs image.
        command: words handed to the command script, or run where there is none; may be empty.
        root: appear as root inside (user 0 stands for the caller, nothing more).
        writable: keep the rootfs writable.
        mounts: mounts from the host, in order: records, or text as `--mount` takes it.
        environ: variables for the container: "NAME=value", or "NAME" for the host's value.
        rc: host path of a command script to run instead of the image's; "" for the image's.
        conf: host path of a configuration script in bash; "" for none.
        unshare_pid, unshare_net, unshare_ipc, unshare_uts: new namespaces of these kinds.
        gpus: GPUs to inject, as NVIDIA_VISIBLE_DEVICES takes them; "" leaves it to the environment.
        devices: CDI device names to inject, e.g. ("nvidia.com/gpu=0",).
        preserve_fds: how many descriptors from 3 on to pass on, beside 0 to 2.
    """

    target: str
    command: tuple[str, ...] = ()
    root: bool = False
    writable: bool = False
    mounts: tuple[Mount | str, ...] = ()
    environ: tuple[str, ...] = ()
    rc: str = ""
    conf: str = ""
    unshare_pid: bool = False
    unshare_net: bool = False
    unshare_ipc: bool = False
    unshare_uts: bool = False
    gpus: str = ""
    devices: tuple[str, ...] = ()
    preserve_fds: int = 0

    def check(self) -> None:
        """Refuse what is of another type: a text would be taken for a row of letters.

        Raises:
            UsageError: naming the attribute.
        """
        for name in ("target", "rc", "conf", "gpus"):
            _check_text(f"StartSpec.{name}", getattr(self, name))
        for name in ("command", "environ", "devices"):
            check_words(f"StartSpec.{name}", getattr(self, name))
        # A record of `Mount` is a tuple with names.
        texts = [
            mount for mount in _row("StartSpec.mounts", self.mounts) if not hasattr(mount, "fstype")
        ]
        check_words("StartSpec.mounts", texts)


def check_words(name: str, words: object) -> None:
    """Refuse anything but a tuple or list of text.

    Raises:
        UsageError: saying what `name` is instead.
    """
    for word in _row(name, words):
        _check_text(name, word)


def _row(name: str, words: object) -> Iterable[object]:
    if isinstance(words, (tuple, list)):
        return words
    # Not the value: variables may hold secrets.
    what = f"{name}: expected a tuple or list, got {type(words).__name__}"
    raise UsageError(what, hint='for one word: ("word",)')


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        what = f"{name}: expected text, got {type(value).__name__}"
        raise UsageError(what, hint="str() makes text of a path")
