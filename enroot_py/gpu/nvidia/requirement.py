"""NVIDIA_REQUIRE_* expressions: what an image asks of the driver and the GPUs. Pure.

    requirement := group { blank group }     any one group must hold
    group       := term { "," term }         all of its terms must hold
    term        := property operator value
    property    := cuda | driver | arch | brand          in any case
    operator    := "=" | "!=" | "<" | "<=" | ">" | ">="

A value that cannot be determined satisfies a term, with a warning; so does a property that is not
known here.

Source: libnvidia-container cli/dsl.c; NVIDIA container toolkit, requirement constraints.
"""

from __future__ import annotations

from enroot_py.errors import DeviceError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NamedTuple
else:
    from enroot_py.record import NamedTuple

OPERATORS = ("!=", "<=", ">=", "=", "<", ">")
_VERSIONED = ("cuda", "driver", "arch")

CUDA_OF_BRANCH = {
    470: "11.4", 510: "11.6", 515: "11.7", 520: "11.8", 525: "12.0", 530: "12.1", 535: "12.2",
    545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9",
    580: "13.0", 590: "13.1",
}  # fmt: skip
"""The CUDA version that each driver branch offers."""


class Term(NamedTuple):
    """One comparison: property in lower case, operator, value."""

    property: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.property}{self.operator}{self.value}"


class GpuFacts(NamedTuple):
    """What the terms compare with; "" is unknown. `arch` and `brand` are those of one GPU."""

    cuda: str = ""
    driver: str = ""
    arch: str = ""
    brand: str = ""


class Verdict(NamedTuple):
    """The answer about one variable: the terms that do not hold (none if all is well), warnings."""

    unsatisfied: tuple[Term, ...] = ()
    warnings: tuple[str, ...] = ()


def requirement_variables(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the requirement variables that count, in order of their names."""
    return tuple(
        (name, environ[name])
        for name in sorted(environ)
        if name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK")
    )


def requirements_disabled(value: str) -> bool:
    """Tell whether NVIDIA_DISABLE_REQUIRE has a value that switches the check off."""
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def parse_requirement(text: str, variable: str) -> tuple[tuple[Term, ...], ...]:
    """Parse an expression into groups of terms.

    Raises:
        UsageError: naming the variable and the term that is malformed.
    """
    groups = []
    for word in text.split():
        terms = tuple(_parse_term(part, variable) for part in word.split(",") if part)
        if terms:
            groups.append(terms)
    return tuple(groups)


def _parse_term(text: str, variable: str) -> Term:
    def malformed(why: str) -> UsageError:
        return UsageError(
            f'gpu: cannot parse {variable}: "{text}": {why}',
            hint="expected for example cuda>=12.4, driver>=550, brand=tesla",
        )

    place = min((i for i in (text.find(sign) for sign in "!<>=") if i >= 0), default=-1)
    if place < 0:
        raise malformed("there is no operator")
    operator = next((sign for sign in OPERATORS if text.startswith(sign, place)), "")
    name, value = text[:place].strip().lower(), text[place + len(operator) :].strip()
    if not operator or not name or not value:
        raise malformed("expected property, operator and value")
    if name in _VERSIONED and not all(
        part.isascii() and part.isdigit() for part in value.split(".")
    ):
        raise malformed("a version has digits and dots only")
    if name == "brand" and operator not in ("=", "!="):
        raise malformed("brand supports only = and !=")
    return Term(name, operator, value)


def check_requirement(
    groups: tuple[tuple[Term, ...], ...], gpus: tuple[GpuFacts, ...], driver: GpuFacts
) -> Verdict:
    """Check one parsed expression for every visible GPU.

    Args:
        gpus: facts of each visible GPU; with none visible, `arch` and `brand` hold.
        driver: facts that do not depend on a GPU.

    Returns:
        The unsatisfied terms of the group that came closest.
    """
    warnings: dict[str, None] = {}
    for facts in gpus or (driver,):
        closest: tuple[Term, ...] | None = None
        for group in groups:
            failed = tuple(term for term in group if not _holds(term, facts, bool(gpus), warnings))
            if closest is None or len(failed) < len(closest):
                closest = failed
        if closest:
            return Verdict(closest, tuple(warnings))
    return Verdict((), tuple(warnings))


def _holds(term: Term, facts: GpuFacts, have_gpu: bool, warnings: dict[str, None]) -> bool:
    if term.property in ("arch", "brand") and not have_gpu:
        return True
    if term.property not in GpuFacts._fields:
        warnings[f'gpu: the requirement "{term}" has an unknown property; taken as satisfied'] = (
            None
        )
        return True
    actual: str = getattr(facts, term.property)
    if not actual:
        warnings[f'gpu: the requirement "{term}" cannot be checked here; taken as satisfied'] = None
        return True
    if term.property == "brand":
        return (actual.lower() == term.value.lower()) == (term.operator == "=")
    order = compare_versions(actual, term.value)
    return {
        "=": order == 0, "!=": order != 0, "<": order < 0,
        "<=": order <= 0, ">": order > 0, ">=": order >= 0,
    }[term.operator]  # fmt: skip


def compare_versions(left: str, right: str) -> int:
    """Compare dotted numbers; missing parts are 0, so 12 equals 12.0. Returns <0, 0 or >0."""
    first, second = _numbers(left), _numbers(right)
    size = max(len(first), len(second))
    first += [0] * (size - len(first))
    second += [0] * (size - len(second))
    return (first > second) - (first < second)


def _numbers(version: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]


def unsatisfied_error(terms: tuple[Term, ...], variable: str, facts: GpuFacts) -> DeviceError:
    """Return the error about an expression that does not hold."""
    offers = []
    if facts.driver:
        offers.append(f"the driver is {facts.driver}")
    if facts.cuda:
        offers.append(f"it offers CUDA {facts.cuda}")
    actual = " and ".join(offers) or "the driver's version is unknown"
    condition = ",".join(map(str, terms))
    older = f" or use an image for CUDA {facts.cuda} or older" if facts.cuda else ""
    return DeviceError(
        f"gpu: unsatisfied condition: {condition} ({variable}; {actual})",
        hint=f"update the driver{older}, or set NVIDIA_DISABLE_REQUIRE=1",
    )


def cuda_of_driver(version: str) -> str:
    """Return the CUDA version that a driver offers, from its branch; "" if that is not known."""
    branch = version.partition(".")[0]
    return CUDA_OF_BRANCH.get(int(branch), "") if branch.isdigit() else ""


def brand_of_model(model: str) -> str:
    """Guess the brand word from a GPU's model text, for want of NVML.

    Data-centre GPUs since Turing carry no brand in their name; NVML calls them "nvidia".
    """
    text = model.lower().replace("nvidia ", "", 1).strip()
    for word, brand in (
        ("geforce rtx", "geforcertx"), ("geforce", "geforce"), ("quadro rtx", "quadrortx"),
        ("quadro", "quadro"), ("titan rtx", "titanrtx"), ("titan", "titan"), ("tesla", "tesla"),
        ("nvs", "nvs"), ("grid", "grid"), ("rtx", "nvidiartx"),
    ):  # fmt: skip
        if text.startswith(word):
            return brand
    return "nvidia" if text else ""
