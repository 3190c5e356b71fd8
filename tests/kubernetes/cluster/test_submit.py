"""Creating jobs: order, owners, and nothing left behind when the cluster says no."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from enroot_py import ExistsError, NotFoundError
from pyxis_py.kubernetes.access import failures
from pyxis_py.kubernetes.access.client import ClusterClient
from pyxis_py.kubernetes.access.resources import SECRET, Object
from pyxis_py.kubernetes.cluster.submit import check_site, dry_run, roll_back, submit
from pyxis_py.kubernetes.pod.context import GPU_APIS, TARGETS, GpuApi, Target
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.controllers import add, key_of
from tests.kubernetes.cluster.kinds import KINDS, Kind
from tests.kubernetes.cluster.objects import RefusalError
from tests.kubernetes.goldens import training_job
from tests.kubernetes.samples import SCRIPT, TOKEN, render, script

pytestmark = pytest.mark.network
ARRAY = script("--array=0,5", "-N2", "-p flat", "--gpus-per-node=8")
NVLINK = script("-N4", "-p nvl72", "--gpus-per-node=4")


def owners(server: ApiServer) -> dict[tuple[str, str], set[str]]:
    """Owners' names of every object, by kind and name."""
    return {
        (made["kind"], made["metadata"]["name"]): {
            row["name"] for row in made["metadata"].get("ownerReferences", ())
        }
        for made in server.objects.objects.values()
    }


def kinds(server: ApiServer) -> list[str]:
    """Kinds in the order of their creation."""
    return [made["kind"] for made in server.objects.objects.values()]


