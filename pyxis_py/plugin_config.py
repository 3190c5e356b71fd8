"""Settings of the SPANK plugin: the `key=value` words behind it in plugstack.conf.

Pure. Source: pyxis 0.24 config.c; `ours` in docs/compatibility.md marks what it lacks.
"""

from __future__ import annotations

from enroot_py import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple
else:
    from enroot_py import NamedTuple

WORDS_VARIABLE = "PYXIS_PLUGIN_OPTIONS"
"""Variable with settings as they stand behind the plugin in plugstack.conf, blanks between."""

SCOPES = ("global", "job")
CACHE_POLICIES = ("digest", "never")
_TRUE = ("1", "true", "yes", "y")
_FALSE = ("0", "false", "no", "n")


class PluginConfig(NamedTuple):
    """How the site runs containers.

    Attributes:
        runtime_path: absolute folder for per-user runtime data; its parent exists.
        execute_entrypoint: whether entrypoints run unless a flag says otherwise.
        container_scope: "global": named containers outlive their job; "job": they end with it.
        sbatch_support: whether sbatch and salloc take the flags.
        use_enroot_load: extract images straight into a container instead of writing one first.
        importer: absolute path of an external importer; "" for our own.
        use_squashfuse: start temporary containers straight from their image.
        image_store: absolute folder for finished images; "" for the user's cache.
        cache_policy: "digest": an image is imported once a node, user and digest; "never": always.
        python: absolute path of the interpreter that runs the helper; "" for the built-in one.
    """

    runtime_path: str = "/run/pyxis"
    execute_entrypoint: bool = False
    container_scope: str = "global"
    sbatch_support: bool = True
    use_enroot_load: bool = False
    importer: str = ""
    use_squashfuse: bool = True
    image_store: str = ""
    cache_policy: str = "digest"
    python: str = ""


_PATHS = ("runtime_path", "importer", "image_store", "python")
_WORDS = {"container_scope": SCOPES, "cache_policy": CACHE_POLICIES}


def parse_plugin_config(words: Iterable[str]) -> PluginConfig:
    """Parse the words behind the plugin's name.

    Raises:
        SettingsError: naming the word, if its key is unknown or its value is not allowed.
    """
    values: dict[str, object] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in PluginConfig._fields:
            raise SettingsError(
                f"Unknown plugin setting {word!r}",
                hint="expected one of " + ", ".join(PluginConfig._fields),
            )
        values[key] = _value(key, text)
    return PluginConfig(**values)  # type: ignore[arg-type]


def _value(key: str, text: str) -> object:
    if key in _WORDS:
        if text not in _WORDS[key]:
            raise SettingsError(
                f"Plugin setting {key}: invalid value {text!r}",
                hint="expected one of " + ", ".join(_WORDS[key]),
            )
        return text
    if key in _PATHS:
        if len(text) >= 4096 or (text and not text.startswith("/")):
            raise SettingsError(f"Plugin setting {key}: not an absolute path: {text!r}")
        return text
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise SettingsError(
        f"Plugin setting {key}: invalid value {text!r}",
        hint="expected yes, no, true, false, 1 or 0",
    )
