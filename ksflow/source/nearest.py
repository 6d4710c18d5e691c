"""Where in a file some lines were probably meant: told to who quoted them wrongly, never used to place an edit."""

from difflib import SequenceMatcher, get_close_matches

_CONTEXT = 10  # lines of the file that are shown
_WIDTH = 160  # characters of a line that are looked at and shown
_QUOTED = 200  # quoted lines that are looked at


def nearest(quoted: list[str], lines: list[str]) -> str:
    """The lines of a file that are most like the quoted ones, and the first difference."""
    wanted, held = ([line.strip()[:_WIDTH] for line in text] for text in (quoted[:_QUOTED], lines))
    alike = SequenceMatcher(lambda line: not line, held, wanted).find_longest_match()
    if alike.size:
        start = alike.a - alike.b
    else:  # the line that is most like the longest quoted one
        longest = max(wanted, key=len)
        if not (close := get_close_matches(longest, held, n=1, cutoff=0.3)):
            return "Nothing in it is like them."
        start = held.index(close[0]) - wanted.index(longest)
    difference = ""
    for number, line in enumerate(quoted, start=1):
        place = start + number
        if not 0 < place <= len(lines):
            difference = f"Quoted line {number} is beyond the file's end. "
        elif line != (here := lines[place - 1]):
            blanks = " (other blanks only)" if line.split() == here.split() else ""
            shown = f"{line[:_WIDTH]!r}, line {place} of the file is {here[:_WIDTH]!r}{blanks}"
            difference = f"Quoted line {number} is {shown}. "
        if difference:
            break
    numbered = list(enumerate(lines, start=1))[max(0, start) : start + min(len(quoted), _CONTEXT)]
    text = "\n".join(f"{number:5}| {line[:_WIDTH]}" for number, line in numbered)
    return f"{difference}The nearest lines of the file are:\n{text}"
