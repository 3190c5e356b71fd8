"""Which nodes, CPUs and GPUs steps get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxis_py.kubernetes.launcher.job.allocation import Allocation, AllocationError, Share
from pyxis_py.kubernetes.launcher.job.step_request import StepRequest
from pyxis_py.kubernetes.launcher.srun.options import parse_srun
from pyxis_py.kubernetes.launcher.srun.plan import plan_request

HOSTS = ("a", "b", "c", "d")


def request(words: str, nodes: int = 4, hostfile: tuple[str, ...] = ()) -> StepRequest:
    return plan_request(parse_srun([*words.split(), "prog"], {}), nodes, hostfile)[0]


def place(words: str, cpus: int = 4, gpus: int = 0, **more: tuple[str, ...]) -> list[object]:
    shares = Allocation(HOSTS, cpus, gpus).allocate(request(words, **more))  # type: ignore[arg-type]
    assert shares is not None
    return [(HOSTS[share.node], share.tasks) for share in shares]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-N2", [("a", (0,)), ("b", (1,))]),
        ("-N2 -n5", [("a", (0, 1, 2)), ("b", (3, 4))]),
        ("-N2 -n5 -m cyclic", [("a", (0, 2, 4)), ("b", (1, 3))]),
        ("-N2 -n5 -m plane=2", [("a", (0, 1, 4)), ("b", (2, 3))]),
        ("-N1 -n2 -w c", [("c", (0, 1))]),
        ("-N2 -w c", [("a", (0,)), ("c", (1,))]),
        ("-N2 -x a", [("b", (0,)), ("c", (1,))]),
        ("-N2 -r 1", [("b", (0,)), ("c", (1,))]),
        ("-n6", [("a", (0, 1, 2)), ("b", (3, 4, 5))]),
        ("-N1 -n9 -O", [("a", tuple(range(9)))]),
        ("-N2-4 -n9", [("a", (0, 1, 2)), ("b", (3, 4, 5)), ("c", (6, 7, 8))]),
        ("-N2 --ntasks-per-node=2", [("a", (0, 1)), ("b", (2, 3))]),
        ("-N2 -n3 -c2", [("a", (0, 1)), ("b", (2,))]),
    ],
)
def test_places(words: str, expected: list[object]) -> None:
    if words == "-n6":
        words = "-N2-4 -n6"
    assert place(words) == expected


def test_an_arbitrary_distribution_follows_its_list() -> None:
    found = place("-m arbitrary", hostfile=("c", "a", "c"))
    assert found == [("c", (0, 2)), ("a", (1,))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-N1 -n5", "5 tasks"),
        ("-N4 -n9 -c2", "9 tasks"),
        ("-w z", "not a node of the job"),
        ("-w a -x a", "excluded"),
        ("-N4 -x a", "4 nodes"),
        ("-N1 -n1 -c5", "5 CPUs"),
        ("--gpus-per-node=3", "3 GPUs"),
        ("-n2 -N1 --gpus-per-task=2", "2 GPUs"),
        ("--gpus=9 -N4", "3 GPUs"),
        ("--gpus=9 -N2", "9 GPUs"),
        ("-N2 -r 3", "2 nodes"),
    ],
)
def test_what_the_job_does_not_have_is_refused_at_once(words: str, message: str) -> None:
    with pytest.raises(AllocationError, match=message):
        Allocation(HOSTS, 4, 2).allocate(request(words))


def test_a_list_of_tasks_cannot_have_more_than_fit() -> None:
    job = Allocation(HOSTS, 2, 0)
    with pytest.raises(AllocationError, match="3 tasks"):
        job.allocate(request("-m arbitrary", hostfile=("a", "a", "a")))
    assert job.allocate(request("-m arbitrary", hostfile=("a", "b", "a"))) is not None
    assert job.allocate(request("-m arbitrary", hostfile=("b",))) is None


def test_a_whole_step_waits_for_another_and_one_of_other_nodes_does_not() -> None:
    job = Allocation(HOSTS, 4, 0)
    first = job.allocate(request("-N2"))
    assert first is not None
    assert job.allocate(request("-N3")) is None
    other = job.allocate(request("-N2"))
    assert other is not None
    assert [share.node for share in other] == [2, 3]
    job.release(request("-N2"), first)
    assert job.allocate(request("-N2")) is not None


def test_exact_steps_share_a_node_and_overlapping_ones_do_not_count() -> None:
    job = Allocation(HOSTS[:1], 4, 0)
    assert [job.allocate(request("-n1 --exact")) for _ in range(4)].count(None) == 0
    assert job.allocate(request("-n1 --exact")) is None
    assert job.allocate(request("-n4 --overlap -N1")) is not None
    assert job.allocate(request("-n1 --overlap")) is not None


def test_gpus_are_those_of_one_step_only() -> None:
    job = Allocation(HOSTS[:1], 8, 4)

    def gpus(words: str) -> tuple[int, ...] | None:
        shares = job.allocate(request(words))
        return None if shares is None else shares[0].gpus

    assert gpus("-n1 --exact --gpus-per-task=1") == (0,)
    assert gpus("-N1 -n2 --exact --gpus-per-task=1") == (1, 2)
    assert gpus("-n1 --exact --gres=none") == ()
    assert gpus("-n1 --exact --gpus=2") is None
    assert gpus("-n1 --exact --gpus=1") == (3,)
    assert gpus("-n1 --overlap") == (0, 1, 2, 3)


def test_steps_go_where_gpus_are_free() -> None:
    job = Allocation(HOSTS, 64, 2)
    words = "-N1 -n1 --exact --gpus-per-task=1"
    found = [job.allocate(request(words)) for _ in range(9)]
    places = [(shares[0].node, shares[0].gpus) for shares in found if shares]
    assert places == [(node, (gpu,)) for node in range(4) for gpu in range(2)]
    assert found[8] is None


def test_a_lost_node_is_left_out_unless_it_is_asked_for() -> None:
    job = Allocation(HOSTS, 4, 0)
    job.lost = {0}
    shares = job.allocate(request("-N1"))
    assert shares is not None
    assert shares[0].node == 1
    for words in ("-N4", "-N1 -w a"):
        with pytest.raises(AllocationError, match="a: this part of the job is lost"):
            job.allocate(request(words))
    job.lost = set()
    assert job.allocate(request("-N1 -w a")) is not None


def test_gpus_of_a_step_are_divided_among_its_nodes() -> None:
    shares = Allocation(HOSTS, 4, 4).allocate(request("-N2 --gpus=3"))
    assert shares is not None
    assert [len(share.gpus) for share in shares] == [2, 1]


@given(
    nodes=st.integers(1, 4), most=st.integers(0, 4), ntasks=st.integers(1, 20),
    cpus=st.integers(1, 3), distribution=st.sampled_from(["block", "cyclic", "plane=2", "plane=7"]),
    overcommit=st.booleans(), exact=st.booleans(),
)  # fmt: skip
def test_every_task_has_one_place_and_no_node_too_many(
    nodes: int, most: int, ntasks: int, cpus: int, distribution: str, overcommit: bool, exact: bool
) -> None:
    words = f"-N{nodes}-{max(nodes, most)} -n{ntasks} -m {distribution}"
    words += " -O" * overcommit + " --exact" * exact + f" -c{cpus}" * (cpus > 1)
    job = Allocation(HOSTS, 4, 0)
    asked = request(words)
    try:
        shares = job.allocate(asked)
    except AllocationError:
        assert not overcommit
        return
    assert shares is not None
    assert sorted(task for share in shares for task in share.tasks) == list(range(ntasks))
    assert all(share.tasks == tuple(sorted(share.tasks)) for share in shares)
    assert min(nodes, ntasks) <= len(shares) <= max(nodes, most)
    if not overcommit:
        assert all(len(share.tasks) * cpus <= 4 for share in shares)
    job.release(asked, shares)
    assert job.allocate(request("-N4 -n16")) is not None


def test_a_share_is_what_it_says() -> None:
    shares = Allocation(HOSTS, 4, 1).allocate(request("-n2 -N1 --exact"))
    assert shares == (Share(0, (0, 1), 2, (0,)),)
