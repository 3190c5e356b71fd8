"""The batch script: its variables, its files, its process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyxis_py.kubernetes.launcher.job.job_file import Job
from pyxis_py.kubernetes.launcher.job.limits import own_limits
from pyxis_py.kubernetes.launcher.job.output_names import Place, expand_name
from pyxis_py.kubernetes.launcher.node.log import log
from pyxis_py.kubernetes.launcher.node.processes import Processes, Program, signal_group
from pyxis_py.kubernetes.launcher.wire.channel import HIGH_WATER
from pyxis_py.kubernetes.launcher.wire.loop import Loop
from pyxis_py.kubernetes.launcher.wire.streams import LineSource, Sink

BASH_FLAGS = ("-l", "--login")
"""By which bash reads /etc/profile, which sets PATH anew in many images."""


class Files(NamedTuple):
    """Where the body's streams go: absolute names, "" for /dev/null or the pod's log alone."""

    stdin: str
    stdout: str
    stderr: str
    append: bool


def name_files(job: Job, environ: Mapping[str, str]) -> Files:
    """Return the files of --input, --output and --error; no `stderr` means with `stdout`."""
    place = Place(
        job.job_id, job.name, environ.get("USER", ""), job.host,
        int(environ.get("SLURM_ARRAY_JOB_ID") or job.job_id), job.element,
    )  # fmt: skip
    base = environ.get("SLURM_SUBMIT_DIR", "/")

    def path(pattern: str) -> str:
        return os.path.join(base, expand_name(pattern, place)) if pattern else ""

    return Files(
        path(job.options.get("input", "")),
        path(job.output),
        path(job.options.get("error", "")),
        job.options.get("open-mode", "t").startswith("a"),
    )


class Body:
    """The running batch script.

    Attributes:
        on_exit: called with the status as of wait(2); output may still come, until `finish`.
    """

    def __init__(self, loop: Loop, processes: Processes, job: Job) -> None:
        self.pid = 0
        self.running = False
        self.on_exit: Callable[[int], None] = lambda status: None
        self._loop = loop
        self._processes = processes
        self._job = job
        self._sources: list[LineSource] = []
        self._sinks: list[Sink] = []

    def start(self, script: str, environ: dict[str, str]) -> None:
        """Start the script.

        Raises:
            OSError: if there can be no process, or --input names no file.
        """
        files = name_files(self._job, environ)
        separate = bool(files.stderr) and files.stderr != files.stdout
        stdin = os.open(files.stdin or os.devnull, os.O_RDONLY)
        stdout = self._pipe(1, files.stdout, append=files.append)
        stderr = self._pipe(2, files.stderr, append=files.append) if separate else stdout
        argv = [script, *self._job.arguments]
        directory = self._job.directory
        if not os.path.isdir(directory):
            directory = os.getcwd()
        streams = stdin, stdout, stderr
        program = Program(argv, environ, directory, self._job.umask, streams, own_limits())
        try:
            self.pid = self._processes.start(program, self._exited)
        finally:
            for fd in {stdin, stdout, stderr}:
                os.close(fd)
        self.running = True

    def _pipe(self, stream: int, path: str, *, append: bool) -> int:
        """Return the script's end of a pipe to the pod's log, and to a file where that can be."""
        ours, theirs = os.pipe()
        sinks = [Sink(self._loop, stream)]
        file = _create(path, self._job.umask, append=append)
        if file is not None:
            sinks.insert(0, Sink(self._loop, file, owned=True))
            sinks[0].on_broken = lambda reason: log(f"cannot go on writing {path}: {reason}")

        def copy(data: bytes) -> None:
            for sink in sinks:
                sink.write(data)
            if any(sink.backlog > HIGH_WATER for sink in sinks):
                source.pause()

        source = LineSource(self._loop, ours, copy, unbuffered=True)
        for sink in sinks:
            sink.on_drained = source.resume
        self._sources.append(source)
        self._sinks += sinks
        return theirs

    def signal(self, number: int, *, alone: bool = False) -> None:
        """Signal the script and what it runs, or the shell alone."""
        if not self.running:
            return
        if alone:
            os.kill(self.pid, number)
        else:
            signal_group(self.pid, number)

    def _exited(self, status: int) -> None:
        self.running = False
        self.on_exit(status)

    @property
    def silent(self) -> bool:
        """Whether nothing can write to the script's output any more."""
        return all(source.closed for source in self._sources)

    def finish(self) -> None:
        """Take the output that is there, and close it: steps are over by now."""
        for source in self._sources:
            source.drain()
        for sink in self._sinks:
            sink.close()


def _create(path: str, umask: int, *, append: bool) -> int | None:
    """Open an output file; None where there is none to be had, which the log says."""
    if not path:
        return None
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
    try:
        return os.open(path, flags, 0o666 & ~umask)
    except OSError as error:
        log(f"{path}: {error.strerror}: the output is in this log alone")
        return None


def is_login_script(script: str) -> bool:
    """Whether the script's first line starts bash as a login shell."""
    try:
        with open(script, "rb") as file:
            words = file.readline(4096).decode("utf-8", "replace").rstrip("\n").split()
    except OSError:
        return False
    if not words or not words[0].startswith("#!"):
        return False
    shell = words[0][2:] or (words[1] if len(words) > 1 else "")
    return shell.endswith(("bash", "env")) and any(
        word in BASH_FLAGS or (word[0] == "-" and word[1:2] != "-" and "l" in word)
        for word in words[1:]
    )
