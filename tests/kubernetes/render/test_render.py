"""Whole manifests: golden files, reference schemas, determinism, and secrets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from pyxis_py.kubernetes.pod.context import GPU_APIS, TARGETS, GpuApi, Target
from pyxis_py.kubernetes.render.manifest_text import dump_manifests, explain
from pyxis_py.kubernetes.spec.notes import RefusedError
from tests.kubernetes.goldens import FOLDER, renderings, training_job
from tests.kubernetes.reference_schemas import VERSIONS, WITHOUT_SCHEMA, problems
from tests.kubernetes.samples import (
    PROFILE,
    SCRIPT,
    SUBMITTER,
    TOKEN,
    container,
    find,
    pod,
    render,
    script,
    site,
)

ALL = [(target, gpu_api) for target in TARGETS for gpu_api in GPU_APIS]


@pytest.mark.parametrize("name", renderings())
def test_manifests_are_those_of_the_golden_file(name: str) -> None:
    golden = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert dump_manifests(renderings()[name]().manifests) == golden


def test_every_golden_file_belongs_to_a_rendering() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(renderings())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", renderings())
def test_the_schemas_of_kubernetes_and_of_the_crds_accept(name: str, version: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    for manifest in yaml.safe_load_all(text):
        if (manifest["apiVersion"], manifest["kind"]) not in WITHOUT_SCHEMA:
            assert problems(manifest, version) == []


@pytest.mark.parametrize(("target", "gpu_api"), ALL)
def test_rendering_again_gives_the_same_bytes(target: Target, gpu_api: GpuApi) -> None:
    first, second = (training_job(target, gpu_api) for _ in range(2))
    assert dump_manifests(first.manifests) == dump_manifests(second.manifests)
    assert first.notes == second.notes


@pytest.mark.parametrize("target", ["kueue", "kueue-job"])
@pytest.mark.parametrize("gpu_api", ["dra", "dra-extended"])
def test_kueue_refuses_dra_together_with_topology(target: Target, gpu_api: GpuApi) -> None:
    with pytest.raises(RefusedError) as caught:
        render(SCRIPT, target=target, gpu_api=gpu_api)
    assert caught.value.codes == {"dra-tas"}
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("target", "gpu_api"), ALL)
def test_the_token_stands_in_the_secret_alone(target: Target, gpu_api: GpuApi) -> None:
    for manifest in training_job(target, gpu_api).manifests:
        assert (TOKEN in json.dumps(manifest)) == (manifest["kind"] == "Secret")


@pytest.mark.parametrize("target", TARGETS)
def test_exported_secrets_stand_in_the_secret_alone(target: Target) -> None:
    names = ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "WANDB_API_KEY", "PROXY", "GH"]
    environ = {name: f"s3cret-of-{name}-value" for name in names}
    environ["PROXY"] = "http://me:s3cret-of-PROXY-value@proxy.example.org:3128"
    environ["GH"] = "ghp_s3cretGHvalue0123"
    result = render(
        script("-p cpu"),
        [f"--export={','.join([*names, 'OPEN'])}"],
        target=target,
        environ={**environ, "OPEN": "seen"},
    )
    for manifest in result.manifests:
        text = json.dumps(manifest)
        assert ("s3cret" in text) == (manifest["kind"] == "Secret"), manifest["kind"]
    secret = next(row for row in result.manifests if row["kind"] == "Secret")
    assert secret["stringData"] == {
        "token": TOKEN, **{f"env.{name}": environ[name] for name in names},
    }  # fmt: skip
    described = json.loads(result.manifests[0]["data"]["job.json"])
    assert described["exportEnv"] == {"OPEN": "seen"}
    assert described["secretEnv"] == names
    assert "s3cret" not in explain(result.notes, result.manifests)


def test_captured_environment_leaves_out_what_belongs_to_the_login_node() -> None:
    environ = {
        "PATH": "/x", "LD_LIBRARY_PATH": "/x", "HOSTNAME": "x", "SSH_AUTH_SOCK": "x", "A": "1",
        "KUBECONFIG": "x", "SLURM_JOB_ID": "1", "MY_TOKEN": "t", "BASH_FUNC_f%%": "() { :; }",
    }  # fmt: skip
    result = render(script("-p cpu", "--export=ALL"), environ=environ, capture_env=True)
    described = json.loads(result.manifests[0]["data"]["job.json"])
    assert described["exportEnv"] == {"A": "1"}
    assert described["secretEnv"] == ["MY_TOKEN"]


def test_variables_that_are_not_utf_8_are_left_out() -> None:
    result = render(script("-p cpu", "--export=A,B"), environ={"A": "\udcff", "B": "1"})
    assert json.loads(result.manifests[0]["data"]["job.json"])["exportEnv"] == {"B": "1"}
    assert "export-not-utf8" in {note.code for note in result.notes}


def test_a_folder_whose_name_is_not_utf_8_is_refused() -> None:
    folder = replace(SUBMITTER, directory="/home/\udcff")
    with pytest.raises(RefusedError, match="SLURM_SUBMIT_DIR is not UTF-8"):
        render(script("-p cpu"), submitter=folder)


def test_a_secret_of_the_namespace_is_referred_to() -> None:
    result = render(script("-p cpu"), env_secrets=(("HF_TOKEN", "hf", "token"),))
    assert pod(result)["spec"]["containers"][0]["env"][-1] == {
        "name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}},
    }  # fmt: skip


@pytest.mark.parametrize("options", [
    ("--export=HF_TOKEN=hf_abcdefgh123",),
    ("--export=URL=https://me:pw@example.org/",),
    ("--comment=ghp_abcdefgh12345",),
    ("--job-name=sk-abcdefgh12345",),
])  # fmt: skip
def test_a_secret_written_into_the_script_is_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError) as caught:
        render(script("-p cpu", *options))
    assert caught.value.codes == {"env-secret"}
    assert "abcdefgh" not in str(caught.value) and "pw@" not in str(caught.value)


def test_the_script_is_kept_byte_for_byte() -> None:
    text = (
        "#!/bin/sh\n#SBATCH -p cpu\n#SBATCH --container-image=ubuntu:24.04\n\ttab\x07 \r \r é\n\n "
    )
    manifest = yaml.safe_load(dump_manifests([render(text).manifests[0]]).removeprefix("---"))
    assert manifest["data"]["job.sh"] == text


@pytest.mark.parametrize(
    "name", ["1e3", "0x1F", "0o7", "1_0", "on", "null", "1:30", ".5", "~", "="]
)
def test_texts_like_numbers_are_quoted(name: str) -> None:
    line = dump_manifests([{"value": name}]).splitlines()[1]
    assert line.removeprefix("value: ")[0] in "'\""


def test_dollar_signs_reach_the_pod_as_they_are() -> None:
    result = render(script("-p cpu", "'--job-name=a$(HOME)$$b'"))
    env = {row["name"]: row.get("value") for row in pod(result)["spec"]["containers"][0]["env"]}
    # The kubelet makes $ of $$ and leaves the rest.
    assert env["SLURM_JOB_NAME"] == "a$$(HOME)$$$$b"


def test_a_launcher_too_large_for_a_config_map_is_refused() -> None:
    with pytest.raises(RefusedError) as caught:
        render(script("-p cpu"), launcher=bytes(800_000))
    assert caught.value.codes == {"configmap-too-large"}


def test_without_a_profile_names_are_assumed_and_noted() -> None:
    from pyxis_py.kubernetes.profile.site import Profile

    result = render(script("-p gpu", "-q fast", "-A me", "-N2"), profile=Profile())
    codes = {note.code for note in result.notes}
    assert {"assumed-queue", "assumed-priority", "approx-account"} <= codes
    labels = result.manifests[2]["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "gpu"
    assert labels["kueue.x-k8s.io/priority-class"] == "fast"


def test_explanations_have_line_numbers_and_ways_out() -> None:
    result = render(SCRIPT)
    lines = explain(result.notes, result.manifests).splitlines()
    assert any(line.split()[:4] == ["rendered", "line", "14", "--segment:"] for line in lines)
    assert any("way out: --export=A,B" in line for line in lines)
    assert lines[-1] == "The queue has to cover: cpu, memory, nvidia.com/gpu, rdma/hca"


def test_every_option_of_the_training_script_is_accounted_for() -> None:
    lines = {note.line for note in render(SCRIPT).notes}
    assert set(range(2, 20)) <= lines


def test_a_profile_with_values_that_no_cluster_takes_is_refused() -> None:
    from pyxis_py.kubernetes.render.validate import ManifestRuleError

    text = "{version: 1, fabric: {kind: shared, resources: {rdma/hca: 500m}}}"
    with pytest.raises(ManifestRuleError, match="not a whole number"):
        render(script("--gpus=1"), profile=site(text))


def test_names_that_go_takes_for_truth_values_are_quoted() -> None:
    # kubectl's parser reads YAML 1.1, where a bare n is false: no JobSet would be accepted.
    text = dump_manifests([{"name": name} for name in ("n", "N", "y", "Y", "no", "off", "nn")])
    names = [line.partition(": ")[2] for line in text.splitlines() if line != "---"]
    assert names == ['"n"', '"N"', '"y"', '"Y"', "'no'", "'off'", "nn"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (script("-p cpu"), True),
        (script("-p cpu", image="", body="srun --container-image=ubuntu:24.04 true\n"), False),
    ],
)
def test_the_launcher_is_told_whose_the_container_is(text: str, expected: bool) -> None:
    described = json.loads(find(render(text), "ConfigMap")["data"]["job.json"])
    assert described["containerOfSteps"] is expected


@pytest.mark.parametrize(("option", "name", "value"), [
    ("--distribution=cyclic", "SLURM_DISTRIBUTION", "cyclic"),
    ("--overcommit", "SLURM_OVERCOMMIT", "1"),
    ("--open-mode=append", "SLURM_OPEN_MODE", "a"),
    ("--gpu-bind=single:1", "SLURM_GPU_BIND", "single:1"),
    ("--hint=nomultithread", "SLURM_HINT", "nomultithread"),
    ("--threads-per-core=1", "SLURM_THREADS_PER_CORE", "1"),
    ("--gpus=2 --cpus-per-gpu=4", "SLURM_CPUS_PER_GPU", "4"),
    ("--gpus=2 --ntasks-per-gpu=1", "SLURM_NTASKS_PER_GPU", "1"),
])  # fmt: skip
def test_options_of_the_job_reach_its_steps(option: str, name: str, value: str) -> None:
    """By the variables that sbatch sets and srun reads."""
    without, with_it = (
        {row["name"]: row.get("value") for row in container(rendering)["env"]}
        for rendering in (render(script("-p h100")), render(script("-p h100", *option.split())))
    )
    assert (without.get(name), with_it[name]) == (None, value)


def test_the_directory_of_submission_is_not_that_of_chdir() -> None:
    result = render(script("-p cpu", "--chdir=/home/user1/p", "-e e/%j", "-i in"))
    job = json.loads(result.manifests[0]["data"]["job.json"])
    environ = {row["name"]: row.get("value") for row in container(result)["env"]}
    assert environ["SLURM_SUBMIT_DIR"] == SUBMITTER.directory
    assert (job["output"], job["options"]["error"], job["options"]["input"]) == (
        "/home/user1/p/slurm-%j.out", "/home/user1/p/e/%j", "/home/user1/p/in",
    )  # fmt: skip
    assert container(result)["workingDir"] == "/home/user1/p"
    assert "directory" not in job


@pytest.mark.parametrize(("options", "directory"), [
    ((), "/home/user1/llama"), (("-D", "/lustre/x"), "/lustre/x"),
    (("-D", "x"), "/home/user1/llama/x"),
])  # fmt: skip
def test_a_script_beside_its_steps_containers_starts_where_slurm_starts_it(
    options: tuple[str, ...], directory: str
) -> None:
    text = script("-p cpu", "-o /dev/null", image="", body="srun --container-image=ubuntu:1 x\n")
    result = render(text, options)
    assert json.loads(result.manifests[0]["data"]["job.json"])["directory"] == directory
    assert "workingDir" not in container(result)
    assert directory in {row["mountPath"] for row in container(result)["volumeMounts"]}
    assert "directory-unmounted" in {note.code for note in render(text, ("-D", "/none")).notes}


def test_no_file_needs_no_folder() -> None:
    profile = site(PROFILE.replace("{path: /lustre, name: lustre,", "{path: /, name: root,"))
    result = render(script("-p cpu", "-o none", "-e NONE", "-i None"), profile=profile)
    content = json.loads(result.manifests[0]["data"]["job.json"])
    options = content["options"]
    assert {content["output"], options["error"], options["input"]} == {"/dev/null"}
    assert not [row for row in container(result)["volumeMounts"] if row["name"] == "root"]
    assert not {"output-unmounted", "input-unmounted"} & {note.code for note in result.notes}


def test_the_folder_of_the_input_is_mounted() -> None:
    mounted = container(render(script("-p cpu", "-o /dev/null", "-i /lustre/in/%a")))
    assert "/lustre/in" in {row["mountPath"] for row in mounted["volumeMounts"]}
    notes = render(script("-p cpu", "-i /none/in")).notes
    assert "input-unmounted" in {note.code for note in notes}
