"""The text in a file's bytes: its encoding, told by the first bytes, and its lines, without a second copy."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper

MARKS = {
    b"\xef\xbb\xbf": ("utf-8-sig", "UTF-8 with a byte order mark"),
    b"\xff\xfe\x00\x00": ("utf-32", "UTF-32"),
    b"\x00\x00\xfe\xff": ("utf-32", "UTF-32"),
    b"\xff\xfe": ("utf-16", "UTF-16"),
    b"\xfe\xff": ("utf-16", "UTF-16"),
}


def encoding(raw: bytes) -> tuple[str, str | None]:
    """Return the codec of a text, and its name for the user if it is not plain UTF-8."""
    for mark, known in MARKS.items():
        if raw.startswith(mark):
            return known
    # A header of ASCII letters in UTF-16 has a zero in every other byte.
    if b"\x00" in raw[:2]:
        return ("utf-16-be" if raw[:1] == b"\x00" else "utf-16-le"), "UTF-16 without a byte order mark"
    return "utf-8", None


def lines(raw: bytes, newline: str) -> TextIOWrapper:
    """Return the text as a stream of lines; bytes that are no text are kept, and fail in the cell that has them."""
    codec = encoding(raw)[0]
    errors = "surrogateescape" if codec.startswith("utf-8") else "replace"
    return TextIOWrapper(BytesIO(raw), encoding=codec, errors=errors, newline=newline)