@pytest.mark.parametrize("gpu_api", GPU_APIS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_and_gpu_api(
    client: ClusterClient, server: ApiServer, target: Target, gpu_api: GpuApi
) -> None:
    rendering = training_job(target, gpu_api)
    submission = submit(client, rendering.manifests)
    (job,) = submission.jobs
    assert submission.warnings == ()
    assert kinds(server) == [manifest["kind"] for manifest in rendering.manifests]
    for (kind, name), found in owners(server).items():
        is_job = kind in ("JobSet", "Job")
        assert found == (set() if is_job else {job.name}), (kind, name)
    server.objects.remove(server.key(job.resource.plural, job.name))
    assert server.objects.objects == {}


def test_what_elements_share_goes_with_the_last_of_them(
    python: ClusterClient, server: ApiServer
) -> None:
    submission = submit(python, render(ARRAY).manifests)
    names = {job.name for job in submission.jobs}
    assert len(names) == 2
    (shared,) = {name for kind, name in owners(server) if kind == "ConfigMap"}
    assert owners(server)["ConfigMap", shared] == owners(server)["Secret", shared] == names
    first, second = submission.jobs
    server.objects.remove(server.key("jobsets", first.name))
    assert owners(server)["Secret", shared] == {second.name}
    server.objects.remove(server.key("jobsets", second.name))
    assert server.objects.objects == {}


def test_what_one_element_has_is_owned_by_it_alone(
    python: ClusterClient, server: ApiServer
) -> None:
    submit(python, render(ARRAY, target="kueue-job").manifests)
    found = {name: owner for (kind, name), owner in owners(server).items() if kind == "Service"}
    assert len(found) == 2 and all(owner == {name} for name, owner in found.items())


def test_a_compute_domain_has_no_owner(python: ClusterClient, server: ApiServer) -> None:
    submission = submit(python, render(NVLINK).manifests)
    (job,) = submission.jobs
    assert submission.warnings == ()
    assert owners(server)["ComputeDomain", job.name] == set()


def webhook(kind: str, error: RefusalError) -> Any:
    """A webhook for one kind."""

    def look(verb: str, manifest: Object) -> None:
        if (verb, manifest["kind"]) == ("create", kind):
            raise error

    return look


QUOTA = RefusalError(403, "Forbidden", 'jobs "x" is forbidden: exceeded quota: gpus')


@pytest.mark.parametrize(("target", "kind"), [
    ("kueue", "JobSet"), ("kueue-job", "Job"), ("kueue-job", "Service"), ("volcano", "Job"),
    ("slurm-bridge", "PodGroup"), ("kueue", "Secret"), ("kueue", "ConfigMap"),
])  # fmt: skip
def test_a_refusal_leaves_nothing_behind(
    client: ClusterClient, server: ApiServer, target: Target, kind: str
) -> None:
    server.admission.append(webhook(kind, QUOTA))
    with pytest.raises(failures.RejectedError, match="quota of the namespace refuses"):
        submit(client, render(SCRIPT, target=target).manifests)
    assert server.objects.objects == {}


def test_the_second_element_of_an_array_that_is_refused_takes_the_first_along(
    python: ClusterClient, server: ApiServer
) -> None:
    def look(verb: str, manifest: Object) -> None:
        if manifest["kind"] == "JobSet" and server.all("jobsets"):
            raise QUOTA

    server.admission.append(look)
    with pytest.raises(failures.RejectedError):
        submit(python, render(ARRAY).manifests)
    assert server.objects.objects == {}


def test_what_cannot_be_removed_is_named(python: ClusterClient, server: ApiServer) -> None:
    server.admission.append(webhook("JobSet", QUOTA))
    server.forbidden.add(("delete", "secrets"))
    with pytest.raises(failures.ClusterError, match="left behind: secrets foundation/llama"):
        submit(python, render(SCRIPT).manifests)
    assert kinds(server) == ["Secret"]


def test_ctrl_c_leaves_nothing_behind(python: ClusterClient, server: ApiServer) -> None:
    real = python.create

    def create(manifest: Object, *, dry_run: bool = False) -> Object:
        if manifest["kind"] == "JobSet":
            raise KeyboardInterrupt
        return real(manifest)

    python.create = create  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        submit(python, render(SCRIPT).manifests, sleep=lambda seconds: None)
    assert server.objects.objects == {}


@pytest.mark.parametrize("late", [1, 2])
def test_ctrl_c_while_the_server_works_leaves_nothing_behind(
    python: ClusterClient, server: ApiServer, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """The request was on its way already: the object appears afterwards."""
    rendered = render(script("-p flat"))
    create, under_way, slept = python.create, [], []

    def interrupted(made: Object, *, dry_run: bool = False) -> Object:
        if made["kind"] == "JobSet":
            under_way.append(made)
            raise KeyboardInterrupt
        return create(made, dry_run=dry_run)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == late:
            create(under_way.pop())

    monkeypatch.setattr(python, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit(python, rendered.manifests, sleep=sleep)
    assert not server.objects.objects
    assert len(slept) == late


def test_a_second_ctrl_c_leaves_nothing_that_is_known(
    python: ClusterClient, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while what the server makes of the interrupted request is waited for."""
    rendered, create, slept = render(script("-p flat")), python.create, []

    def interrupted(made: Object, *, dry_run: bool = False) -> Object:
        if made["kind"] == "JobSet":
            raise KeyboardInterrupt
        return create(made, dry_run=dry_run)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(python, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit(python, rendered.manifests, sleep=sleep)
    assert slept and not server.objects.objects


def test_a_name_that_is_taken_touches_nothing_of_the_other(
    client: ClusterClient, server: ApiServer
) -> None:
    manifests = render(SCRIPT).manifests
    submit(client, manifests)
    before = copy.deepcopy(server.objects.objects)
    with pytest.raises(ExistsError, match="There is a ConfigMap foundation/llama-pretrain-4128"):
        submit(client, manifests)
    assert server.objects.objects == before


def test_a_taken_name_halfway_takes_back_only_our_own(
    python: ClusterClient, server: ApiServer
) -> None:
    manifests = render(SCRIPT).manifests
    jobset = copy.deepcopy(manifests[-1])
    add(server, jobset)
    with pytest.raises(ExistsError):
        submit(python, manifests)
    assert kinds(server) == ["JobSet"]


def test_what_goes_meanwhile_is_no_obstacle(python: ClusterClient, server: ApiServer) -> None:
    made = python.create(render(SCRIPT).manifests[0])
    server.objects.remove(key_of({**made, "kind": "ConfigMap", "apiVersion": "v1"}))
    assert roll_back(python, [{**made, "kind": "ConfigMap", "apiVersion": "v1"}]) == []


def test_owners_that_cannot_be_set_are_a_warning(python: ClusterClient, server: ApiServer) -> None:
    server.forbidden.add(("patch", "secrets"))
    submission = submit(python, render(SCRIPT).manifests)
    (warning,) = submission.warnings
    assert "secrets foundation/llama-pretrain-412803917 will not go away with the job" in warning
    assert len(submission.jobs) == 1


@pytest.mark.parametrize("kind", ["Secret", "JobSet"])
def test_a_server_that_repeats_the_token_does_not_make_us_show_it(
    client: ClusterClient, server: ApiServer, kind: str
) -> None:
    message = f'{kind} "x" is invalid: stringData[token]: Invalid value: "{TOKEN}"'
    server.admission.append(webhook(kind, RefusalError(422, "Invalid", message)))
    with pytest.raises(failures.ClusterError) as caught:
        submit(client, render(SCRIPT).manifests)
    texts = [str(caught.value), caught.value.hint, repr(caught.value)]
    texts += [repr(caught.value.__cause__), repr(caught.value.__context__)]
    assert not any(TOKEN in text for text in texts)
    assert "Invalid value" in str(caught.value)


def test_a_dry_run_asks_about_every_object(client: ClusterClient, server: ApiServer) -> None:
    dry_run(client, render(SCRIPT).manifests)
    assert server.objects.objects == {}
    asked = [request for request in server.requests if request.method == "POST"]
    assert [request.query["dryRun"] for request in asked] == ["All"] * 3
    server.admission.append(webhook("JobSet", QUOTA))
    with pytest.raises(failures.RejectedError):
        dry_run(client, render(SCRIPT).manifests)


def test_volcano_aborts_a_job_that_is_to_be_held(client: ClusterClient, server: ApiServer) -> None:
    rendering = render(SCRIPT, ["-H"], target="volcano", submitting=True)
    (job,) = submit(client, rendering.manifests).jobs
    (command,) = server.all("commands")
    assert (command["action"], command["target"]["uid"]) == ("AbortJob", job.uid)
    assert command["metadata"]["name"].startswith(f"{job.name}-abortjob-")
    assert job.held


def test_slurm_bridge_suspends_a_job_that_is_to_be_held(
    python: ClusterClient, server: ApiServer
) -> None:
    (job,) = submit(python, render(SCRIPT, ["-H"], target="slurm-bridge").manifests).jobs
    assert job.made["spec"]["suspend"] is True and job.held


def queue(server: ApiServer) -> None:
    """The queue that the sample job goes to."""
    add(server, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                 "metadata": {"name": "h100", "namespace": "foundation"}, "spec": {}})  # fmt: skip


def site(client: ClusterClient, launcher: str = "", **options: Any) -> Sequence[str]:
    """What the site lacks for the sample job."""
    return check_site(client, render(SCRIPT, **options).manifests, launcher)


def test_a_site_that_has_everything(client: ClusterClient, server: ApiServer) -> None:
    queue(server)
    add(server, {"apiVersion": "v1", "kind": "ConfigMap",
                 "metadata": {"name": "pyxis-launcher", "namespace": "foundation"}})  # fmt: skip
    assert site(client, "pyxis-launcher") == []
    assert site(client, target="volcano") == []


def test_a_launcher_that_nobody_put_there(client: ClusterClient, server: ApiServer) -> None:
    queue(server)
    with pytest.raises(NotFoundError, match="pyxis-launcher is not in namespace foundation"):
        site(client, "pyxis-launcher")
    server.forbidden.add(("get", "configmaps"))
    assert site(client, "pyxis-launcher") == []


def test_a_queue_that_is_not_there(client: ClusterClient, server: ApiServer) -> None:
    assert "no LocalQueue h100 in namespace foundation" in site(client)[0]
    server.forbidden.add(("get", "localqueues"))
    assert site(client) == []
    server.forbidden.clear()
    server.served = tuple(kind for kind in KINDS if not kind.group.startswith("kueue"))
    assert "Kueue is not installed" in site(client)[0]


def old_kueue() -> tuple[Kind, ...]:
    """The kinds of a cluster whose Kueue has no v1beta2 yet."""
    return tuple(
        kind._replace(group_version=kind.group_version.replace("v1beta2", "v1beta1"))
        for kind in KINDS
    )


def test_a_queue_of_an_older_kueue(client: ClusterClient, server: ApiServer) -> None:
    server.served = old_kueue()
    assert "no LocalQueue h100 in namespace foundation" in site(client)[0]


def test_an_answer_that_does_not_come_leaves_a_doubt(
    python: ClusterClient, server: ApiServer
) -> None:
    real = python.create

    def create(manifest: Object, *, dry_run: bool = False) -> Object:
        if manifest["kind"] == "JobSet":
            raise failures.UnreachableError("No answer")
        return real(manifest)

    python.create = create  # type: ignore[method-assign]
    with pytest.raises(failures.UnreachableError, match="Whether jobsets.jobset.x-k8s.io found"):
        submit(python, render(SCRIPT).manifests)
    assert server.objects.objects == {}


def test_a_cluster_without_jobsets(client: ClusterClient, server: ApiServer) -> None:
    server.served = tuple(kind for kind in KINDS if kind.kind != "JobSet")
    with pytest.raises(failures.MissingKindError, match="has no JobSet") as caught:
        submit(client, render(SCRIPT).manifests)
    assert "JobSet has to be installed" in caught.value.hint
    assert server.objects.objects == {}


def test_the_token_is_in_the_secret_alone(client: ClusterClient, server: ApiServer) -> None:
    submit(client, render(SCRIPT).manifests)
    secret = client.get(SECRET, "foundation", "llama-pretrain-412803917")
    assert set(secret["data"]) == {"token"}
    others = [request for request in server.requests if "/secrets" not in request.path]
    assert not any(TOKEN.encode() in request.body for request in others)
    assert not any(TOKEN in request.path for request in server.requests)
