"""The options of srun and sbatch, and how their command lines are cut into options and words.

The built-in table covers Slurm 21.08 to 25.05; `options_from_help` reads the table of the Slurm at
hand out of `srun --help`, so that an option newer than this module is cut rightly too. Parsing is
getopt_long's: clusters of short options, unique abbreviations, `--name=value` and `--name value`,
optional values only behind `=` (or glued to a short option), and everything from the first word
that is no option belongs to the command.

Pure. Source: srun(1), sbatch(1), getopt(3).
"""

from __future__ import annotations

from enroot_py import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal, NamedTuple

    Argument = Literal["none", "required", "optional"]
else:
    from enroot_py import NamedTuple


class OptionError(UsageError):
    """Options that srun and sbatch refuse; they then end with this status too."""

    exit_code = 255


class SlurmOption(NamedTuple):
    """One option of srun or sbatch.

    Attributes:
        name: long name without dashes.
        argument: whether it takes a value.
        short: its one-letter form, or "".
        commands: which of "srun" and "sbatch" have it.
    """

    name: str
    argument: Argument
    short: str = ""
    commands: tuple[str, ...] = ("srun", "sbatch")


class GivenOption(NamedTuple):
    """One option as given: its long name, its value ("" for none), and the words it came from.

    An option of another name (`OTHER_NAMES`) has the usual one here, and its own in the words.
    `line` is the script's line for `#SBATCH` options, 0 on a command line.
    """

    name: str
    value: str
    words: tuple[str, ...]
    line: int = 0


_REQUIRED = """
    A:account accel-bind:srun acctg-freq batch:sbatch bb bbf bcast-exclude:srun b:begin
    C:constraint c:cpus-per-task cluster cluster-constraint clusters:M comment context
    container container-id container-image container-mounts cpu_bind:srun
    container-workdir container-name container-save container-env container-unshare
    container-import-timeout container-digest container-gpus container-device environment
    core-spec:S cores-per-socket cpu-bind:srun cpu-freq cpus-per-gpu
    deadline delay-boot d:dependency D:chdir e:error epilog:srun exclude:x export
    export-file:sbatch extra extra-node-info:B F:nodefile gid G:gpus gpu-bind gpu-freq
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group:srun hint i:input
    J:job-name jobid:srun L:licenses m:distribution mail-type mail-user mcs-label mem mem-bind
    mem-per-cpu mem-per-gpu mincpus mpi:srun msg-timeout:srun network nodelist:w N:nodes n:ntasks
    ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres o:output
    open-mode pack-group:srun p:partition power prefer
    priority profile prolog:srun q:qos r:relative:srun reservation resources-per-task segment signal
    slurmd-debug:srun sockets-per-node switches task-epilog:srun task-prolog:srun tasks-per-node
    thread-spec threads:T:srun threads-per-core t:time time-min tmp tres-bind tres-per-job:sbatch
    tres-per-node tres-per-socket tres-per-task tree-width:srun uid wait:W:srun wckey
    wrap:sbatch a:array:sbatch kill-on-invalid-dep:sbatch wait-all-nodes:sbatch
"""
_OPTIONAL = """
    bcast:srun compress:srun exclusive get-user-env:sbatch I:immediate:srun
    K:kill-on-bad-exit:srun k:no-kill nice overlap:srun propagate resv-ports:srun send-libs:srun
    x11:srun async:srun
"""
_NONE = """
    contiguous debugger-test:srun X:disable-status:srun E:preserve-env:srun exact:srun h:help
    H:hold ignore-pbs:sbatch
    interactive:srun l:label:srun multi-prog:srun no-allocate:Z:srun
    no-requeue:sbatch O:overcommit s:oversubscribe parsable:sbatch pty:srun Q:quiet
    quit-on-interrupt:srun reboot requeue:sbatch spread-job test-only
    u:unbuffered:srun usage use-min-nodes v:verbose V:version W:wait:sbatch whole:srun
    no-container-mount-home container-mount-home no-container-remap-root container-remap-root
    no-container-entrypoint container-entrypoint container-entrypoint-log container-writable
    container-readonly consolidate-segments stepmgr:sbatch
"""

OTHER_NAMES = {
    "cluster": "clusters",
    "cpu_bind": "cpu-bind",
    "ntasks-per-tres": "ntasks-per-gpu",
    "pack-group": "het-group",
    "tasks-per-node": "ntasks-per-node",
}
"""Names that Slurm takes without telling (its help has the other one): what they stand for."""


def _read_table(text: str, argument: Argument) -> list[SlurmOption]:
    """Each word is a long name with a one-letter form and a command beside it, in any order."""
    rows = []
    for word in text.split():
        parts = word.split(":")
        commands = tuple(part for part in parts if part in ("srun", "sbatch"))
        letters = [part for part in parts if len(part) == 1]
        names = [part for part in parts if len(part) > 1 and part not in ("srun", "sbatch")]
        rows.append(
            SlurmOption(
                names[0], argument, letters[0] if letters else "", commands or ("srun", "sbatch")
            )
        )
    return rows


BUILT_IN: tuple[SlurmOption, ...] = (
    *_read_table(_REQUIRED, "required"),
    *_read_table(_OPTIONAL, "optional"),
    *_read_table(_NONE, "none"),
)


