"""Serve a squashfs image to a container: squashfuse outside, its mount inside.

`ImageServer` forks before the namespaces are entered. Inside, the container mounts a connection to
/dev/fuse by itself and sends it to that child, which has stayed on the host and becomes squashfuse.
So there is nothing to wait for, no supervisor, and an end by itself: when the container's last
process is gone, by whatever death, its mounts go, the connection breaks, and squashfuse exits.
Inside the namespaces squashfuse would keep them alive for ever, and the container could reach it.

Source: fuse(4); libfuse's convention of /dev/fd/N as a mount point (3.3 and newer).
"""

from __future__ import annotations

import os

from enroot_py.errors import UnsupportedError
from enroot_py.linux.kernel import Kernel
from enroot_py.plan.mount_options import MS_NODEV, MS_NOSUID, MS_RDONLY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = "squashfuse"
"""What serves images; its sibling squashfuse_ll cannot give the files an owner (-o uid, gid)."""

# An image does not change while it is mounted: names, attributes and contents that the kernel knows
# stay valid. By default it would ask again after a second, and read a file anew whenever opened.
_CACHING = "kernel_cache,entry_timeout=86400,attr_timeout=86400,negative_timeout=86400"
# squashfuse takes and gives back a decompressor and a block's memory for every block. Left to
# itself glibc returns them to the kernel each time, which costs half as much as decompressing.
_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": "67108864",
    "MALLOC_TOP_PAD_": "16777216",
    "MALLOC_MMAP_THRESHOLD_": "67108864",
}
_FUSE = "/dev/fuse"
_MESSAGE_LIMIT = 2000


def find_server(environment: Mapping[str, str]) -> str:
    """Return the path of a program that serves images here, "" if there is none."""
    if not os.access(_FUSE, os.R_OK | os.W_OK):
        return ""
    for folder in environment.get("PATH", os.defpath).split(":"):
        path = f"{folder or '.'}/{PROGRAM}"
        if os.access(path, os.X_OK):
            return path
    return ""


class ImageServer:
    """A child process that waits to become the server of one image.

    Create it before the namespaces are entered, `attach` it once they are. Until then the child
    ends with this process.
    """

    def __init__(
        self, program: str, image: str, environment: Mapping[str, str], *, uid: int, gid: int
    ) -> None:
        """Fork the child.

        Args:
            program: what `find_server` returned.
            image: absolute host path of the image.
            environment: the host's variables, for the program.
            uid, gid: who owns the image's files, in the terms of the container.
        """
        import _socket

        self.program = program
        self.image = image
        self._environment = environment
        self._uid, self._gid = uid, gid
        self._target = ""
        kind = _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC
        self._socket, other = _socket.socketpair(_socket.AF_UNIX, kind, 0)
        self._messages = os.memfd_create("squashfuse", os.MFD_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._socket.close()
                self._become_server(other)
            finally:
                os._exit(1)
        other.close()

    def _become_server(self, channel: object) -> None:
        # The container must not find a child that it did not start: leave it at once.
        if os.fork():
            os._exit(0)
        os.setsid()  # no signals from the terminal
        _ignore_signals()
        fd = _receive_descriptor(channel)
        null = os.open(os.devnull, os.O_RDWR)
        for number, target in ((null, 0), (null, 1), (self._messages, 2)):
            os.dup2(number, target)
        os.dup2(fd, 3)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 3:
                _close_quietly(int(name))
        os.chdir("/")
        options = f"uid={self._uid},gid={self._gid},{_CACHING}"
        words = [self.program, "-f", "-o", options, self.image, "/dev/fd/3"]
        os.execve(self.program, words, {**self._environment, **_MEMORY})

    def reap(self) -> None:
        """Wait for the intermediate child; to be called by hand before this process forks."""
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0

    def attach(self, kernel: Kernel, target: str, flags: int = 0) -> None:
        """Mount the image at `target`, an absolute path, and let the server start.

        Args:
            kernel: the way to system calls.
            target: where.
            flags: of mount(2), beside those that every image has.

        Raises:
            KernelError: if the kernel refuses.
        """
        # The kernel wants whoever opened the device and whoever mounts it in one user namespace.
        fd = os.open(_FUSE, os.O_RDWR | os.O_CLOEXEC)
        try:
            data = f"fd={fd},rootmode=40000,user_id={self._uid},group_id={self._gid}"
            kernel.mount(
                self.image,
                target,
                "fuse.squashfuse",
                MS_NOSUID | MS_NODEV | MS_RDONLY | flags,
                data + ",allow_other,default_permissions",
            )
            _send_descriptor(self._socket, fd)
        finally:
            os.close(fd)
            self._socket.close()
        self._target = target

    def wait_until_ready(self, target: str = "") -> None:
        """Wait until the server answers.

        Args:
            target: the way to what is mounted, if not that of `attach`.

        Raises:
            UnsupportedError: with the server's own words, if it cannot serve.
        """
        self.reap()
        try:
            os.stat(target or self._target)
        except OSError as error:
            text = os.pread(self._messages, _MESSAGE_LIMIT, 0).decode("utf-8", "replace")
            last = text.strip().rpartition("\n")[2] or os.strerror(error.errno or 0)
            raise UnsupportedError(f"{self.program} cannot serve {self.image}: {last}") from error
        finally:
            os.close(self._messages)


def _ignore_signals() -> None:
    """Leave signals to the container: Slurm sends a step's to every process that belongs to it.

    The server ends with the container's mounts. libfuse leaves signals alone that are ignored.
    """
    import _signal  # type: ignore[import-not-found]  # `signal` itself imports enum

    for number in (
        _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2,
        _signal.SIGALRM, _signal.SIGTERM, _signal.SIGXCPU, _signal.SIGIO, _signal.SIGTSTP,
        _signal.SIGURG, _signal.SIGWINCH, _signal.SIGVTALRM, _signal.SIGPROF,
    ):  # fmt: skip
        _signal.signal(number, _signal.SIG_IGN)


def _close_quietly(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass  # the descriptor of the listing itself


def _send_descriptor(channel: object, fd: int) -> None:
    import _socket

    assert isinstance(channel, _socket.socket)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd.to_bytes(4, "little"))
    channel.sendmsg([b"f"], [rights])


def _receive_descriptor(channel: object) -> int:
    """Return the descriptor that arrives; ends this process if the other side went away."""
    import _socket

    assert isinstance(channel, _socket.socket)
    _, rights, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4))
    if not rights:
        os._exit(0)
    return int.from_bytes(rights[0][2][:4], "little")
