"""What tests share: an engine on the tiny Wan card, requests that run in milliseconds, a watch over what components
compute, tiny distributions, and environments in which wheels are installed.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from fv_core.request import OutputSpec, Request

if TYPE_CHECKING:
    from fv_core import Engine

MODEL = "wan21/micro"

settings.register_profile("fixed", derandomize=True, deadline=None)  # the same examples in every run
settings.load_profile("fixed")
# A plugin of fv's own that does not work must fail every test.
os.environ.setdefault("FV_STRICT_PLUGINS", "1")


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A new engine on the CPU, one thread, on which bits depend; whatever may share a forward does."""
    import torch  # tests of what loads no torch share this file

    from fv_core import Engine
    from fv_core.runtime.gain import Always

    torch.set_num_threads(1)
    with Engine([MODEL], device="cpu", gain=Always()) as made:
        yield made


@pytest.fixture
def ask() -> Callable[..., Request]:
    """A small request; keywords replace its fields. Latent and video are kept for comparison."""

    def request(**fields: Any) -> Request:
        small: dict[str, Any] = {
            "prompt": "a red circle", "seed": 1, "size": (16, 16), "frames": 5, "steps": 2, "guidance": 3.0,
            "output": OutputSpec(keep=("latent", "video")),
        }  # fmt: skip
        return Request(**{**small, **fields})

    return request


@dataclass(frozen=True, kw_only=True)
class Forward:
    """One forward: how many calls shared it, and their rows."""

    component: str
    op: str
    rows: list[dict[str, Any]]


@dataclass(kw_only=True)
class Watch:
    """Records every forward of an engine's components; `before` and `after` may act in the middle of it."""

    forwards: list[Forward] = field(default_factory=list)
    before: Callable[[Forward], None] = lambda forward: None
    after: Callable[[Forward, list[Any]], list[Any]] = lambda forward, outputs: outputs

    def of(self, component: str) -> list[Forward]:
        return [forward for forward in self.forwards if forward.component == component]

    def sizes(self, component: str) -> list[int]:
        """How many calls shared each forward."""
        return [len(forward.rows) for forward in self.of(component)]

    def put_on(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        instance = engine.instance(MODEL)
        for name in instance.card.components:
            component = instance.component(name)
            monkeypatch.setattr(component, "forward_batch", self._wrapped(name, component.forward_batch))

    def _wrapped(self, name: str, forward_batch: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def watched(op: str, calls: Sequence[Any]) -> list[Any]:
            forward = Forward(component=name, op=op, rows=[dict(call.rows) for call in calls])
            self.forwards.append(forward)
            self.before(forward)
            return self.after(forward, forward_batch(op, calls))

        return watched


@pytest.fixture
def watch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A watch over the components of `engine`, all loaded."""
    made = Watch()
    made.put_on(engine, monkeypatch)
    return made


DISTS = Path(__file__).parent / "dists"
"""Tiny distributions, each broken in a way of its own, and a good one."""


def write_dist(source: Path, site: Path) -> None:
    """What an installer leaves in `site` of the project in `source`; of `stale_editable`, what is left of it."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {})
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {needed}" for needed in project["dependencies"]]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [
        f'Requires-Dist: {one}; extra == "{extra}"' for extra, needed in extras.items() for one in needed
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    points = project["entry-points"]["fv"].items()
    (info / "entry_points.txt").write_text(
        "[fv]\n" + "".join(f"{name} = {module}\n" for name, module in points)
    )
    if source.name == "stale_editable":
        gone = (site / "no-longer-here").as_uri()
        (info / "direct_url.json").write_text(f'{{"url": "{gone}", "dir_info": {{"editable": true}}}}')
        return
    for package in source.glob("fv_*"):
        shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture
def install_dists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Installs the named folders of `tests/dists`, all of them without names, where this process finds them."""
    from fv_core.plugins import default_registry

    site = tmp_path / "dists"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("FV_STRICT_PLUGINS", "0")

    def install(*names: str) -> Path:
        for name in names or sorted(path.parent.name for path in DISTS.glob("*/pyproject.toml")):
            write_dist(DISTS / name, site)
        importlib.invalidate_caches()
        default_registry.cache_clear()
        return site

    yield install
    for name in [name for name, module in sys.modules.items() if _lies_in(site, module)]:
        del sys.modules[name]
    monkeypatch.undo()
    default_registry.cache_clear()


def _lies_in(site: Path, module: object) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(str(site))


ROOT = Path(__file__).parents[1]
SCRIPT = (
    "#!{python}\nimport runpy, sys\nsys.argv[0] = '{name}'\nrunpy.run_module('{name}', run_name='__main__')\n"
)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A virtual environment of its own, to which the current one lends what is not fv's; there is no network."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def site(self) -> Path:
        (site,) = self.root.glob("lib/python*/site-packages")
        return site

    @property
    def variables(self) -> dict[str, str]:
        """What a process of this environment has in its own, and nothing that points back here."""
        ours = ("FV_", "HF_", "PIP_", "PYTHON", "XDG_", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        home = self.root / "home"
        told = {"HOME": str(home), "FV_HOME": str(home / "fv"), "HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"}
        pip = {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
        }  # pip's "0" means: do not isolate
        path = f"{self.root / 'bin'}{os.pathsep}{os.defpath}"
        return {**kept, **told, **pip, "PATH": path, "OMP_NUM_THREADS": "1"}

    def run(self, *command: object, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs one of its programs in the folder `cwd`; one that fails fails the test with what it said."""
        program, *arguments = map(str, command)
        found = shutil.which(program, path=self.variables["PATH"])
        assert found, f"{program} is not there"
        done = subprocess.run(
            [found, *arguments], cwd=cwd, env=self.variables, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
        return done


@pytest.fixture(scope="session")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of links to everything that is installed here, without fv's own distributions and editable installs."""
    folder = tmp_path_factory.mktemp("third-party")
    paths = sysconfig.get_paths()
    for place in dict.fromkeys((paths["purelib"], paths["platlib"])):
        for entry in Path(place).iterdir():
            if entry.suffix != ".pth" and not entry.name.startswith(("fv_", "__")):
                (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="session")
def make_installation(
    tmp_path_factory: pytest.TempPathFactory, third_party: Path
) -> Callable[..., Installation]:
    """Makes an environment with the given wheels in it, none by default."""

    def make(*wheels: Path) -> Installation:
        root = tmp_path_factory.mktemp("installation").resolve()
        venv.create(root, symlinks=True)
        made = Installation(root=root)
        (made.root / "home").mkdir()
        (made.site / "third-party.pth").write_text(f"{third_party}\n")
        for name in ("pip", "pytest"):
            script = root / "bin" / name
            script.write_text(SCRIPT.format(python=made.python, name=name))
            script.chmod(0o755)
        if wheels:
            made.run("pip", "install", "--quiet", *wheels, cwd=root)
        return made

    return make


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of core and of every plugin of this repository, built from it, core first."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = [ROOT, *sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))]
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, *map(str, sources)], cwd=folder, check=True
    )
    return sorted(folder.iterdir(), key=lambda wheel: not wheel.name.startswith("fv_core-"))
