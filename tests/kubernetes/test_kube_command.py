"""`pyxis kube`: words, streams and exit statuses, in a process of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from enroot_py import UsageError
from pyxis_py.cli.kube_script import cut_words
from pyxis_py.kubernetes.profile.template import TEMPLATE
from tests.kubernetes.samples import SCRIPT, script

PROGRAM = (sys.executable, "-m", "pyxis_py.cli.main")


def run(
    folder: Path, *words: str, given: str | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `pyxis kube` in a folder with the sample script and profile."""
    (folder / "job.sbatch").write_text(SCRIPT, encoding="utf-8")
    (folder / "site.yaml").write_text(TEMPLATE, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SBATCH_")}
    return subprocess.run(
        [*PROGRAM, "kube", *words], cwd=folder, input=given, capture_output=True, text=True,
        env={**kept, **environ}, check=False, timeout=60,
    )  # fmt: skip


def test_manifests_go_to_standard_output_and_notes_to_standard_error(tmp_path: Path) -> None:
    done = run(tmp_path, "render", "job.sbatch", "--profile", "site.yaml", "--job-id=7")
    assert done.returncode == 0, done.stderr
    kinds = [manifest["kind"] for manifest in yaml.safe_load_all(done.stdout)]
    assert kinds == ["ConfigMap", "Secret", "JobSet"]
    assert "[approx-export]" in done.stderr


def test_the_same_command_line_gives_the_same_manifests_but_for_the_token(tmp_path: Path) -> None:
    words = ("render", "--profile=site.yaml", "--job-id=7", "job.sbatch")
    first, second = (list(yaml.safe_load_all(run(tmp_path, *words).stdout)) for _ in range(2))
    assert first[1]["stringData"].pop("token") != second[1]["stringData"].pop("token")
    assert first == second


def test_a_refusal_ends_with_status_2_and_prints_no_manifest(tmp_path: Path) -> None:
    done = run(tmp_path, "render", "job.sbatch", "-L", "m:1", "--profile", "site.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--licenses: no scheduler here counts licences [licenses]" in done.stderr
    assert "way out: leave the licences to a quota" in done.stderr


def test_explanations_are_printed_in_spite_of_refusals(tmp_path: Path) -> None:
    done = run(tmp_path, "render", "--explain", "--bb=x", "job.sbatch", "--profile", "site.yaml")
    assert done.returncode == 2
    assert done.stdout.splitlines()[0].split()[0] == "refused"
    assert "line 14   --segment" in done.stdout


def test_a_refusal_that_is_allowed_is_a_warning(tmp_path: Path) -> None:
    words = ("render", "job.sbatch", "--profile=site.yaml", "-Lm", "--allow=licenses")
    assert run(tmp_path, *words).returncode == 0


def test_an_unknown_code_cannot_be_allowed(tmp_path: Path) -> None:
    done = run(tmp_path, "render", "job.sbatch", "--allow=image-squashfs")
    assert done.returncode == 1 and "cannot go on in spite of 'image-squashfs'" in done.stderr


def test_a_script_from_standard_input(tmp_path: Path) -> None:
    text = script("-p gpu")
    done = run(tmp_path, "render", "--target=volcano", given=text, SBATCH_QOS="fast")
    assert done.returncode == 0, done.stderr
    *_, job = yaml.safe_load_all(done.stdout)
    assert job["apiVersion"] == "batch.volcano.sh/v1alpha1"
    assert job["spec"]["priorityClassName"] == "fast"


@pytest.mark.parametrize(("words", "message"), [
    (("--target=nomad",), "--target: 'nomad' is none of kueue"),
    (("--gpu-api=magic",), "--gpu-api: 'magic' is none of"),
    (("--job-id=0",), "--job-id: not a number"),
    (("--job-id=9999999999",), "--job-id: not a number"),
    (("--namespace=A",), "--namespace: not a namespace"),
    (("--env-secret=HF_TOKEN=hf_abcdefgh",), "--env-secret: not NAME=SECRET/KEY: 'HF_TOKEN'"),
    (("--launcher=none.pyz",), "Cannot read the launcher none.pyz"),
    (("--profile=none.yaml",), "Cannot read the profile none.yaml"),
    (("--epochs", "3"), "unknown option --epochs"),
    (("--epochs", "3"), "arguments of the script go behind --: job.sbatch -- …"),
])  # fmt: skip
def test_wrong_words(tmp_path: Path, words: Sequence[str], message: str) -> None:
    done = run(tmp_path, "render", "job.sbatch", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr and "hf_abcdefgh" not in done.stderr


def test_a_script_that_is_missing_or_not_utf_8(tmp_path: Path) -> None:
    assert "Cannot read the batch script none" in run(tmp_path, "render", "none").stderr
    (tmp_path / "latin").write_bytes(b"#!/bin/sh\n# \xe9\n")
    assert "latin is not UTF-8" in run(tmp_path, "render", "latin").stderr


def test_a_profile_is_written_once_and_checked(tmp_path: Path) -> None:
    assert run(tmp_path, "profile", "init", "new.yaml").returncode == 0
    assert (tmp_path / "new.yaml").read_text(encoding="utf-8") == TEMPLATE
    again = run(tmp_path, "profile", "init", "new.yaml")
    assert again.returncode == 1 and "new.yaml is there already" in again.stderr
    assert run(tmp_path, "profile", "init").stdout == TEMPLATE
    assert run(tmp_path, "profile", "check", "new.yaml").returncode == 0
    (tmp_path / "new.yaml").write_text("version: 3", encoding="utf-8")
    assert "version: not between" in run(tmp_path, "profile", "check", "new.yaml").stderr


@pytest.mark.parametrize("command", ["render", "submit"])
def test_help_is_an_option_of_the_command_and_not_of_the_script(
    tmp_path: Path, command: str
) -> None:
    for words in (["-h"], ["--profile", "x", "--help"], ["job.sbatch", "-h"]):
        done = run(tmp_path, command, *words, given="")
        assert done.stdout.startswith(f"Usage: pyxis kube {command}"), done.stderr
        assert done.returncode == 0
    done = run(tmp_path, command, "job.sbatch", "--profile=none", "--", "--help")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "Cannot read the profile none" in done.stderr


def test_without_words_the_script_is_standard_input_as_sbatch_has_it(tmp_path: Path) -> None:
    done = run(tmp_path, "render", given=script("-N 3"))
    assert "completions: 3" in done.stdout, done.stderr
    assert run(tmp_path, "render", given="").returncode == 2


def test_standard_input_that_is_closed(tmp_path: Path) -> None:
    words = shlex.join([*PROGRAM, "kube", "render"])
    done = subprocess.run(
        ["sh", "-c", f"exec {words} <&-"], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "pyxis: error: Cannot read the batch script: standard input is closed\n"


def test_help_names_every_option(tmp_path: Path) -> None:
    text = run(tmp_path, "render", "--help").stdout
    for option in ("target", "gpu-api", "profile", "explain", "namespace", "job-id", "launcher",
                   "capture-env", "env-secret", "allow"):  # fmt: skip
        assert f"--{option}" in text


@pytest.mark.parametrize(("words", "own", "rest"), [
    (("job", "-N2"), {}, ["-N2", "--", "job"]),
    (("-N", "2", "job", "--target", "kueue"), {"target": "kueue"}, ["-N", "2", "--", "job"]),
    (("job", "--", "-N2", "x"), {}, ["--", "job", "-N2", "x"]),
    (("job", "x", "--target=y"), {}, ["--", "job", "x", "--target=y"]),
    (("--wrap=a b", "--explain"), {"explain": ""}, ["--wrap=a b"]),
    (("--allow=a", "--allow=b", "-"), {"allow": ["a", "b"]}, ["--", "-"]),
])  # fmt: skip
def test_own_words_are_separated_from_those_of_sbatch(
    words: Sequence[str], own: dict[str, object], rest: list[str]
) -> None:
    assert cut_words(words) == (own, rest)


def test_words_that_cannot_be_cut_are_an_error() -> None:
    with pytest.raises(UsageError, match="unknown option --nope"):
        cut_words(["--nope"])


WATCHED = """
import sys

def hook(event, arguments):
    if event.startswith(("socket.", "subprocess.", "os.posix_spawn", "os.exec", "os.fork")):
        sys.stderr.write(f"{event} {arguments}\\n")
        sys.stderr.flush()
        import os
        os._exit(99)

sys.addaudithook(hook)
from pyxis_py.cli.main import main
sys.argv = ["pyxis", "kube", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.parametrize("words", [
    ("render", "job.sbatch", "--profile=site.yaml"),
    ("render", "job.sbatch", "--profile=site.yaml", "--target=volcano"),
    ("render", "job.sbatch", "--profile=site.yaml", "--explain"),
    ("profile", "check", "site.yaml"),
], ids=" ".join)  # fmt: skip
def test_rendering_opens_no_socket_and_runs_no_program(
    tmp_path: Path, words: Sequence[str]
) -> None:
    (tmp_path / "job.sbatch").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "site.yaml").write_text(TEMPLATE, encoding="utf-8")
    # A cluster is configured, and not asked.
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], cwd=tmp_path, capture_output=True, text=True,
        env=environ, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_watch_sees_sockets(tmp_path: Path) -> None:
    code = WATCHED.replace("from pyxis_py.cli.main import main", "import socket; socket.socket()")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 99


def test_a_profile_from_the_environment(tmp_path: Path) -> None:
    done = run(tmp_path, "render", "job.sbatch", PYXIS_KUBE_PROFILE="site.yaml")
    assert done.returncode == 0 and "assumed-queue" not in done.stderr
    done = run(tmp_path, "render", "job.sbatch", PYXIS_KUBE_PROFILE="none.yaml")
    assert "Cannot read the profile none.yaml" in done.stderr


def test_help_of_the_commands_for_jobs(tmp_path: Path) -> None:
    text = run(tmp_path, "submit", "--help").stdout
    for option in ("target", "gpu-api", "profile", "client", "kubeconfig", "context", "allow"):
        assert f"--{option}" in text
    for name, option in (("status", "--json"), ("logs", "--follow"), ("cancel", "--signal"),
                         ("hold", "--user"), ("release", "--dependencies")):  # fmt: skip
        assert option in run(tmp_path, name, "--help").stdout
