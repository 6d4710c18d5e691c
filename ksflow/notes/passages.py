"""Cuts a file into passages that a source can name: pages and sections, headings, lines.

Not covered: finding files, choosing passages, reading pictures (a scanned page has no text here).
"""

import io
import logging
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ksflow.errors import ConfigError, StageError, stage_boundary
from ksflow.records import Passage

if TYPE_CHECKING:
    from bs4.element import PageElement
    from pypdf import PdfReader

LONGEST = 6_000  # characters of a passage; longer ones are cut at blank lines, then at lines, then anywhere
_MARKDOWN = {".md", ".markdown", ".mdx"}
_WEB = {".html", ".htm", ".xhtml"}
_FURNITURE = ("script", "style", "nav", "footer", "aside", "noscript", "template", "svg", "form", "button", "iframe")
_BLOCKS = ("p", "div", "section", "article", "li", "tr", "pre", "table", "ul", "ol", "dl", "dt", "dd", "blockquote")
_ENDS = {**dict.fromkeys((*_BLOCKS, "br"), "\n"), "td": "  ", "th": "  "}  # text between an element and the next
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def split_passages(name: str, data: bytes) -> tuple[Passage, ...]:
    """Return the passages of a file, each with a unique place. Raises ConfigError, which names file and remedy."""
    ending = PurePath(name).suffix.lower()
    if ending == ".pdf" or data.startswith(b"%PDF-"):
        uncut = list(_pdf(name, data))
    elif b"\0" in data[:8192]:
        raise ConfigError(
            f"{name} is a binary file; digest reads PDF, Markdown, HTML, text and source code (if it is text in "
            "UTF-16, re-encode it: iconv -f UTF-16 -t UTF-8)"
        )
    else:
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        read = _markdown if ending in _MARKDOWN else _html if ending in _WEB else _lines
        uncut = list(read(text))
    seen: Counter[str] = Counter()
    passages = []
    for passage in (part for whole in uncut for part in _bounded(whole)):
        seen[passage.place] += 1
        again = f" ({seen[passage.place]})" if seen[passage.place] > 1 else ""  # unique places
        passages.append(Passage(f"{passage.place}{again}".strip(), passage.text) if again else passage)
    return tuple(passages)


def _bounded(passage: Passage) -> Iterator[Passage]:
    text = passage.text.strip("\n")
    while len(text) > LONGEST:
        places = (text.rfind(mark, LONGEST // 2, LONGEST) for mark in ("\n\n", "\n", " "))
        at = next((place for place in places if place > 0), LONGEST)
        yield Passage(passage.place, text[:at])
        text = text[at:].strip("\n")
    if text.strip():
        yield Passage(passage.place, text)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:120]


def _pdf(name: str, data: bytes) -> Iterator[Passage]:
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings name no file; errors are raised
    try:
        with stage_boundary("pypdf"):  # a broken file can make it raise anything
            reader = PdfReader(io.BytesIO(data))
            if reader.is_encrypted and not reader.decrypt(""):
                raise ConfigError(f"{name} is encrypted; take its password off first (qpdf --decrypt)")
            headings = _outline(reader)
            pages = [page.extract_text() for page in reader.pages]
    except StageError as error:
        why = _one_line(error.reason)
        raise ConfigError(f"{name} cannot be read as PDF ({why}); print it to a new PDF, or save it as text") from error
    if not any(text.strip() for text in pages):
        raise ConfigError(f"{name} has no text, only pictures of pages; run OCR on it first (ocrmypdf)")
    current = ""
    for number, text in enumerate(pages, 1):
        begun = headings.get(number, [current])
        heading, current = begun[0], begun[-1]
        yield Passage(f"page {number}, {heading}" if heading else f"page {number}", text)


def _outline(reader: "PdfReader") -> dict[int, list[str]]:
    headings: dict[int, list[str]] = {}
    pending: list[Any] = list(reader.outline)
    while pending:
        item = pending.pop(0)
        if isinstance(item, list):
            pending = [*item, *pending]
            continue
        page = reader.get_destination_page_number(item)
        if page is not None and page >= 0 and item.title:
            headings.setdefault(page + 1, []).append(_one_line(str(item.title)))
    return headings


def _markdown(text: str) -> Iterator[Passage]:
    """Yield a passage for each heading, under the path of those above it."""
    from markdown_it import MarkdownIt

    text = _FRONT_MATTER.sub(lambda front: "\n" * front[0].count("\n"), text)
    lines = text.split("\n")
    tokens = MarkdownIt().parse(text)
    starts = [(0, 0, "")]
    for token, inline in pairwise(tokens):
        if token.type == "heading_open" and token.map and token.level == 0:
            starts.append((token.map[0], int(token.tag[1]), _one_line(inline.content)))
    path: list[tuple[int, str]] = []
    for (start, level, title), (end, *_) in pairwise([*starts, (len(lines), 0, "")]):
        if title:
            path = [*(above for above in path if above[0] < level), (level, title)]
        yield Passage(" > ".join(name for _, name in path), "\n".join(lines[start:end]))


def _html(text: str) -> Iterator[Passage]:
    """Yield a passage for each heading, under the path of those above it, without menus and scripts."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(text, "html.parser")
    before, *rest = re.split(r"\0(\d)([^\0]*)\0", "".join(_marked(soup.find("main") or soup.body or soup)))
    yield Passage("", _tidy(before))
    path: list[tuple[int, str]] = []
    for level, title, below in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        path = [*(above for above in path if above[0] < int(level)), (int(level), title)]
        yield Passage(" > ".join(name for _, name in path), _tidy(f"{title}\n{below}"))


def _marked(root: "PageElement") -> Iterator[str]:
    """Yield the text below an element, with a heading as `<NUL><level><title><NUL>`, without recursion."""
    from bs4.element import PreformattedString, Tag

    pending: list[Any] = [root]
    verbatim = 0
    while pending:
        node = pending.pop()
        if isinstance(node, Tag):
            if node.name in _HEADINGS:
                for tag in node.find_all(_FURNITURE):
                    tag.decompose()
                yield f"\0{node.name[1]}{_one_line(node.get_text().replace(chr(0), ''))}\0"
            elif node.name not in _FURNITURE:
                verbatim += node.name == "pre"
                pending += [_End(node.name), *reversed(node.contents)]
        elif isinstance(node, _End):
            verbatim -= node == "pre"
            yield _ENDS.get(node, "")
        elif not isinstance(node, PreformattedString):  # comments, declarations
            plain = node.replace("\0", "")
            yield plain if verbatim else re.sub(r"\s+", " ", plain)


class _End(str):
    """The name of an element that ends here."""


def _tidy(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def _lines(text: str) -> Iterator[Passage]:
    """Yield `lines 40-90`: cut where a line without indent follows a blank one, else at blank lines, else anywhere."""
    lines = text.removesuffix("\n").split("\n") if text else []
    start = 0
    while start < len(lines):
        end = _end(lines, start)
        yield Passage(f"lines {start + 1}-{end}", "\n".join(lines[start:end]))
        start = end


def _end(lines: list[str], start: int) -> int:
    size, blank, outer = 0, 0, 0
    for at in range(start, len(lines)):
        if at > start and not lines[at - 1].strip() and lines[at].strip():
            blank = at
            outer = at if not lines[at][0].isspace() else outer
        size += len(lines[at]) + 1
        if size > LONGEST and at > start:
            return outer or blank or at
    return len(lines)
