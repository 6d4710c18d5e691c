"""Files of every kind become passages that a source can name, and words are found where a source says they stand."""

import os
from itertools import pairwise

import pytest
from fpdf import FPDF

from ksflow.errors import ConfigError
from ksflow.notes import documents, passages
from ksflow.notes.documents import locate
from ksflow.records import Document, Passage

KERNEL = """#include <cstdint>

static float fast_exp(float x) {
    // a polynomial of degree five

    return 1.0f + x;
}

extern "C" void custom_kernel(const float *a) {
    fast_exp(a[0]);
}
"""


def read(paths, notice=lambda text: None):
    """The documents at `paths`, as the digest command reads them."""
    return [document for file in documents.find(paths, notice) if (document := documents.load(file, notice))]


def places(document):
    return [passage.place for passage in document.passages]


def manual(path, pages=6):
    pdf = FPDF()
    pdf.set_font("Helvetica", size=11)
    for number in range(1, pages + 1):
        pdf.add_page()
        if number % 2 == 1:
            pdf.start_section(f"{number // 2 + 1} Chapter {number // 2 + 1}")
        pdf.multi_cell(0, 6, f"Fact {number}: the unit of page {number} needs {number * 3} wait states.")
    pdf.output(str(path))
    return path


def test_a_pdfs_places_are_pages_and_the_headings_of_its_outline(tmp_path):
    (document,) = read([manual(tmp_path / "isa.pdf")])
    assert places(document)[:3] == ["page 1, 1 Chapter 1", "page 2, 1 Chapter 1", "page 3, 2 Chapter 2"]
    assert locate([document], "isa.pdf, page 2, 1 Chapter 1", "page 2 needs 6 wait states").place == places(document)[1]
    assert locate([document], "isa.pdf, page 2", "needs 6 wait states")
    assert locate([document], "isa.pdf, page 3", "needs 6 wait states") is None
    assert locate([document], "isa.pdf", "needs 18 wait states").place.startswith("page 6")


def test_markdowns_places_are_paths_of_headings(tmp_path):
    (tmp_path / "post.md").write_text(
        "---\ntitle: x\n---\nIntro.\n\n# Waves\n\nText of waves.\n\n## Lanes\n\n```\n# not a heading\n```\n\n"
        "Setext\n------\n\nBelow it.\n\n# Waves\n\nAgain.\n"
    )
    (document,) = read([tmp_path / "post.md"])
    assert places(document) == ["", "Waves", "Waves > Lanes", "Waves > Setext", "Waves (2)"]
    assert "# not a heading" in document.passages[2].text
    assert "title: x" not in document.text


def test_html_loses_its_menus_and_keeps_its_code(tmp_path):
    (tmp_path / "page.html").write_text(
        "<html><head><style>p{}</style><title>t</title></head><body><nav>Menu</nav><h1>MFMA</h1><p>One\n wave <b>does"
        "</b> it.</p><h2>Hazards</h2><!-- hidden --><pre>s_nop 7\n  v_mfma</pre><table><tr><td>a</td><td>b</td></tr>"
        "<tr><td>c</td><td>d</td></tr></table><script>evil()</script><h1>Other</h1><ul><li>x</li><li>y</li></ul></body>"
    )
    (document,) = read([tmp_path / "page.html"])
    assert places(document) == ["MFMA", "MFMA > Hazards", "Other"]
    assert "One wave does it." in document.passages[0].text
    assert "s_nop 7\n  v_mfma" in document.passages[1].text
    assert not any(word in document.text for word in ("Menu", "evil", "hidden", "p{}"))
    assert document.passages[2].text.split() == ["Other", "x", "y"]


def test_code_is_cut_between_functions(tmp_path, monkeypatch):
    monkeypatch.setattr(passages, "LONGEST", 130)
    (tmp_path / "k.cpp").write_text(KERNEL)
    (document,) = read([tmp_path / "k.cpp"])
    assert places(document) == ["lines 1-8", "lines 9-11"]
    assert locate([document], "k.cpp, lines 9-11", "fast_exp(a[0]);")


def test_every_line_of_a_text_is_in_one_passage(tmp_path):
    text = "\n".join(f"{'  ' if n % 7 else ''}line {n} {'x' * (n % 90)}" if n % 11 else "" for n in range(1, 2001))
    (tmp_path / "long.txt").write_text(text)
    (document,) = read([tmp_path / "long.txt"])
    assert [line for passage in document.passages for line in passage.text.split("\n") if line] == [
        line for line in text.split("\n") if line
    ]
    assert max(len(passage.text) for passage in document.passages) <= passages.LONGEST
    ends = [tuple(map(int, place.split()[1].split("-"))) for place in places(document)]
    assert all(after[0] == before[1] + 1 for before, after in pairwise(ends))


