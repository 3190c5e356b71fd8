"""Run the table of command lines through one `enroot` and print the facts as JSON.

    python -m tests.parity.record /path/to/enroot > tests/parity/facts.json

As an ordinary user; `--environ ENROOT_SYSCONF_PATH=/no/such/folder` leaves the machine's own
configuration out where that enroot heeds it. facts.json holds the facts of NVIDIA's enroot 4.1.2.
They name no place, time or port of the machine and hold no message: exit status, kind of message,
the data on stdout, and trees.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hooks.contexts import wait_until_asleep
from tests.parity import observe
from tests.parity.command_lines import SCENARIOS
from tests.parity.step import Scenario, Step
from tests.parity.world import IMAGES, World, clear, make_images
from tests.registry.fake_registry import FakeRegistry

Facts = dict[str, Any]
_TAGS = {"entry": "v1.0-rc_2"}


class Recorder:
    """Runs scenarios. A context manager: the registry serves while it is entered.

    Args:
        enroot: what is run.
        root: an empty folder that the ordinary user may write to.
        environ: further variables for every command.
    """

    def __init__(self, enroot: Path, root: Path, environ: Mapping[str, str]) -> None:
        self.enroot, self.root, self.environ = enroot, root, dict(environ)
        store, self._digests = make_images()
        self._registry = FakeRegistry(store)
        self._images = root / "images"
        self.messages = False

    def __enter__(self) -> Recorder:
        self._registry.__enter__()
        try:
            self._prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _prepare(self) -> None:
        world = World(self.root / "prepare", self.enroot, self.environ)
        self._images.mkdir()
        for name in IMAGES:
            uri = f"docker://{self._registry.host}#t/{name}:{_TAGS.get(name, '1')}"
            world.prepare("import", "-o", f"{self._images}/{name}.sqsh", uri)

    def __exit__(self, *_: Any) -> None:
        self._registry.__exit__(None, None, None)

    def scenario(self, scenario: Scenario) -> dict[str, Facts]:
        """Run one scenario and return its steps' facts by name."""
        world = World(self.root / scenario.name.replace(" ", "-"), self.enroot, self.environ)
        for path, content in scenario.files.items():
            world.write(path, content.replace("%s", str(world.root)))
        for name, image in scenario.containers.items():
            world.prepare("create", "-n", name, f"{self._images}/{image}.sqsh")
        if "image.img" in " ".join(word for step in scenario.steps for word in step.words):
            os.link(self._images / "bare.sqsh", world.work / "image.img")
        return _Run(self, world).steps(scenario.steps)

    def places(self, world: World) -> dict[str, str]:
        """What the words' `${…}` stand for."""
        digests = {
            f"DIGEST_{n.split(':')[1]}": d for d, n in self._digests.items() if n.count(":") == 1
        }
        return {
            "REG": self._registry.host, "IMAGES": str(self._images), "ROOT": str(world.root),
            "UID": str(os.getuid()), "GID": str(os.getgid()), **digests,
        }  # fmt: skip

    def normal(self, text: str, world: World) -> str:
        """Replace what is of this machine and this run by names."""
        account = pwd.getpwuid(os.getuid())
        for found, name in (
            (str(world.root), "ROOT"), (str(self._images), "IMAGES"),
            (self._registry.host, "REG"), (os.environ["PATH"], "PATH"),
            (str(self.enroot.parent), "BIN"), (account.pw_dir, "PWHOME"), *self._digests.items(),
        ):  # fmt: skip
            text = text.replace(found, name)
        return re.sub(rf"\b{re.escape(account.pw_name)}\b", "USER", text)


