"""A request to the keeper, read: what was asked, by which step, under which settings."""

from __future__ import annotations

import os
import sys

from enroot_py import UsageError
from pyxis_py.args import RawValue, ignored_without_container, parse_arguments
from pyxis_py.job import SITE_SETTINGS, JobFacts, enroot_environ
from pyxis_py.options import OPTIONS
from pyxis_py.plugin_config import parse_plugin_config
from pyxis_py.protocol.records import VERSION, Records, decode_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enroot_py import EnrootError, Settings
    from pyxis_py.args import Arguments

_LOG_FD = 2
_LONGEST_LOG = 16 << 10
_REBUILD = "the plugin was built for another version of this package: `pyxis plugin build` it again"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Request:
    """A request, read.

    Attributes:
        records: all of it.
        config: the site's settings.
        job: the step.
        arguments: what was asked, the environment definition file included.
        overrides: variables that the environment definition file sets, as written there.
        own: whoever runs the step is the site, too: there is no Slurm.
        annotations: variables by which hooks see that file's annotations.
        tell: as given.
    """

    def __init__(self, data: bytes, *, tell: Callable[[str], None] = lambda line: None) -> None:
        """Read a request.

        Args:
            data: the request.
            tell: takes a line for whoever waits for the answer.

        Raises:
            EnrootError: for flags, variables, settings or files that are wrong.
        """
        self.tell = tell
        self.records: Records = decode_records(data)
        if self.records.first("version") != VERSION:
            raise UsageError(
                "The plugin and the Python package are not of one version", hint=_REBUILD
            )
        self.own = self.records.first("settings") == "own"
        self.config = parse_plugin_config(self.records.all("word"))
        self.job = _job_facts(self.records)
        given = _given_flags(self.records, self.job)
        self.arguments = parse_arguments(given, self.job.environ)
        self.overrides: tuple[tuple[str, str], ...] = ()
        self.annotations: dict[str, str] = {}
        if self.arguments.environment:
            self._read_environment_file()

    def _read_environment_file(self) -> None:
        if sys.version_info < (3, 11):  # whose library reads no TOML
            from pyxis_py.site_packages import add_libraries

            add_libraries()
        from pyxis_py.environment_file import (
            annotation_variables,
            load_environment,
            merge_environment,
        )

        name, cwd = self.arguments.environment, self.job.cwd or "/"
        environment = load_environment(name, self.job.environ, cwd=cwd)
        self.arguments = merge_environment(self.arguments, environment)
        self.overrides = tuple(environment.env.items())
        self.annotations = annotation_variables(environment)

    def expand_overrides(self, container: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the file's variables; they may refer to those of the container and the job.

        Raises:
            UsageError: for a reference to one that neither has.
        """
        if not self.overrides:
            return ()
        from pyxis_py.environment_file import expand_variables

        known = {**self.job.environ, **container}
        return expand_variables(self.overrides, known, origin=self.arguments.environment)

    def settings(self) -> Settings:
        """Return enroot's settings for the step."""
        from enroot_py import load_settings

        path = os.environ.get("PATH") or _PATH
        environ = enroot_environ(self.arguments, self.config, self.job, path, own=self.own)
        return load_settings({**environ, **self.annotations})


def _job_facts(records: Records) -> JobFacts:
    return JobFacts(
        uid=records.number("uid", os.geteuid()),
        gid=records.number("gid", os.getegid()),
        job=records.number("job"),
        step=records.number("step"),
        tasks=records.number("tasks", 1),
        local_tasks=records.number("local_tasks", 1),
        cwd=records.first("cwd"),
        script=records.first("script"),
        script_target=records.first("script_target"),
        environ=records.mapping("env"),
    )


def _given_flags(records: Records, job: JobFacts) -> list[RawValue]:
    texts = records.all("option")
    if "SLURM_PYXIS_COMPONENT_0" in job.environ and job.job:
        from pyxis_py.protocol.components import component_flags

        own = component_flags(job.environ, job.job)
        if own is not None:
            return [_raw_value(text) for text in own]
    return expand_repeated([_raw_value(text) for text in texts], job.environ)


def _raw_value(text: str) -> RawValue:
    number, _, argument = text.partition("=")
    if not number.isdecimal() or int(number) >= len(OPTIONS):
        raise UsageError(
            f"Unknown flag number {number!r}",
            hint=_REBUILD,
        )
    return RawValue(OPTIONS[int(number)], argument)


def expand_repeated(given: list[RawValue], environ: Mapping[str, str]) -> list[RawValue]:
    """Return flags with the values that Slurm has dropped.

    Slurm hands a node the last value of a flag only; the plugin keeps all values of one that was
    given more than once in SLURM_PYXIS_REPEATED_NUMBER (spank_shim/options.c).
    """
    expanded = []
    for value in given:
        kept = environ.get(f"SLURM_PYXIS_REPEATED_{OPTIONS.index(value.option)}", "").split("\036")
        alone = sum(other.option is value.option for other in given) == 1
        if alone and kept[-1] == value.argument:
            expanded += [RawValue(value.option, text) for text in kept]
        else:
            expanded.append(value)
    return expanded


class Log:
    """Lines of enroot's log: they are shown if something fails.

    Attributes:
        lines: all of them.
        warnings: the texts of warnings.
        listener: is told the texts of all others.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.listener: Callable[[str], None] | None = None

    def __call__(self, level: str, text: str) -> None:
        """Take one message."""
        self.lines.append(f"[{level}] {text}")
        if level == "WARN":
            self.warnings.append(text)
        elif self.listener is not None:
            self.listener(text)


def describe(error: EnrootError, log: Log, request: Request | None) -> tuple[str, ...]:
    """Return an error as lines for the user: what, what to try, and the log behind it.

    Args:
        error, log: what there is to tell.
        request: of which it came; None if it could not be read.
    """
    lines = [str(error), *(line for line in error.hint.split("\n") if line)]
    lines += [
        f"steps of Slurm have {name} from enroot.conf alone, not from the job"
        for name in sorted(SITE_SETTINGS)
        if name in error.hint and request is not None and not request.own
    ]
    behind = [*log.lines, *read_log().splitlines()]
    if behind:
        lines.append("the log of what failed:")
        lines += [f"    {line}" for line in behind[-40:]]
    return tuple(lines)


def read_log() -> str:
    """Return the end of what was printed to descriptor 2, if that is a file."""
    try:
        size = os.lseek(_LOG_FD, 0, os.SEEK_END)
        data = os.pread(_LOG_FD, _LONGEST_LOG, max(0, size - _LONGEST_LOG))
    except OSError:
        return ""
    return data.decode("utf-8", "replace")


def ignored_lines(arguments: Arguments) -> list[str]:
    """Return a line for every flag that needs a container where there is none."""
    return [
        f"--container-{field.replace('_', '-')} is ignored: neither --container-image nor"
        " --container-name is given"
        for field in ignored_without_container(arguments)
    ]