def test_one_endless_line_becomes_passages_with_places_of_their_own(tmp_path):
    (tmp_path / "min.js").write_text("word " * 3000)
    (document,) = read([tmp_path / "min.js"])
    assert places(document)[:2] == ["lines 1-1", "lines 1-1 (2)"]
    assert max(len(passage.text) for passage in document.passages) <= passages.LONGEST


def test_a_folder_is_walked_in_order_and_says_what_it_left_out(tmp_path):
    root = tmp_path / "flash"
    for name in ("src/b.cu", "src/a.hip", "README.md", ".git/config", "build/made.cu", "data.csv"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("int x;\n")
    (root / "lib.o").write_bytes(b"\0\1\2")
    (root / "big.txt").write_text("x\n" * 3_000_000)
    (root / "bad.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    (root / "out.cu").symlink_to("/etc/hostname")
    os.mkfifo(root / "pipe.cu")
    said = []
    found = read([root, root / "src" / "a.hip"], said.append)
    assert [document.source for document in found] == ["flash/README.md", "flash/src/a.hip", "flash/src/b.cu"]
    told = "\n".join(said)
    assert "1 binary (flash/lib.o)" in told
    assert "1 over 4 MB (flash/big.txt)" in told
    assert "flash/bad.pdf cannot be read as PDF" in told
    assert "flash/data.csv" in told


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("gone.md", None, "no file or folder"),
        ("tool.bin", b"\x7fELF\0\0", "tool.bin is a binary file"),
        ("bare.txt", "no mark".encode("utf-16-le"), "re-encode it: iconv"),
        ("broken.pdf", b"%PDF-1.4\n%%EOF", "broken.pdf cannot be read as PDF"),
    ],
)
def test_a_bad_file_is_named_in_one_line(tmp_path, name, data, said):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=said) as caught:
        read([tmp_path / name])
    assert "\n" not in str(caught.value)


def test_whatever_a_broken_pdf_does_to_its_reader_is_said(tmp_path, monkeypatch):
    manual(tmp_path / "isa.pdf", pages=2)
    (tmp_path / "good.md").write_text("# A\n\nSome words.\n")

    def broken(reader):
        raise AttributeError("'NoneType' object has no attribute 'idnum'")

    monkeypatch.setattr("pypdf.PdfReader.get_destination_page_number", lambda self, item: broken(item))
    said = []
    assert [document.source for document in read([tmp_path], said.append)] == [f"{tmp_path.name}/good.md"]
    assert "isa.pdf cannot be read as PDF" in said[0]


def test_paragraphs_that_never_end_are_read_however_deep_they_nest(tmp_path):
    rows = "".join(f"<div><p>row {number} of the table" for number in range(20_000))
    (tmp_path / "isa.html").write_text(f"<h1>Table</h1>{rows}<pre>a\n  b</pre>")
    (document,) = read([tmp_path / "isa.html"])
    assert locate([document], "isa.html", "row 19999 of the table")
    assert "a\n  b" in document.passages[-1].text


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    (tmp_path / "isa.txt").write_bytes("A tile has 16 rows of 64 bytes.\r\n".encode("utf-8-sig"))
    (found,) = read([tmp_path])
    assert [passage.text for passage in found.passages] == ["A tile has 16 rows of 64 bytes."]


def test_nobody_waits_at_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.md")
    with pytest.raises(ConfigError, match="is a pipe or a device; save what it gives as a file"):
        read([tmp_path / "pipe.md"])


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path):
    with (tmp_path / "dump.txt").open("wb") as file:
        file.truncate(600 << 20)
    with pytest.raises(ConfigError, match="is over 512 MB; cut it into parts"):
        read([tmp_path / "dump.txt"])


def test_scans_and_locked_pdfs_name_the_remedy(tmp_path):
    scan = FPDF()
    scan.add_page()
    scan.output(str(tmp_path / "scan.pdf"))
    with pytest.raises(ConfigError, match="run OCR"):
        read([tmp_path / "scan.pdf"])


def test_two_documents_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        os.makedirs(tmp_path / folder)
        (tmp_path / folder / "isa.md").write_text("x")
    with pytest.raises(ConfigError, match=r"two documents are named isa\.md"):
        read([tmp_path / "a" / "isa.md", tmp_path / "b" / "isa.md"])


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("needs  five\nwait states", True),
        ("instruction is", True),
        ("a read-write lock", True),
        ('the "fast" path - 1', True),
        ("the first", True),
        ("Needs five", False),
        ("needs six", False),
        ("ready", False),
    ],
)
def test_quotes_are_found_whatever_the_line_breaks(quote, found):
    text = "It needs\nfive wait states. The in-\nstruction is a read-\nwrite lock, "
    text += "the \u201cfast\u201d path \u2013 1, the \ufb01rst."
    assert (locate([Document("d, v2.md", (Passage("A > B", text),))], "d, v2.md, A > B", quote) is not None) == found
