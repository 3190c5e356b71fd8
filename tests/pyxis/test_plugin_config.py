"""The plugin's settings in plugstack.conf."""

from __future__ import annotations

import pytest

from enroot_py import SettingsError
from pyxis_py.plugin_config import PluginConfig, parse_plugin_config


def test_defaults() -> None:
    assert parse_plugin_config([]) == PluginConfig()


@pytest.mark.parametrize(
    ("word", "field", "value"),
    [
        ("runtime_path=/tmp/x", "runtime_path", "/tmp/x"),
        ("execute_entrypoint=1", "execute_entrypoint", True),
        ("execute_entrypoint=no", "execute_entrypoint", False),
        ("container_scope=job", "container_scope", "job"),
        ("sbatch_support=false", "sbatch_support", False),
        ("use_enroot_load=y", "use_enroot_load", True),
        ("importer=/opt/importer", "importer", "/opt/importer"),
        ("use_squashfuse=n", "use_squashfuse", False),
        ("image_store=/images", "image_store", "/images"),
        ("cache_policy=never", "cache_policy", "never"),
        ("python=/usr/bin/python3", "python", "/usr/bin/python3"),
    ],
)
def test_one_setting(word: str, field: str, value: object) -> None:
    config = parse_plugin_config([word])
    assert getattr(config, field) == value
    assert config._replace(**{field: getattr(PluginConfig(), field)}) == PluginConfig()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "word",
    [
        "runtime_path",
        "runtime_path=run",
        "runtime_path=/" + "x" * 5000,
        "container_scope=node",
        "execute_entrypoint=perhaps",
        "execute_entrypoint=",
        "cache_policy=",
        "colour=red",
        "=1",
    ],
)
def test_wrong_settings_are_named(word: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_plugin_config(["sbatch_support=1", word])
    assert word.partition("=")[0][:20] in str(caught.value)
