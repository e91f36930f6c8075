import hashlib
import threading
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from specsim.files.yaml_file import read_yaml, shipped
from specsim.workload.fetch import fetch
from tests.made import refusal

BODY = bytes(i * i % 251 for i in range(300_000))


class Home(BaseHTTPRequestHandler):
    """Serves BODY at /file.csv; `server.ranges`, `server.cut_after` and `server.lie` say how well."""

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        if self.path != "/file.csv":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        if start >= len(BODY):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(BODY) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start + self.server.lie}-{len(BODY) - 1}/{len(BODY)}")
        self.end_headers()
        self.wfile.write(BODY[start : self.server.cut_after])

    def log_message(self, *args):
        pass


@pytest.fixture
def home(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = HTTPServer(("127.0.0.1", 0), Home)
    server.ranges, server.cut_after, server.lie, server.asked = True, None, 0, []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def entry(home, path="/file.csv", sha256=None):
    published = read_yaml(shipped("conf") / "trace" / "azure_code.yaml")
    url = f"http://127.0.0.1:{home.server_port}{path}"
    return published | {"file": "file.csv", "sha256": sha256 or hashlib.sha256(BODY).hexdigest(), "url": url}


def refused(values, folder):
    return refusal(fetch, "made", values, folder, progress=False)


def test_a_file_is_downloaded_checked_and_not_downloaded_again(home, tmp_path):
    folder = tmp_path / "new" / "folder"
    assert fetch("made", entry(home), folder) == (folder / "file.csv",)
    assert (folder / "file.csv").read_bytes() == BODY
    assert ([file.name for file in folder.iterdir()], home.asked) == (["file.csv"], [None])
    fetch("made", entry(home), folder)
    assert home.asked == [None]


def test_a_cut_connection_keeps_its_part_and_the_next_run_resumes(home, tmp_path):
    home.cut_after = 100_000
    message = refused(entry(home), tmp_path)
    assert message.endswith("connection cut after 100000 of 300000 bytes; kept, run again to resume")
    assert (tmp_path / "file.csv.part").stat().st_size == 100_000
    home.cut_after = None
    fetch("made", entry(home), tmp_path, progress=False)
    assert (home.asked, (tmp_path / "file.csv").read_bytes()) == ([None, "bytes=100000-"], BODY)
    assert not (tmp_path / "file.csv.part").exists()


def test_a_server_without_ranges_begins_again_and_one_that_resumes_elsewhere_is_not_believed(home, tmp_path):
    (tmp_path / "file.csv.part").write_bytes(BODY[:1000])
    home.lie = 5
    assert "resumed at another place" in refused(entry(home), tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file.csv.part").write_bytes(BODY[:1000])
    home.ranges = False
    fetch("made", entry(home), tmp_path, progress=False)
    assert (home.asked, (tmp_path / "file.csv").read_bytes()) == (["bytes=1000-"] * 2, BODY)


@pytest.mark.parametrize("left", [b"", b"x" * 1000, b"x" * len(BODY)])
def test_a_wrong_checksum_removes_the_part_and_leaves_no_file(home, tmp_path, left):
    (tmp_path / "file.csv.part").write_bytes(left)
    values = entry(home, sha256="0" * 64) if not left else entry(home)
    assert "its sha256 is not" in refused(values, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_had_or_written_is_one_line(home, tmp_path):
    assert "the server answers 404" in refused(entry(home, "/none"), tmp_path)
    assert "cannot be reached" in refused(entry(home) | {"url": "http://127.0.0.1:1/file.csv"}, tmp_path)
    local = refused(entry(home) | {"url": "file:///etc/hosts"}, tmp_path)
    assert "expected an address with http:// or https://" in local
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").write_text("")
    assert "cannot be written" in refused(entry(home), tmp_path / "taken" / "below")


def test_every_point_of_a_figure_is_fetched(home, tmp_path):
    one = entry(home)
    values = read_yaml(shipped("conf") / "trace" / "adaserve_fig8.yaml") | {"url": one["url"].removesuffix("file.csv")}
    values["points"] = [values["points"][0] | {"file": "file.csv", "sha256": one["sha256"]}]
    values.pop("defaults", None)
    assert fetch("made", values, tmp_path, progress=False) == (tmp_path / "file.csv",)


def test_a_server_that_falls_silent_keeps_the_part(home, tmp_path, monkeypatch):
    read, heard = HTTPResponse.read, []

    def silent(answer, *_):
        if heard:
            raise TimeoutError
        heard.append(read(answer, 5000))
        return heard[0]

    monkeypatch.setattr(HTTPResponse, "read", silent)
    assert "connection cut after 5000 bytes (TimeoutError); kept" in refused(entry(home), tmp_path)
    assert (tmp_path / "file.csv.part").stat().st_size == 5000
