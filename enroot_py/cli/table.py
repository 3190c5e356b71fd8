"""Every command of `enroot`, as plain data: spellings, operands, one line of help, what runs it.

The parser, the click application, the completions and the man pages are made from these rows, and
from nothing else. This module is on the start path: it holds no code and imports nothing but
records. Longer texts are in `texts/descriptions.py`.

Source: enroot 4.1.2 enroot.in, enroot::usage() and the functions after it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple


class Option(NamedTuple):
    """One option of a command.

    Attributes:
        key: its name in the parsed arguments.
        names: its spellings; short ones first.
        help: one line, without a full stop.
        value: what its value is called; "" for a switch, which takes none.
        repeat: may be given several times, each adding a value.
        kind: what a completion may offer for the value: "file", "folder", "container", "command",
            "arch" or "".
    """

    key: str
    names: tuple[str, ...]
    help: str
    value: str = ""
    repeat: bool = False
    kind: str = ""


class Command(NamedTuple):
    """One command.

    Attributes:
        name: one word, or two for a command of a group: "cache list".
        operands: what follows the options, as usage lines show it.
        summary: one line, without a full stop.
        options: its options, without --help, which every command has.
        least: how many operands it needs.
        most: how many it takes; -1 for any number.
        handler: "module:function" of what runs it.
        direct: run without loading click; so is every command that programs call in a loop.
        kinds: what completions offer for each operand, like Option.kind; the last one repeats.
    """

    name: str
    operands: str
    summary: str
    options: tuple[Option, ...]
    least: int
    most: int
    handler: str
    direct: bool = False
    kinds: tuple[str, ...] = ()


_LAUNCH = "enroot_py.cli.launch:"
_STORE = "enroot_py.cli.store:"
_REPORTS = "enroot_py.cli.reports:"
_GPU = "enroot_py.cli.gpu:"

_ARCH = Option(
    "arch", ("-a", "--arch"), "Architecture of the image (default: the host's)", "ARCH", kind="arch"
)
_FORCE_ROOTFS = Option("force", ("-f", "--force"), "Replace a root filesystem of that name")
_FORCE_FILE = Option("force", ("-f", "--force"), "Replace a file of that name")
_JSON = Option("json", ("--json",), "Print JSON, for programs")
_ENV = Option(
    "env",
    ("-e", "--env"),
    "Set a variable in the container; without VAL, to its value here",
    "KEY[=VAL]",
    repeat=True,
)
_GPUS = Option(
    "gpus", ("--gpus",), "GPUs to put in: all, none, a number, or indexes and UUIDs", "GPUS"
)
_DEVICE = Option(
    "device", ("--device",), "CDI device to put in: VENDOR/CLASS=NAME", "DEVICE", repeat=True
)
_PRESERVE_FDS = Option(
    "preserve_fds", ("--preserve-fds",), "Pass on the N descriptors from 3 upwards", "N"
)

_START_OPTIONS = (
    Option("conf", ("-c", "--conf"), "Run this configuration script first", "CONFIG", kind="file"),
    _ENV,
    Option("rc", ("--rc",), "Use SCRIPT in place of the image's /etc/rc", "SCRIPT", kind="file"),
    Option("root", ("-r", "--root"), "Be root inside, without any right outside"),
    Option("rw", ("-w", "--rw"), "Make the root filesystem writable"),
    Option(
        "mount",
        ("-m", "--mount"),
        "Mount something of the host inside: SRC[:DST[:OPTIONS]] or an fstab line with colons",
        "FSTAB",
        repeat=True,
        kind="file",
    ),
    Option("pid", ("--pid",), "Use a process namespace of its own"),
    Option("net", ("--net",), "Use a network namespace of its own, with loopback alone"),
    Option("ipc", ("--ipc",), "Use an IPC namespace of its own, and a small /dev"),
    Option("uts", ("--uts",), "Use a host name of its own"),
    _GPUS,
    _DEVICE,
    _PRESERVE_FDS,
    Option("dry_run", ("--dry-run",), "Print what would be done, and do nothing"),
)

COMMANDS = (
    Command(
        "batch",
        "CONFIG [COMMAND] [ARG...]",
        "Start the container that a configuration script names",
        (),
        1, -1, _LAUNCH + "batch", True, ("file", "command", "file"),
    ),
    Command(
        "bundle",
        "IMAGE",
        "Make a program out of an image, which starts it on another machine",
        (
            Option("all", ("-a", "--all"), "Put the user's own configuration in as well"),
            Option("checksum", ("-c", "--checksum"), "Let the program check itself when it starts"),
            Option("desc", ("-d", "--desc"), "Say what the program is", "TEXT"),
            Option(
                "output", ("-o", "--output"), "The file to write (default: IMAGE.run)", "BUNDLE",
                kind="file",
            ),
            Option(
                "target", ("-t", "--target"),
                "Folder that the program's --keep unpacks to (default: ./BUNDLE)", "DIR",
                kind="folder",
            ),
            _FORCE_FILE,
        ),
        1, 1, _STORE + "bundle", kinds=("image",),
    ),
    Command(
        "create",
        "IMAGE",
        "Make a container root filesystem out of an image",
        (
            Option("name", ("-n", "--name"), "Name of the container (default: IMAGE's)", "NAME"),
            _FORCE_ROOTFS,
        ),
        1, 1, _STORE + "create", kinds=("image",),
    ),
    Command(
        "digest",
        "URI",
        "Print the digest of an image in a registry",
        (_ARCH,),
        1, 1, _STORE + "digest",
    ),
    Command(
        "exec",
        "PID|NAME COMMAND [ARG...]",
        "Run a command in a container that is running",
        (_ENV, _PRESERVE_FDS),
        2, -1, _LAUNCH + "execute", True, ("container", "command", "file"),
    ),
    Command(
        "export",
        "NAME",
        "Make an image out of a container root filesystem",
        (
            Option(
                "output", ("-o", "--output"), "The file to write (default: NAME.sqsh)", "FILE",
                kind="file",
            ),
            _FORCE_FILE,
        ),
        1, 1, _STORE + "export", kinds=("container",),
    ),
    Command(
        "import",
        "URI",
        "Fetch an image and write it to a file",
        (
            _ARCH,
            Option(
                "output", ("-o", "--output"), "The file to write (default: URI's name .sqsh)",
                "FILE", kind="file",
            ),
            _FORCE_FILE,
        ),
        1, 1, _STORE + "import_image",
    ),
    Command(
        "list",
        "",
        "List the container root filesystems",
        (
            Option("fancy", ("-f", "--fancy"), "Show the processes that run in them, as a table"),
            _JSON,
        ),
        0, -1, _REPORTS + "list_containers", True,
    ),
    Command(
        "load",
        "URI",
        "Fetch an image and make a container root filesystem out of it",
        (
            _ARCH,
            Option("name", ("-n", "--name"), "Name of the container (default: URI's)", "NAME"),
            _FORCE_ROOTFS,
        ),
        1, 1, _STORE + "load",
    ),
    Command(
        "remove",
        "NAME...",
        "Delete container root filesystems",
        (Option("force", ("-f", "--force"), "Do not ask first"),),
        1, -1, _STORE + "remove", True, ("container",),
    ),
    Command(
        "start",
        "NAME|IMAGE [COMMAND] [ARG...]",
        "Start a container, and a command in it",
        _START_OPTIONS,
        1, -1, _LAUNCH + "start", True, ("container|image", "command", "file"),
    ),
    Command(
        "info",
        "[NAME|IMAGE]",
        "Show the configuration in force, or what an image or container is made of",
        (_JSON,),
        0, 1, _REPORTS + "info", kinds=("container|image",),
    ),
    Command(
        "doctor",
        "[REGISTRY...]",
        "Check this machine, and say how to mend what is wrong",
        (_JSON, Option("offline", ("--offline",), "Ask no registry")),
        0, -1, _REPORTS + "doctor",
    ),
    Command(
        "cache list",
        "",
        "List what the cache holds, the least recently used first",
        (_JSON,),
        0, 0, _STORE + "cache_list",
    ),
    Command(
        "cache prune",
        "",
        "Delete what nothing uses from the cache",
        (Option("nvidia", ("--nvidia",), "And all that NVIDIA's Enroot keeps there"),),
        0, 0, _STORE + "cache_prune",
    ),
    Command(
        "cache limit",
        "[SIZE]",
        "Shrink the cache to SIZE, least recently used first",
        (),
        0, 1, _STORE + "cache_limit",
    ),
    Command(
        "gpu list",
        "",
        "List the accelerators and fabric devices of this machine",
        (_JSON,),
        0, 0, _GPU + "gpu_list",
    ),
    Command(
        "gpu plan",
        "[NAME|PATH]",
        "Show what of the GPUs and their driver a container would get, and why",
        (_JSON, _GPUS, _DEVICE, _ENV),
        0, 1, _GPU + "gpu_plan", kinds=("container",),
    ),
    Command(
        "cdi generate",
        "",
        "Print a CDI specification of this machine's GPUs, for other container programs",
        (
            _JSON,
            Option(
                "capabilities", ("--capabilities",),
                "Driver capabilities to put in (default: all)", "LIST",
            ),
            Option(
                "hook", ("--hook",),
                "Path of nvidia-cdi-hook, or none (default: the one installed)", "PATH",
                kind="file",
            ),
        ),
        0, 0, _GPU + "cdi_generate",
    ),
    Command(
        "completion",
        "SHELL",
        "Print the completion script for bash, zsh or fish",
        (),
        1, 1, _REPORTS + "completion", True, ("shell",),
    ),
    Command(
        "man",
        "[COMMAND]",
        "Print the manual page of a command, or write all of them",
        (
            Option(
                "output", ("-o", "--output"), "Write every page to this folder", "DIR",
                kind="folder",
            ),
        ),
        0, 2, _REPORTS + "man", True, ("name",),
    ),
    Command(
        "help",
        "[COMMAND]",
        "Show the commands, or the options of one",
        (),
        0, -1, _REPORTS + "help_command", kinds=("name",),
    ),
    Command(
        "version",
        "",
        "Print the version of Enroot that this one equals",
        (),
        0, -1, _REPORTS + "version", True,
    ),
)  # fmt: skip

GROUPS = {
    "cache": "Show and trim the cache",
    "gpu": "Look at GPUs and fabrics",
    "cdi": "Describe this machine to other container programs",
}
"""First words that need a second one, and what their commands have in common."""

BY_NAME = {command.name: command for command in COMMANDS}
