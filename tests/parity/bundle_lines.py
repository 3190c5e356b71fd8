"""Command lines that make programs out of images, and those programs' own."""

from __future__ import annotations

from tests.parity.step import Scenario, Step, step


def run(name: str, *words: str, **more: object) -> Step:
    """The bundle with options and a command."""
    return step(name, *words, program="work/app.run", **more)


_TOUCH = "touch /new 2>/dev/null && echo written || echo refused"

BUNDLES = Scenario(
    "bundles",
    (
        step("default name", "bundle", "${IMAGES}/app.sqsh", tree="names work"),
        step("again", "bundle", "${IMAGES}/app.sqsh"),
        step("all options", "bundle", "-a", "-c", "-d", "some text", "-t", "there", "-o", "all.run",
             "${IMAGES}/app.sqsh"),
        step("long options", "bundle", "--all", "--checksum", "--desc=some text",
             "--target=there", "--output=long.run", "${IMAGES}/app.sqsh"),
        run("image's command"),
        run("command", "echo", "a b", "*"),
        run("status", "sh", "-c", "exit 7"),
        run("not found", "nosuch"),
        run("stdin", "cat", answer="text\n"),
        run("-e", "-e", "K=V", "sh", "-c", 'echo "$K"'),
        run("--env=", "--env", "HOST_VALUE", "sh", "-c", 'echo "$HOST_VALUE"'),
        run("-m", "-m", "${ROOT}/shared:/mnt", "cat", "/mnt/f"),
        run("-r", "-r", "id", "-u"),
        run("-w", "-w", "sh", "-c", _TOUCH),
        run("read-only", "sh", "-c", _TOUCH),
        run("--rc", "--rc", "${ROOT}/rc.sh", "a", "b c"),
        run("-c", "-c", "${ROOT}/own.conf", "sh", "-c", 'echo "$FROM_CONF"'),
        run("-i", "-i", look="nothing"),
        run("-q", "-q", "echo", "quiet"),
        run("unknown option", "--nosuch"),
        run("what is left", "true", tree="names work"),
        run("-x", "-x", tree="names work"),
        run("-k over a folder", "-k", "true"),
        step("checksum", "echo", "checked", program="work/all.run"),
        step("-k", "-k", "echo", "kept", program="work/all.run", tree="names work"),
        step("-k in the other", "-x", program="work/long.run"),
    ),
    files={
        "shared/f": "shared file\n",
        "rc.sh": 'echo "own rc: $#: $*"\nexit 4\n',
        "own.conf": 'environ() {\n    echo "FROM_CONF=1"\n}\n',
    },
)  # fmt: skip
