"""Where ours differs from the original on purpose: in what, and why.

Each line says what ours does instead; a difference that is not there any more fails the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """What ours does instead in one step.

    Attributes:
        scenario, step: where.
        reason: why.
        scalars: status, message or usage that ours has instead; "" for none.
        less, more: lines of stdout that the original alone has, and ours alone.
        tree_less, tree_more: the same of the tree.
    """

    scenario: str
    step: str
    reason: str
    scalars: Mapping[str, Any]
    less: tuple[str, ...]
    more: tuple[str, ...]
    tree_less: tuple[str, ...]
    tree_more: tuple[str, ...]

    def apply(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return what ours must do where the original does `facts`; lines come sorted."""
        changed = {**facts, **self.scalars}
        for key, less, more in (
            ("stdout", self.less, self.more),
            ("tree", self.tree_less, self.tree_more),
        ):
            if key in facts or more:
                changed[key] = _exchange(facts.get(key, ()), less, more)
        return {key: value for key, value in changed.items() if value not in ("", [])}


def _exchange(lines: Iterable[str], less: Iterable[str], more: Iterable[str]) -> list[str]:
    left = Counter(lines)
    left.subtract(less)
    assert min(left.values(), default=0) >= 0, "the original has no such line"
    return sorted([*left.elements(), *more])


def differ(
    scenario: str,
    step: str,
    reason: str,
    *,
    less: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
    tree_less: tuple[str, ...] = (),
    tree_more: tuple[str, ...] = (),
    **scalars: Any,
) -> Difference:
    """A difference; see there."""
    return Difference(scenario, step, reason, scalars, less, more, tree_less, tree_more)


_HELP = "help that was asked for is no error: status 0"
_WORD = "a word too many is still ignored, but with a warning"
_INFO = "no gzip or zstd program is called, hooks have a time limit, and images are zstd by default"
_NAMES = "a variable whose name no shell can have is left out of the image with a warning"
_MODES = "the image's modes do not depend on the umask of whoever extracts it (docs/adr/0021)"
_BADNAME = "names that option parsers, shells or the original's own `list -f` trip over are refused"
_STATUS = "127 for what is not found and 126 for what cannot be run, as shells have it"
_LEFT = "databases keep their modes, none is made that the image lacks, volumes can be entered"
_EXACT = "the image's variables arrive byte for byte, quotes and dollars included"
_SAID = "why the start failed is said"

