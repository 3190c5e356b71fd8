"""What salloc got reaches the srun inside it: Slurm hands on one value of each flag, the last."""

from __future__ import annotations

import pytest

from tests.spank_shim.harness import Harness

pytestmark = pytest.mark.kernel

KEEPER = (
    "said = [r.decode() for r in request if r.startswith((b'option=', b'env=SLURM_PYXIS_REP'))]\n"
    "say('status=ok', 'log=' + ' '.join(said).replace(chr(30), '|'), 'end=')"
)
HANDED = "_SLURM_SPANK_OPTION_pyxis_container_mounts"
KEPT = "SLURM_PYXIS_REPEATED_1"
OWN = "option=0=box option=1=/b:/b"


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return Harness(tmp_path_factory.mktemp("shim"), *flags)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, OWN),
        (
            {HANDED: "/b:/b", KEPT: "/y:/y\x1e/z:/z\x1e/b:/b"},
            (
                "option=0=box option=1=/y:/y option=1=/z:/z option=1=/b:/b"
                f" env={KEPT}=/y:/y|/z:/z|/b:/b"
            ),
        ),
        # What a step has left that this one is started from, and what belongs to another value.
        ({KEPT: "/y:/y\x1e/b:/b"}, OWN),
        ({HANDED: "/b:/b", KEPT: "/y:/y\x1e/c:/c"}, OWN),
        ({HANDED: "/b:/b", KEPT: "/b:/b"}, OWN),
    ],
)
def test_all_values_that_salloc_got(
    harness: Harness, environ: dict[str, str], expected: str
) -> None:
    played = harness.play("local", "--0=box", "--1=/b:/b", harness.keeper(KEEPER), **environ)
    assert (played.status, played.err) == (0, f"pyxis: {expected}\n"), played


def test_components_are_alike_though_slurm_repeats_what_the_first_was_given(
    harness: Harness,
) -> None:
    keeper = harness.keeper("say('status=ok', 'end=')")
    alike = harness.play("local", "--0=box", "::0=box", "::0=box", keeper)
    assert alike.status == 0, alike
    other = harness.play("local", "--0=box", "::0=box", "::1=/b:/b", keeper)
    assert other.status != 0
    assert "same plugin flags" in other.err.replace("\n", " "), other