class _Run:
    """One scenario under way."""

    def __init__(self, recorder: Recorder, world: World) -> None:
        self.recorder, self.world = recorder, world
        self.places = recorder.places(world)

    def steps(self, steps: tuple[Step, ...]) -> dict[str, Facts]:
        facts: dict[str, Facts] = {}
        running: list[subprocess.Popen[str]] = []
        try:
            for step in steps:
                if step.background:
                    running.append(self._begin(step))
                    facts[step.name] = {"running": running[-1].poll() is None}
                else:
                    facts[step.name] = self._observe(step)
        finally:
            for process in running:
                process.kill()
                process.communicate()
        assert len(facts) == len(steps), "two steps of one name"
        return facts

    def _fill(self, text: str) -> str:
        for name, value in self.places.items():
            text = text.replace(f"${{{name}}}", value)
        return text

    def _command(self, step: Step) -> tuple[list[str], dict[str, str]]:
        environ = {key: self._fill(value) for key, value in step.environ.items()}
        words = [self._fill(word) for word in step.words]
        program = self.world.root / step.program if step.program else self.recorder.enroot
        return [str(program), *words], {**self.world.environ, **environ}

    def _begin(self, step: Step) -> subprocess.Popen[str]:
        command, environ = self._command(step)
        process = subprocess.Popen(
            command, env=environ, cwd=self.world.work, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            umask=0o022,
        )  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        wait_until_asleep(process.pid, "sleep")
        self.places["PID"] = str(process.pid)
        return process

    def _observe(self, step: Step) -> Facts:
        command, environ = self._command(step)
        done = subprocess.run(
            command, env=environ, cwd=self.world.work, input=step.answer.encode(),
            capture_output=True, timeout=120, check=False, umask=0o022,
        )  # fmt: skip
        stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if self.recorder.messages:
            print(f"{step.name}: {stderr}", file=sys.stderr)
        kind = observe.message_kind(done.returncode, stdout, stderr)
        facts: Facts = {"status": done.returncode, "message": kind}
        if kind == "usage":
            facts["usage"] = observe.usage_stream(stdout, stderr)
        elif lines := self._stdout(step.look, stdout):
            facts["stdout"] = lines
        if step.tree:
            facts["tree"] = self._tree(*step.tree.split(" ", 1))
        return facts

    def _stdout(self, look: str, text: str) -> list[str]:
        text = self.recorder.normal(text, self.world)
        if look == "nothing":
            return []
        if look == "table":
            return observe.table_facts(text)
        if look == "variables":
            return observe.variable_facts(text)
        return sorted(text.splitlines()) if look == "sorted" else text.splitlines()

    def _tree(self, kind: str, path: str) -> list[str]:
        if kind == "names":
            below = self.world.data if path.startswith("data/") else self.world.root
            return sorted(os.listdir(below / path.removeprefix("data/")))
        if kind == "image":
            image = self.world.root / path
            lines = observe.image_tree(image) if image.exists() else ["missing"]
        else:
            folder = self.world.data / path
            lines = observe.folder_tree(folder) if folder.exists() else ["missing"]
        return [self.recorder.normal(line, self.world) for line in lines]


def record(enroot: Path, root: Path, environ: Mapping[str, str]) -> dict[str, dict[str, Facts]]:
    """Return every scenario's facts."""
    with Recorder(enroot, root, environ) as recorder:
        return {scenario.name: recorder.scenario(scenario) for scenario in SCENARIOS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("enroot", type=Path)
    parser.add_argument("--root", type=Path, help="folder to work in, made anew and kept")
    parser.add_argument("--environ", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--messages", action="store_true", help="show messages on stderr")
    parser.add_argument("--only", help="one scenario")
    words = parser.parse_args()
    environ = dict(word.split("=", 1) for word in words.environ)
    root = words.root or Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        with Recorder(words.enroot.absolute(), root, environ) as recorder:
            recorder.messages = words.messages
            facts = {
                scenario.name: recorder.scenario(scenario)
                for scenario in SCENARIOS
                if words.only in (None, scenario.name)
            }
    finally:
        if not words.root:
            clear(root)
    json.dump(facts, sys.stdout, indent=1, ensure_ascii=False, sort_keys=False)
    print()


if __name__ == "__main__":
    main()
