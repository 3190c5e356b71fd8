"""Command lines that are wrong in themselves, or ask for help: every command, every spelling."""

from __future__ import annotations

from tests.parity.step import Scenario, Step, step

COMMANDS = (
    "batch", "bundle", "create", "digest", "exec", "export", "import", "list", "load", "remove",
    "start", "info",
)  # fmt: skip

_VALUED = {
    "bundle": ("-o", "--output", "-t", "--target", "-d", "--desc"),
    "create": ("-n", "--name"),
    "digest": ("-a", "--arch"),
    "exec": ("-e", "--env"),
    "export": ("-o", "--output"),
    "import": ("-a", "--arch", "-o", "--output"),
    "load": ("-a", "--arch", "-n", "--name"),
    "start": ("-c", "--conf", "-e", "--env", "--rc", "-m", "--mount"),
}

_TOO_MANY = ("bundle", "create", "digest", "export", "import", "load")


def _of_command(command: str) -> list[Step]:
    steps = [
        step(f"{command} -h", command, "-h"),
        step(f"{command} --help", command, "--help"),
        step(f"{command} --nosuch", command, "--nosuch"),
        step(f"{command} -Z", command, "-Z", "x", "y"),
    ]
    if command not in ("list", "info"):
        steps.append(step(f"{command} of nothing", command))
        steps.append(step(f"{command} -- of nothing", command, "--"))
    if command in _TOO_MANY:
        steps.append(step(f"{command} of two", command, "one", "two"))
    for option in _VALUED.get(command, ()):
        steps.append(step(f"{command} {option} without value", command, option))
        steps.append(step(f"{command} {option} of nothing", command, option, "", "x", "y"))
        if option.startswith("--"):
            steps.append(step(f"{command} {option}= of nothing", command, f"{option}=", "x", "y"))
    return steps


USAGE = Scenario(
    "usage",
    (
        step("no command"),
        step("help", "help"),
        step("-h", "-h"),
        step("--help", "--help"),
        step("--version", "--version"),
        step("unknown command", "frobnicate"),
        step("empty command", ""),
        step("help of a command", "help", "start"),
        step("version", "version"),
        step("version with a word", "version", "x"),
        step("info", "info", look="variables"),
        step("info with settings", "info", look="variables", environ={
            "ENROOT_DATA_PATH": "${ROOT}/data", "ENROOT_LOGIN_SHELL": "no",
            "ENROOT_REMAP_ROOT": "yes", "ENROOT_ROOTFS_WRITABLE": "N",
            "ENROOT_TRANSFER_RETRIES": "3", "ENROOT_MINE": "x", "ENROOT_MOUNT_HOME": "false",
        }),
        step("info with a word", "info", "nosuch"),
        step("list with a word", "list", "nosuch"),
        step("combined short options", "create", "-fn", "x", "nosuch.sqsh"),
        step("short option with a value attached", "create", "-nx", "nosuch.sqsh"),
        step("option after the operand", "create", "nosuch.sqsh", "-f"),
        step("switch with a value", "list", "--fancy=yes"),
        step("abbreviated option", "list", "--fan"),
        *(one for command in COMMANDS for one in _of_command(command)),
    ),
)  # fmt: skip
