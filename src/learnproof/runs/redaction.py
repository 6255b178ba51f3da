"""Keeps secrets out of what is shown and written down: passwords in URLs, tokens and keys among arguments.

Text in, the same text with *** in place of what looks like a secret out. It errs on the side of hiding: the exact
settings of a run are in its config.toml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"(?i)(token(?!s|i)|secret|passw(?:or)?d|passphrase|credential|(?:api|access|private|account)[-_.]?key"
    r"|(?:^|[-_.])(?:auth|authorization|pwd|pat|sas|key)(?:$|[-_.]))"
)
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?P<sign>=)(?P<value>[^\s&;,]+)")
_USER_IN_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s?#]*@")
_QUERY_OF_URL = re.compile(r"(?P<place>[A-Za-z][A-Za-z0-9+.-]*://[^\s?#'\"]*)\?[^\s'\"]*")
_KNOWN_TOKEN = re.compile(r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA)[A-Za-z0-9_-]{8,}")


def redact_text(text: str) -> str:
    """Without user and query in URLs, the value of NAME=value where the name says secret, and known tokens."""
    text = _USER_IN_URL.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _QUERY_OF_URL.sub(rf"\g<place>?{HIDDEN}", text)
    text = _ASSIGNMENT.sub(_hide_secret_value, text)
    return _KNOWN_TOKEN.sub(HIDDEN, text)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """A command line; the argument after an option whose name says secret is hidden too."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        is_option = argument.startswith("-")
        shown.append(HIDDEN if hide_next and not argument.startswith("--") else redact_text(argument))
        hide_next = is_option and "=" not in argument and bool(_SECRET_NAME.search(argument.lstrip("-")))
    return shown


def redact_tree(value: Any) -> Any:
    """Settings as nested dicts and lists: each text redacted, and each value whose key says secret."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {
            k: HIDDEN if isinstance(v, str) and _SECRET_NAME.search(str(k)) else redact_tree(v)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact_tree(item) for item in value]
    return value


def redact_place(text: str, url: str) -> str:
    """A message about `url`: redacted, and without any piece of its user, password or query standing alone."""
    pieces: set[str] = set()
    if "://" in url:
        authority = url.split("://", 1)[1].split("/", 1)[0]
        if "@" in authority:
            pieces.update(authority.rsplit("@", 1)[0].split(":"))
        pieces.update(part.split("=", 1)[-1] for part in url.partition("?")[2].split("&"))
    text = redact_text(text)
    for piece in sorted((p for p in pieces | {unquote(p) for p in pieces} if len(p) >= 3), key=len, reverse=True):
        text = text.replace(piece, HIDDEN)
    return text


def _hide_secret_value(found: re.Match[str]) -> str:
    if _SECRET_NAME.search(found["name"].lstrip("-")):
        return f"{found['name']}={HIDDEN}"
    return found[0]
