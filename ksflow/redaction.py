"""What must be neither shown nor kept, struck out in every spelling: the one function of every border.

A border is where words leave the process: the terminal, a log, the transcript, git, a tracker, a file for others.
Known are the values of variables of the environment that are secrets by their names, the passwords in its URLs, and
what `learn` was told. What was never known here (a key that a model invents) is not recognised.
"""

import base64
import html
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote

MARK = "[secret]"
LETTERS = 8  # the least length of a secret: a shorter "key" (`local`, `none`) is a word
NAMED = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL", re.IGNORECASE)
"""In the names of environment variables whose values are secrets."""
_USERINFO = re.compile(r"([A-Za-z][\w+.-]*)://([^\s/?#\"'<>\\]+)@")
_PROXY = re.compile(r"()^([^\s/?#@]+:[^\s/?#]+)@", re.MULTILINE)
"""The same where a proxy is given without a scheme."""
_SCHEME = re.compile(r"\w+\s+(\S+)")  # `Bearer KEY`, as headers have it
_learnt: set[str] = set()


def learn(secrets: Iterable[str]) -> None:
    """From now on these are secrets, as long as the process lives."""
    _learnt.update(secrets)


def redact(text: str) -> str:
    """`text` without the known secrets and without users and passwords in URLs, and as valid Unicode."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if "://" in text:
        text = _USERINFO.sub(lambda url: f"{url[1]}://{MARK}@" if _holds_secret(url) else url[0], text)
    known = _pattern(frozenset(_learnt), tuple(vars(os.environ)["_data"].items()))
    return known.sub(MARK, text) if known else text


def passwords(url: str) -> list[str]:
    """What stands for a password in a URL, or in each of a text."""
    found = [userinfo[2] for userinfo in _USERINFO.finditer(url) if _holds_secret(userinfo)]
    return [part.partition(":")[2] or part for part in found]


def _holds_secret(url: re.Match[str]) -> bool:
    return ":" in url[2] or (len(url[2]) >= LETTERS and not url[1].endswith("ssh"))


def _of_environment() -> Iterator[str]:
    for name, value in os.environ.items():
        if NAMED.search(name):
            yield value
        if "@" in value and "://" in value:
            yield from passwords(value)
        elif "@" in value and name.lower().endswith("_proxy"):
            yield from (found[2].partition(":")[2] for found in _PROXY.finditer(value))


@lru_cache(maxsize=64)
def _pattern(learnt: frozenset[str], environment: tuple[tuple[bytes, bytes], ...]) -> re.Pattern[str] | None:
    """What was learnt, and what is in the environment now, which is decoded and searched when it has changed."""
    spelled = {spelling for secret in learnt.union(_of_environment()) for spelling in _spellings(secret)}
    return re.compile("|".join(map(re.escape, sorted(spelled, key=len, reverse=True)))) if spelled else None


def _spellings(secret: str) -> Iterator[str]:
    """As it was read, without blanks and quotes around it, without the scheme before it; each escaped and encoded."""
    bare = secret.strip().strip("\"'")
    word = _SCHEME.fullmatch(bare)
    for plain in {secret, secret.strip(), bare, unquote(bare), word[1] if word else bare}:
        if len(plain.strip()) >= LETTERS:
            yield from (plain, repr(plain)[1:-1], html.escape(plain))
            for ascii_only in (True, False):
                escaped = json.dumps(plain, ensure_ascii=ascii_only)[1:-1]
                yield from (escaped, json.dumps(escaped, ensure_ascii=ascii_only)[1:-1])
            for encoded in (quote(plain), quote(plain, safe=""), quote_plus(plain)):
                yield from (encoded, re.sub("%..", lambda found: found[0].lower(), encoded))
            yield from _in_base64(plain.encode("utf-8", "replace"))


def _in_base64(secret: bytes) -> Iterator[str]:
    """As it is read in the Base64 of a longer text (`user:password` of Basic authorization), wherever it stands there.

    The letters at both ends that hold bits of its neighbours too are left out.
    """
    for before in range(3):
        begin, end = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        for alphabet in (base64.b64encode, base64.urlsafe_b64encode):
            yield alphabet(bytes(before) + secret).decode()[begin:end]
