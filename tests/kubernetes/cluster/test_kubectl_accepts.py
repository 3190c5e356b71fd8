"""The real kubectl takes every manifest that is rendered, and a server with strict schemas too."""

from __future__ import annotations

import copy
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyxis_py.kubernetes.render.manifest_text import dump_manifests
from pyxis_py.kubernetes.render.render import Rendering
from tests.kubernetes.cluster.api_server import ApiServer
from tests.kubernetes.cluster.conftest import KUBECTL
from tests.kubernetes.cluster.controllers import condition, set_status
from tests.kubernetes.goldens import renderings
from tests.kubernetes.reference_schemas import VERSIONS
from tests.kubernetes.render.test_validate import change
from tests.kubernetes.samples import SCRIPT, render, script

pytestmark = pytest.mark.network


class Site:
    """A server and a kubectl that knows its way there."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self._environ = {
            "PATH": os.environ["PATH"], "HOME": str(folder),
            "KUBECONFIG": str(server.write_kubeconfig(folder / "kubeconfig")),
        }  # fmt: skip

    def kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl."""
        return subprocess.run(
            [str(KUBECTL), *words], input=given, env=self._environ, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip

    def names(self) -> set[tuple[str, str]]:
        """Kind and name of every object."""
        made = self.server.objects.objects.values()
        return {(row["kind"], row["metadata"]["name"]) for row in made}


@pytest.fixture(scope="module", params=VERSIONS)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """One server for all renderings: discovery is asked for once, as on a login node."""
    with ApiServer(kubernetes=request.param) as server:
        yield Site(server, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(autouse=True)
def _empty(site: Site) -> Iterator[None]:
    yield
    site.server.objects.objects.clear()


@pytest.mark.parametrize(
    "make", [pytest.param(make, id=name) for name, make in renderings().items()]
)
def test_kubectl_creates_what_is_rendered(site: Site, make: Callable[[], Rendering]) -> None:
    manifests = make().manifests
    done = site.kubectl("create", "-f", "-", given=dump_manifests(manifests))
    assert done.returncode == 0, done.stderr
    assert site.names() == {(row["kind"], row["metadata"]["name"]) for row in manifests}
    made = [row["spec"] for row in site.server.objects.objects.values() if "spec" in row]
    assert made == [row["spec"] for row in manifests if "spec" in row]


def test_the_client_is_the_one_of_the_requirements(site: Site) -> None:
    done = site.kubectl("version", "-o", "json")
    assert done.returncode == 0 and '"gitVersion": "v1.37.1"' in done.stdout
    assert f'"gitVersion": "v{site.server.kubernetes}"' in done.stdout


@pytest.mark.parametrize("words", [
    ("create", "--dry-run=server", "-f", "-"),
    ("create", "--dry-run=client", "-f", "-"),
    ("apply", "--dry-run=server", "-f", "-"),
    ("apply", "--server-side", "--dry-run=server", "-f", "-"),
], ids=" ".join)  # fmt: skip
def test_a_dry_run_creates_nothing(site: Site, words: tuple[str, ...]) -> None:
    done = site.kubectl(*words, given=dump_manifests(render(SCRIPT).manifests))
    assert done.returncode == 0, done.stderr
    assert site.names() == set()


@pytest.mark.parametrize("words", [("apply",), ("apply", "--server-side")], ids=" ".join)
def test_applying_twice_changes_nothing(site: Site, words: tuple[str, ...]) -> None:
    text = dump_manifests(render(SCRIPT).manifests)
    assert site.kubectl(*words, "-f", "-", given=text).returncode == 0
    first = copy.deepcopy([row.get("spec") for row in site.server.objects.objects.values()])
    done = site.kubectl(*words, "-f", "-", given=text)
    assert done.returncode == 0, done.stderr
    assert [row.get("spec") for row in site.server.objects.objects.values()] == first


FAULTS: list[tuple[Any, int, str, Any, str]] = [
    ("kueue", 2, "spec.replicatedJob", [], "unknown field|Additional properties"),
    ("kueue", 2, "spec.replicatedJobs.0.template.spec.completions", "64", "not of type"),
    ("kueue", 2, "metadata.annotations.pyxis/job-name", 4, "not of type|cannot unmarshal"),
    ("kueue", 2, "spec.failurePolicy.rules.0.action", "Fail", "is not one of"),
    ("kueue-job", 3, "spec.template.spec.containers.0.imagePull", "x", "Additional properties"),
    ("kueue-job", 0, "data.job.sh", 5, "not of type|cannot unmarshal"),
    ("volcano", 2, "spec.minAvailabel", 64, "Additional properties"),
    ("volcano", 2, "spec.policies.0.exitCode", "124", "not of type"),
]


@pytest.mark.parametrize(("target", "number", "path", "value", "complaint"), FAULTS)
def test_a_fault_is_refused(
    site: Site, target: Any, number: int, path: str, value: Any, complaint: str
) -> None:
    manifests = copy.deepcopy(list(render(SCRIPT, target=target).manifests))
    change(manifests[number], path, value)
    done = site.kubectl("create", "-f", "-", given=dump_manifests([manifests[number]]))
    assert done.returncode == 1
    assert any(text in done.stderr for text in complaint.split("|")), done.stderr
    assert site.names() == set()


def test_fields_are_explained_from_the_same_schemas(site: Site) -> None:
    done = site.kubectl("explain", "jobset.spec.failurePolicy.rules")
    assert done.returncode == 0, done.stderr
    assert "onJobFailureReasons" in done.stdout
    nothing = site.kubectl("explain", "jobset.spec.failurePolicies")
    assert nothing.returncode == 1


def test_one_deletion_takes_what_the_job_owns(site: Site) -> None:
    text = dump_manifests(render(SCRIPT).manifests)
    assert site.kubectl("create", "-f", "-", given=text).returncode == 0
    (jobset,) = site.server.all("jobsets")
    reference = {key: jobset["metadata"][key] for key in ("name", "uid")}
    for made in site.server.all("configmaps") + site.server.all("secrets"):
        made["metadata"]["ownerReferences"] = [reference]
    name = jobset["metadata"]["name"]
    done = site.kubectl("delete", "jobset", name, "--cascade=foreground")
    assert done.returncode == 0, done.stderr
    assert site.names() == set()


def test_a_gate_can_be_taken_away_by_hand(site: Site) -> None:
    text = dump_manifests(render(script("-p cpu", "-H")).manifests)
    assert site.kubectl("create", "-n", "default", "-f", "-", given=text).returncode == 0
    (jobset,) = site.server.all("jobsets")
    name, gate = f"jobset/{jobset['metadata']['name']}", "kueue.x-k8s.io/admission-gated-by"
    again = site.kubectl("annotate", "-n", "default", "--overwrite", name, f"{gate}=pyxis/other")
    assert again.returncode == 1 and "cannot add gates" in again.stderr
    done = site.kubectl("annotate", "-n", "default", name, f"{gate}-")
    assert done.returncode == 0, done.stderr
    (jobset,) = site.server.all("jobsets")
    assert gate not in jobset["metadata"]["annotations"]


def test_a_state_is_waited_for_by_watching(site: Site) -> None:
    text = dump_manifests(render(script("-p cpu")).manifests)
    assert site.kubectl("create", "-f", "-", given=text).returncode == 0
    (jobset,) = site.server.all("jobsets")
    status = {"terminalState": "Completed", "conditions": [condition("Completed")]}
    asked = site.server.requests
    before = len(asked)

    def complete() -> None:
        deadline = time.monotonic() + 50
        while not any("watch" in request.query for request in asked[before:]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        set_status(site.server, jobset, status)

    controller = threading.Thread(target=complete)
    controller.start()
    done = site.kubectl("wait", "-n", "default", "--timeout=60s", "--for=condition=Completed",
                        f"jobset/{jobset['metadata']['name']}")  # fmt: skip
    controller.join()
    assert done.returncode == 0 and "condition met" in done.stdout, done
    assert any("watch" in request.query for request in asked[before:])