def built_in_options(command: str) -> tuple[SlurmOption, ...]:
    """The built-in table of "srun" or "sbatch"."""
    return tuple(option for option in BUILT_IN if command in option.commands)


_HELP_LINE = (
    r"^\s{1,8}(?:-(?P<short>[A-Za-z]),?\s+)?--(?P<name>[a-z0-9][a-z0-9-]*)"
    r"(?P<optional>\[=)?(?P<required>[= ](?=[^\s]))?"
)


def options_from_help(text: str, command: str) -> tuple[SlurmOption, ...]:
    """The table of the Slurm at hand, from what `srun --help` prints; what help leaves out (hidden
    or undocumented options) comes from the built-in table."""
    import re  # not for those who read a table that is there already

    found: dict[str, SlurmOption] = {}
    for line in text.splitlines():
        match = re.match(_HELP_LINE, line)
        if match is None:
            continue
        argument: Argument = "none"
        if match["optional"]:
            argument = "optional"
        elif match["required"] == "=":
            argument = "required"
        name = match["name"]
        known = next((row for row in built_in_options(command) if row.name == name), None)
        if known is not None:
            # Help texts abbreviate ("--container  Path to…", "--exclusive[=user]"): ours is right.
            argument = known.argument
        found[name] = SlurmOption(name, argument, match["short"] or "", (command,))
    for option in built_in_options(command):
        found.setdefault(option.name, option._replace(commands=(command,)))
    return tuple(found.values())


def encode_options(options: Iterable[SlurmOption]) -> str:
    """Return a table as text, one option a line."""
    return "".join(f"{row.name} {row.argument} {row.short}\n" for row in options)


def decode_options(text: str, command: str) -> tuple[SlurmOption, ...]:
    """Return the table of a text.

    Raises:
        ValueError: if it is none.
    """
    kinds: dict[str, Argument] = {"none": "none", "required": "required", "optional": "optional"}
    rows = []
    for line in text.splitlines():
        name, argument, short = line.split(" ")
        if argument not in kinds or not name:
            raise ValueError(f"not an option: {line!r}")
        rows.append(SlurmOption(name, kinds[argument], short, (command,)))
    return tuple(rows)


def split_command_line(
    words: Sequence[str], options: Iterable[SlurmOption], *, command: str = "srun"
) -> tuple[list[GivenOption], list[str]]:
    """Cut a command line into its options and the command behind them.

    Raises:
        OptionError: if an option is unknown, ambiguous, or lacks its value.
    """
    by_name = {option.name: option for option in options}
    by_short = {option.short: option for option in by_name.values() if option.short}
    given: list[GivenOption] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return given, list(words[at + 1 :])
        if word.startswith("--"):
            option, used = _long(words, at, by_name, command)
            given.append(option)
            at += used
        elif word.startswith("-") and word != "-":
            cluster, used = _cluster(words, at, by_short, command)
            given += cluster
            at += used
        else:
            break
    return given, list(words[at:])


def _long(
    words: Sequence[str], at: int, by_name: Mapping[str, SlurmOption], command: str
) -> tuple[GivenOption, int]:
    text, equals, value = words[at][2:].partition("=")
    option = _by_prefix(text, by_name, command)
    name = OTHER_NAMES.get(option.name, option.name)
    if option.argument == "none":
        if equals:
            raise OptionError(f"{command}: --{option.name} takes no value: {words[at]!r}")
        return GivenOption(name, "", (words[at],)), 1
    if equals or option.argument == "optional":
        return GivenOption(name, value, (words[at],)), 1
    if at + 1 >= len(words):
        raise OptionError(f"{command}: --{option.name} needs a value")
    return GivenOption(name, words[at + 1], (words[at], words[at + 1])), 2


def _by_prefix(text: str, by_name: Mapping[str, SlurmOption], command: str) -> SlurmOption:
    if text in by_name:
        return by_name[text]
    matches = [name for name in by_name if name.startswith(text)] if text else []
    if len(matches) == 1:
        return by_name[matches[0]]
    if matches:
        raise OptionError(
            f"{command}: option --{text} is ambiguous",
            hint="it may be " + ", ".join(f"--{name}" for name in sorted(matches)),
        )
    raise OptionError(f"{command}: unknown option --{text}")


def _cluster(
    words: Sequence[str], at: int, by_short: Mapping[str, SlurmOption], command: str
) -> tuple[list[GivenOption], int]:
    """One word of short options: `-vN2`, `-N 2`, `-l`."""
    word = words[at]
    given: list[GivenOption] = []
    for index in range(1, len(word)):
        option = by_short.get(word[index])
        if option is None:
            raise OptionError(f"{command}: unknown option -{word[index]} in {word!r}")
        if option.argument == "none":
            given.append(GivenOption(option.name, "", (f"-{word[index]}",)))
            continue
        value, rest = word[index + 1 :], (f"-{word[index:]}",)
        if value or option.argument == "optional":
            given.append(GivenOption(option.name, value, rest))
            return given, 1
        if at + 1 >= len(words):
            raise OptionError(f"{command}: -{option.short} (--{option.name}) needs a value")
        given.append(GivenOption(option.name, words[at + 1], (*rest, words[at + 1])))
        return given, 2
    return given, 1
