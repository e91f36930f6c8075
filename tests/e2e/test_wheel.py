"""The wheel, built and installed outside the checkout, runs: conf and surrogates come from inside it."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(*command, cwd, **variables):
    environment = {key: value for key, value in os.environ.items() if key not in ("SPECSIM_DATA", "PYTHONPATH")}
    environment |= {"XDG_CACHE_HOME": str(cwd / "cache"), **variables}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(CHECKOUT), cwd=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Install the wheel alone; its dependencies are those of the running environment, seen through a .pth file.

    A folder named in a .pth has its own .pth files ignored, so the editable checkout stays out of sight.
    """
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(*pip, "install", "--no-deps", "--no-index", str(wheel), cwd=folder)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def test_the_wheel_holds_every_shipped_file_and_nothing_of_the_workshop(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    shipped = [path for top in ("conf", "traces") for path in (CHECKOUT / top).rglob("*") if path.is_file()]
    shipped = [path for path in shipped if "__pycache__" not in path.parts]
    assert len(shipped) > 50
    for path in shipped:
        assert f"specsim/_data/{path.relative_to(CHECKOUT)}" in inside
    tops = {name.split("/")[0] for name in inside}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"specsim", "profiler"}
    assert any(name.endswith("licenses/LICENSE") for name in inside)


def test_the_installed_command_runs_on_the_surrogate_inside_the_wheel(installed):
    command = str(installed / "env" / "bin" / "specsim")
    words = ("run", "+scheduler=continuous", "trace=azure_code", "requests=50")
    said = run(command, *words, "out=here", cwd=installed)
    assert "50 completed + 0 rejected = 50 arrived" in said
    provenance = json.loads((installed / "here" / "provenance.json").read_text())
    assert provenance["trace"]["origin"] == "surrogate"
    assert provenance["trace"]["file"] == "azure_code_surrogate.csv.gz"
    run(sys.executable, "-m", "specsim", *words, "out=checkout", cwd=installed)
    for name in ("metrics.json", "requests.parquet", "config.yaml"):
        assert (installed / "here" / name).read_bytes() == (installed / "checkout" / name).read_bytes()
