"""Download a published trace from its source into the user cache: resumed, checked, renamed at the end."""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError
from specsim.files.kept import user_cache
from specsim.workload.entry import Entry, Published
from specsim.workload.load import trace_recipe
from specsim.workload.published import PublishedTrace
from specsim.workload.readers import content, sha256

TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 16


def fetch(name: str, entry: Entry, destination: Path | None = None, progress: bool = True) -> tuple[Path, ...]:
    """Download the files of the trace ``name`` and return their paths; a file already in the cache is kept.

    Parameters
    ----------
    name : of the trace, for messages
    entry : its composed ``conf/trace/NAME.yaml``
    destination : folder; by default the user cache
    progress : show a bar if standard error is a terminal

    Raises
    ------
    SpecsimError
        When the trace has no source, a file of another content is in its place, the network or server fails (the part
        stays for resuming), or the SHA-256 is wrong (the part is removed).
    """
    reader = trace_recipe(entry).reader
    if not isinstance(reader, PublishedTrace):
        raise SpecsimError(f"trace {name!r} is not published anywhere: nothing to fetch")
    folder = user_cache() if destination is None else destination
    files = []
    for item in reader.published():
        if not item.url.startswith(("https://", "http://")):
            raise SpecsimError(f"trace.url={item.url!r}: expected an address with http:// or https://")
        target = folder / item.file
        if not _intact(target, item.sha256):
            _check_free(target)
            _download(item, target, progress)
        files.append(target)
    return tuple(files)


def _intact(file: Path, checksum: str) -> bool:
    try:
        return file.is_file() and sha256(content(file)) == checksum
    except SpecsimError:
        return False


def _check_free(target: Path) -> None:
    if os.path.lexists(target):
        raise SpecsimError(f"{target}: is there, with another sha256; nothing is replaced: expected it moved away")


def _download(item: Published, target: Path, progress: bool) -> None:
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer(item.url, part, progress)
        if not _intact(part, item.sha256):
            part.unlink()
            raise SpecsimError(f"{item.url}: its sha256 is not {item.sha256}; removed, try again")
        _check_free(target)
        part.replace(target)
    except OSError as error:
        raise SpecsimError(f"{error.filename or target}: cannot be written ({error.strerror})") from None


def _transfer(url: str, part: Path, progress: bool) -> None:
    """Append what is missing to ``part``; if the server has no ranges, begin again."""
    from tqdm import tqdm

    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    with _opened(urllib.request.Request(url, headers=headers), part) as answer:
        if answer is None:
            return
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink()
            raise SpecsimError(f"{url}: the server resumed at another place; removed, try again")
        have = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        hidden = None if progress else True  # None shows a bar only on a terminal.
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=part.stem, disable=hidden) as bar,
        ):
            while chunk := answer.read(CHUNK_BYTES):
                file.write(chunk)
                bar.update(len(chunk))
                have += len(chunk)
    if total is not None and have < total:
        raise SpecsimError(f"{url}: connection cut after {have} of {total} bytes; kept, run again to resume")


@contextmanager
def _opened(request: urllib.request.Request, part: Path) -> Iterator[Any]:
    """Open an address; None if the server has no more bytes than the part (the checksum decides)."""
    url = request.full_url
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise SpecsimError(f"{url}: the server answers {error.code} {error.reason}") from None
        yield None
    except urllib.error.URLError as error:
        raise SpecsimError(f"{url}: cannot be reached ({error.reason})") from None
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        size = part.stat().st_size if part.exists() else 0
        raise SpecsimError(
            f"{url}: connection cut after {size} bytes ({type(error).__name__}); kept, run again to resume"
        ) from None
