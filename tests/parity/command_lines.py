"""The command lines that are run through the original and through ours, by theme."""

from __future__ import annotations

from tests.parity import bundle_lines, start_lines, store_lines, system_lines, usage_lines

SCENARIOS = (
    usage_lines.USAGE,
    *store_lines.SCENARIOS,
    *start_lines.SCENARIOS,
    *system_lines.SCENARIOS,
    bundle_lines.BUNDLES,
)