DIFFERENCES = (
    differ("usage", "-h", _HELP, status=0),
    differ("usage", "--help", _HELP, status=0),
    differ(
        "usage",
        "--version",
        "an option that the original lacks",
        status=0,
        message="none",
        usage="",
        more=("4.1.2",),
    ),
    differ("usage", "version with a word", _WORD, message="warning"),
    differ(
        "usage",
        "info",
        _INFO,
        less=(
            "ENROOT_GZIP_PROGRAM=pigz",
            "ENROOT_SQUASH_OPTIONS=-comp lzo -noD -exit-on-error",
            "ENROOT_ZSTD_OPTIONS=-1",
        ),
        more=("ENROOT_HOOK_TIMEOUT=60", "ENROOT_SQUASH_OPTIONS=-comp zstd -Xcompression-level 1"),
    ),
    differ(
        "usage",
        "info with settings",
        _INFO,
        less=(
            "ENROOT_GZIP_PROGRAM=pigz",
            "ENROOT_SQUASH_OPTIONS=-comp lzo -noD -exit-on-error",
            "ENROOT_ZSTD_OPTIONS=-1",
        ),
        more=("ENROOT_HOOK_TIMEOUT=60", "ENROOT_SQUASH_OPTIONS=-comp zstd -Xcompression-level 1"),
    ),
    differ(
        "usage",
        "info with a word",
        "`info NAME` tells about a container or image here, and this one does not exist",
        message="error",
        usage="",
    ),
    differ("usage", "list with a word", _WORD, message="warning"),
    differ("import", "default name", _NAMES, message="warning"),
    differ("import", "library", _NAMES, message="warning"),
    differ(
        "platforms",
        "in Go's words",
        "architectures may be given in the registry's spelling, too",
        status=0,
        message="none",
    ),
    differ(
        "trees",
        "modes",
        _MODES,
        tree_less=("group - 0550 cd0aa9856147",),
        tree_more=("group - 0570 cd0aa9856147",),
    ),
    differ(
        "trees",
        "modes again",
        _MODES,
        tree_less=("group - 0550 cd0aa9856147",),
        tree_more=("group - 0570 cd0aa9856147",),
    ),
    differ(
        "trees",
        "load layers",
        "the original's load shows what an opaque directory hides; import and create do not",
        tree_less=("opq/old - 0644 cba06b5736fa",),
    ),
    differ("image trees", "app", _NAMES, message="warning"),
    differ(
        "image trees",
        "modes",
        "images hold the exact modes; they are widened on extraction (docs/adr/0021)",
        tree_less=(
            "group - 0570 cd0aa9856147",
            "none d 0700 -",
            "none/file - 0400 e564b4081d7a",
            "r-x d 0755 -",
            "write-only - 0600 50e721e49c01",
        ),
        tree_more=(
            "group - 0070 cd0aa9856147",
            "none d 0000 -",
            "none/file - 0000 e564b4081d7a",
            "r-x d 0555 -",
            "write-only - 0200 50e721e49c01",
        ),
    ),
    differ("create", "remove, end of input", "why nothing was removed is said", message="error"),
    differ(
        "create",
        "what is left",
        "the containers that do exist are removed before the one that does not is reported",
        less=("image.img",),
    ),
    differ("names", "a dot first", _BADNAME, status=1, message="error"),
    differ("names", "start", _STATUS, status=127),
    differ("names", "a blank", _BADNAME, status=1, message="error"),
    differ("names", "not ASCII", _BADNAME, status=1, message="error"),
    differ("names", "a dash first", _BADNAME, status=1, message="error"),
    differ("load", "no tag", _NAMES, message="warning"),
    differ(
        "settings",
        "no and its kin",
        _INFO,
        less=(
            "ENROOT_GZIP_PROGRAM=pigz",
            "ENROOT_SQUASH_OPTIONS=-comp lzo -noD -exit-on-error",
            "ENROOT_ZSTD_OPTIONS=-1",
        ),
        more=("ENROOT_HOOK_TIMEOUT=60", "ENROOT_SQUASH_OPTIONS=-comp zstd -Xcompression-level 1"),
    ),
    differ(
        "settings",
        "no HTTP",
        "what fails has status 1 here; the original passes curl's on",
        status=1,
    ),
    differ(
        "taken over",
        "list",
        "only folders are containers, so only they are listed",
        less=("a file",),
    ),
    differ("taken over", "start", _STATUS, status=127),
    differ(
        "taken over",
        "list at the end",
        "only folders are containers, so only they are listed",
        less=("a file",),
    ),
    differ("commands", "image without a shell", _STATUS, status=127),
    differ(
        "commands",
        "what starts leave",
        _LEFT,
        tree_less=("etc/group - 0600 made", "etc/gshadow - 0440 made", "vol d 0000 -"),
        tree_more=("etc/group - 0644 made", "vol d 0755 -"),
    ),
    differ(
        "identity",
        "home mounted",
        "the cache is not made in the home folder by a start, which needs none",
        less=(".cache",),
    ),
    differ(
        "environment",
        "all of it",
        _EXACT,
        less=("DOLLAR=$PLAIN and ", "DOUBLE=in quotes", "SINGLE=in quotes"),
        more=("DOLLAR=$PLAIN and ${PLAIN}", 'DOUBLE="in quotes"', "SINGLE='in quotes'"),
    ),
    differ(
        "environment",
        "exactly",
        _EXACT,
        less=("<$PLAIN and >", "<in quotes>", "<in quotes>"),
        more=('<"in quotes">', "<$PLAIN and ${PLAIN}>", "<'in quotes'>"),
    ),
    differ(
        "environment",
        "without a login shell",
        _EXACT,
        less=("DOLLAR=$PLAIN and ", "DOUBLE=in quotes", "SINGLE=in quotes"),
        more=("DOLLAR=$PLAIN and ${PLAIN}", 'DOUBLE="in quotes"', "SINGLE='in quotes'"),
    ),
    differ(
        "environment",
        "-e K, quoted",
        "a value given with -e arrives as it is, quotes included",
        less=("<q>",),
        more=('<"q">',),
    ),
    differ(
        "environment",
        "-e ENROOT",
        "a reserved name is refused instead of being dropped without a word",
        status=1,
        message="error",
        less=("<unset>",),
    ),
    differ(
        "environment",
        "-e HOME",
        "a home folder that is not there is a warning: nothing needs it",
        status=0,
        message="warning",
        more=("</x>",),
    ),
    differ(
        "mounts",
        "unknown option",
        "an option that does nothing is named: it may be a misspelt one",
        message="warning",
    ),
    differ(
        "mounts",
        "volume",
        "a volume's folder is made so that its user can enter and write it",
        more=("ok",),
    ),
    differ(
        "mounts",
        "what starts leave",
        _LEFT,
        tree_less=("etc/group - 0600 made", "etc/gshadow - 0440 made", "vol d 0000 -"),
        tree_more=("etc/group - 0644 made", "vol d 0755 -", "vol/x - 0644 e3b0c44298fc"),
    ),
    differ(
        "namespaces",
        "--ipc",
        "the original's device hook fails where the machine has no /dev/log",
        status=0,
        message="none",
        more=(
            "fd",
            "full",
            "mqueue",
            "null",
            "ptmx",
            "pts",
            "random",
            "shm",
            "stderr",
            "stdin",
            "stdout",
            "tty",
            "urandom",
            "zero",
        ),
    ),
    differ(
        "namespaces",
        "target that leaves",
        "`..` ends at the container's root, as it does for its processes",
        status=0,
        message="none",
        more=("f",),
    ),
    differ("configuration", "script that fails", _SAID, message="error"),
    differ(
        "configuration",
        "hook that fails",
        "a failed hook is an error of ours: status 1, and it is said which",
        status=1,
        message="error",
    ),
    differ(
        "user files",
        "hook's surroundings",
        "hooks get ENROOT_WORKDIR as well",
        less=("pid rootfs environ mounts  none of the host",),
        more=("pid rootfs environ mounts workdir none of the host",),
    ),
    differ("exec", "not found", _STATUS, status=127),
    differ("exec", "not executable", _STATUS, status=126),
    differ("bundles", "unknown option", "a wrong option is an error: status 1", status=1),
)
