"""`$(NAME)` in commands, arguments and values, as the kubelet expands it.

Pure. Source: Kubernetes, third_party/forked/golang/expansion; `EnvVar.value` in the API reference.
"""

from __future__ import annotations

from collections.abc import Mapping


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)`; unknown names stay as they are, and `$$` stands for `$`."""
    parts: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        parts.append(text[at:dollar])
        after = text[dollar + 1 : dollar + 2]
        end = text.find(")", dollar + 2) if after == "(" else -1
        if after == "$":
            parts.append("$")
            at = dollar + 2
        elif end >= 0:
            name = text[dollar + 2 : end]
            parts.append(variables.get(name, text[dollar : end + 1]))
            at = end + 1
        else:
            # "$(" without an end, or a dollar before anything else, means nothing.
            parts.append(text[dollar : dollar + 2])
            at = dollar + 2
    return "".join(parts) + text[at:]
