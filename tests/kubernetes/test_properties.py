"""Any sbatch header either renders valid manifests or fails with a known code."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyxis_py.command_lines.slurm_options import SlurmOption, built_in_options
from pyxis_py.kubernetes.pod.context import GPU_APIS, TARGETS
from pyxis_py.kubernetes.profile.site import Profile
from pyxis_py.kubernetes.render.manifest_text import dump_manifests, explain
from pyxis_py.kubernetes.render.validate import find_problems
from pyxis_py.kubernetes.spec.notes import REFUSALS, RefusedError
from tests.kubernetes.reference_schemas import VERSIONS, WITHOUT_SCHEMA, problems
from tests.kubernetes.samples import render, site

COUNT = st.integers(0, 70).map(str)
WORD = st.sampled_from((
    "h100", "flat", "nvl72", "cpu", "high", "normal", "foundation", "hbm80", "ib", "nowhere", "",
    "a,b", "Ünïcode", "x" * 80, "$(HOME)", "a b", "-", "0", "1e3", "no", "foo=bar", "a/b", "\t",
))  # fmt: skip
TIME = st.sampled_from(("0", "60", "1:30", "1:2:3", "1-2", "1-2:3", "9-1:2:3", "UNLIMITED", "x"))
SIZE = st.sampled_from(("0", "1", "512M", "4G", "1T", "1024K", "-1", "2X", "99999P"))
GPUS = st.sampled_from(("0", "1", "8", "h100:8", "a100:2", "1g.10gb:3", "h100:1,a100:1", "x:", ":"))
GRES = st.sampled_from(
    ("gpu", "gpu:2", "gpu:h100:8", "fpga:1", "nic", "none", "gpu:1g.10gb:2", "a:b:c:d", "")
)
MOUNTS = st.lists(
    st.sampled_from((
        "/lustre/a:/data:ro", "/lustre/a", "/lustre:/data", "/home/u:/h:rslave", "tmpfs:/t",
        "./x:/x",
        "/scratch/y:/y", "/srv/z", "/nowhere:/n", "umount:/x", "/lustre/b:/b:rshared", "/dev/shm",
        "/opt/data:/o:ro", "/lustre/../etc:/e", "/a", "x", "/lustre/a:/", "/lustre/q:/tmp:noexec",
    )),
    min_size=1, max_size=4,
).map(",".join)  # fmt: skip
IMAGES = st.sampled_from((
    "ubuntu", "docker://ubuntu:24.04", "nvcr.io#nvidia/pytorch:25.06-py3", "alice@nvcr.io#nvidia/x",
    "bob@nvcr.io#nvidia/x", "ubuntu@sha256:" + "0" * 64, "nvcr.io/nvidia/x", "/x.sqsh", "./x",
    "x.sqsh", "podman://x", "dockerd://x", "oci:///x", "UPPER", "a b", "#", "@", "",
))  # fmt: skip
VALUES: dict[str, st.SearchStrategy[str]] = {
    "array": st.sampled_from(("0-3", "1-7:2%2", "5", "0,9%1", "3-1", "x", "0-999999999")),
    "begin": TIME, "time": TIME, "mem": SIZE, "mem-per-cpu": SIZE, "mem-per-gpu": SIZE, "tmp": SIZE,
    "nodes": st.sampled_from(("1", "2", "4", "16", "64", "2-4", "4-2", "0", "x", "1000000")),
    "gpus": GPUS, "gpus-per-node": GPUS, "gpus-per-task": GPUS, "gres": GRES,
    "signal": st.sampled_from(("USR1@600", "B:TERM@1", "10", "SIGINT", "x", "R:USR2@99999", "B:")),
    "switches": st.sampled_from(("1", "1@60", "2", "x", "1@x")), "segment": COUNT,
    "constraint": st.sampled_from(
        ("hbm80", "hbm80&ib", "hbm80|ib", "[a|b]", "ib*2", "(a|b)&c", "no", "&", "")
    ),
    "dependency": st.sampled_from(
        ("afterok:1", "after:1+5,afterany:2_3", "singleton", "afterburstbuffer:1", "x", "afterok:")
    ),
    "nodelist": st.sampled_from(("n1", "n[1-4]", "n[01-64]", "n[", "a,b", "n[3-1]", "x" * 70)),
    "exclude": st.sampled_from(("n1", "n[1-4]", "x_y", "]")),
    "export": st.sampled_from(("ALL", "NONE", "A,B=1", "MY_TOKEN", "X_KEY=1", "1=2", "", "A=$x")),
    "container-image": IMAGES, "container-mounts": MOUNTS,
    "container-env": st.sampled_from(("A,B", "1", "", "A,,B")),
    "container-unshare": st.sampled_from(("net", "net,ipc", "user")),
    "container-name": st.sampled_from(("x", "x:create", "/x", "x:y")),
    "container-digest": st.sampled_from(("print", "sha256:" + "a" * 64, "x")),
    "chdir": st.sampled_from(("/lustre/x", "x", "/", "")), "container-workdir": WORD,
    "output": st.sampled_from(("/lustre/%x/%j.out", "x.out", "/nowhere/%j", "/dev/null", "%j")),
    "uid": COUNT, "gid": COUNT,
}  # fmt: skip


def option_line(option: SlurmOption) -> st.SearchStrategy[str]:
    """One `#SBATCH` line with an option, its value often sensible."""
    flag = f"--{option.name}"
    if option.argument == "none":
        return st.just(flag)
    values = VALUES.get(option.name, st.one_of(COUNT, WORD))
    text = values.map(lambda value: shlex.quote(f"{flag}={value}"))
    return st.one_of(st.just(flag), text) if option.argument == "optional" else text


OPTIONS = tuple(built_in_options("sbatch"))
GOOD: dict[str, tuple[str, ...]] = {
    "nodes": ("1", "2", "4", "16", "64"), "ntasks-per-node": ("1", "8"), "segment": ("1", "2"),
    "cpus-per-task": ("1", "4", "22"), "time": ("60", "1:30:0", "2-0"), "mem": ("0", "1G", "900G"),
    "gpus-per-node": ("1", "8", "h100:8", "1g.10gb:2"), "gres": ("fpga:1", "gpu:8", "none"),
    "partition": ("h100", "flat", "nvl72", "cpu"), "qos": ("high", "normal"),
    "array": ("0-3", "1-7:2", "5"), "container-mounts": ("/lustre/a:/data:ro,tmpfs:/t", "/srv/z"),
    "output": ("/lustre/%x/%j.out", "x.out"), "signal": ("USR1@600", "B:TERM@1"),
    "chdir": ("/lustre/x", "/w"), "tmp": ("1G",), "constraint": ("hbm80", "ib|hbm80", "hbm80&ib"),
    "switches": ("1", "1@60"), "dependency": ("afterok:1", "singleton"), "nodelist": ("n1",),
    "account": ("foundation",), "reservation": ("maintenance",), "exclude": ("n[1-3]",),
    "export": ("A", "MY_TOKEN", "NONE", "B=$(x)$$"), "hold": ("",), "requeue": ("",),
    "no-requeue": ("",), "exclusive": ("",), "container-readonly": ("",), "comment": ("1e3", "no"),
    "container-remap-root": ("",), "container-entrypoint": ("",), "job-name": ("a b", "9x", "on"),
    "container-workdir": ("/w",), "container-mount-home": ("",), "uid": ("7",),
}  # fmt: skip


def good_line(name: str) -> st.SearchStrategy[str]:
    """One `#SBATCH` line that alone is in order."""
    values = st.sampled_from(GOOD[name])
    return values.map(lambda text: shlex.quote(f"--{name}={text}" if text else f"--{name}"))


GOOD_LINES = st.sampled_from(sorted(GOOD)).flatmap(good_line)
HEADERS = st.one_of(
    st.lists(GOOD_LINES, max_size=5),
    st.lists(GOOD_LINES, max_size=10),
    st.lists(st.one_of(GOOD_LINES, st.sampled_from(OPTIONS).flatmap(option_line)), max_size=8),
)
BODIES = st.sampled_from((
    "srun true", "srun true", "python x.py", "srun -n1 hostname | sort",
    "sbatch x", "srun --pty bash", "srun --container-image=ubuntu a", "module load x",
    "export HF_TOKEN=hf_abcdef", "", "wait\n\n\tsrun \\\n  --x11 a", "é\x0b",
))  # fmt: skip


def _check(header: list[str], image: str, body: str, **options: Any) -> None:
    lines = [f"#SBATCH {line}" for line in header]
    if image:
        lines.append(f"#SBATCH --container-image={shlex.quote(image)}")
    text = "\n".join(("#!/bin/sh", *lines, body, ""))
    try:
        result = render(text, environ={"A": "1", "MY_TOKEN": "t0ken"}, **options)
    except RefusedError as error:
        assert error.codes and error.codes <= set(REFUSALS)
        assert all(note.way_out for note in error.notes)
        return
    assert find_problems(result.manifests) == []
    for manifest in result.manifests[:6]:
        if (manifest["apiVersion"], manifest["kind"]) not in WITHOUT_SCHEMA:
            assert problems(manifest, VERSIONS[-1]) == []
    assert list(yaml.safe_load_all(dump_manifests(result.manifests))) == list(result.manifests)
    for manifest in result.manifests:
        assert manifest["kind"] == "Secret" or "t0ken" not in str(manifest)
    assert "t0ken" not in explain(result.notes)
    given = {number for number, line in enumerate(lines, start=2)}
    assert {note.line for note in result.notes} - {0} <= given | set(range(len(lines) + 2, 99))


@pytest.mark.parametrize("target", TARGETS)
def test_any_header_renders_or_is_refused_with_a_known_code(target: str) -> None:
    @settings(
        max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(
        HEADERS,
        st.one_of(st.just("ubuntu:24.04"), st.just("nvcr.io#a/b:1"), IMAGES),
        BODIES,
        st.sampled_from(GPU_APIS),
    )
    def run(header: list[str], image: str, body: str, gpu_api: str) -> None:
        _check(header, image, body, target=target, gpu_api=gpu_api)

    run()


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(HEADERS, st.sampled_from(TARGETS), st.sampled_from(GPU_APIS))
def test_any_header_renders_or_is_refused_without_a_profile(
    header: list[str], target: str, gpu_api: str
) -> None:
    _check(header, "ubuntu:24.04", "srun x", target=target, gpu_api=gpu_api, profile=Profile())


@pytest.mark.soak
@settings(max_examples=5000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(HEADERS, IMAGES, BODIES, st.sampled_from(TARGETS), st.sampled_from(GPU_APIS))
def test_many_headers_render_or_are_refused(
    header: list[str], image: str, body: str, target: str, gpu_api: str
) -> None:
    _check(header, image, body, target=target, gpu_api=gpu_api, profile=site())
