"""Every block of the README and of the pages runs, in order, as a reader would run it who has only the text.

The two have an environment and a folder each; there is no network. Commands of the plugins' READMEs run in this
process. A comment above a block says what is special about it: `not run: WHY` (its lines of fv must parse all the same,
its Python must compile), `run with stand-ins: WHY` (a small model on the CPU in place of what no test machine has),
`exits with N: WHY` (its last command).
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from fv_core.cli.main import fv, run
from fv_core.plugins import PluginState
from fv_core.plugins.verdict import STATES

ROOT = Path(__file__).parents[1]
PAGES = (
    "docs/plugin-guide.md",
    "docs/model-author.md",
    "docs/loop-author.md",
    "docs/many-requests.md",
    "docs/async.md",
)
DOCUMENTS = ("README.md", *PAGES)
PLUGIN_READMES = sorted(ROOT.glob("plugins/*/README.md"))
MARKED = {
    "README.md": {"not run": 2, "run with stand-ins": 1, "exits with": 0},
    "docs/plugin-guide.md": {"not run": 1, "run with stand-ins": 0, "exits with": 1},
    "docs/model-author.md": {"not run": 0, "run with stand-ins": 0, "exits with": 0},
    "docs/loop-author.md": {"not run": 0, "run with stand-ins": 0, "exits with": 0},
    "docs/many-requests.md": {"not run": 0, "run with stand-ins": 0, "exits with": 1},
    "docs/async.md": {"not run": 0, "run with stand-ins": 0, "exits with": 0},
}
"""How many blocks bear which mark."""
STAND_INS = {"wan21/t2v-1.3b": "wan21/micro", 'device="cuda"': 'device="cpu"'}
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*) -->\n)?^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a document; `mark` is the comment above it."""

    language: str
    text: str
    mark: str

    @property
    def run(self) -> bool:
        return not self.mark.startswith("not run: ")

    @property
    def status(self) -> int:
        """What its last command exits with."""
        found = re.match(r"exits with (\d+): ", self.mark)
        return int(found[1]) if found else 0

    @property
    def file(self) -> str | None:
        """The file that it is."""
        found = re.match(r"# ([\w./-]+\.\w+)\n", self.text)
        return found[1] if found else None

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """The commands of a console block, and the lines that each is said to print."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, [line for line in shown if line]


def blocks(text: str) -> list[Block]:
    return [
        Block(**{name: value or "" for name, value in found.groupdict().items()})
        for found in BLOCK.finditer(text)
    ]


class Reader:
    """Does what a document says, block by block, in one folder after the other as the commands go."""

    def __init__(self, installation: Any, folder: Path) -> None:
        self._installation = installation
        self._cwd = folder
        self._note = installation.root / "cwd"

    def follow(self, text: str) -> None:
        for block in blocks(text):
            if not block.run:
                continue
            if block.mark.startswith("run with stand-ins: "):
                block = Block(language=block.language, text=stood_in(block.text), mark="")
            {"console": self._console, "bash": self._bash, "python": self._python, "toml": self._save}[
                block.language
            ](block)

    def _console(self, block: Block) -> None:
        commands = list(block.commands())
        for index, (command, shown) in enumerate(commands):
            told = self._shell(command, block.status if index + 1 == len(commands) else 0)
            assert not shown or is_shown(told, shown), f"{command}: not {shown} but\n{told}"

    def _bash(self, block: Block) -> None:
        self._shell(block.text, block.status)

    def _python(self, block: Block) -> None:
        if block.file:
            self._save(block)
            return
        script = self._installation.root / "block.py"
        script.write_text(block.text)
        self._installation.run("python", script, cwd=self._cwd)

    def _save(self, block: Block) -> None:
        assert block.file, f"a block of {block.language} that names no file"
        (self._cwd / block.file).write_text(block.text)

    def _shell(self, script: str, status: int) -> str:
        whole = f"set -euo pipefail\ntrap 'pwd > {self._note}' EXIT\n{script}\n"
        done = self._installation.run("bash", "-c", whole, cwd=self._cwd, check=False)
        told = f"{done.stdout}{done.stderr}"
        assert done.returncode == status, f"{script} exits with {done.returncode}:\n{told}"
        self._cwd = Path(self._note.read_text().strip())
        return str(done.stdout)


def is_shown(printed: str, shown: list[str]) -> bool:
    """Whether what was printed to stdout is what a document shows of it.

    "..." stands for any number of lines, or in a line for the rest of it. How wide columns are depends on their other
    rows, so runs of spaces count as one.
    """
    patterns = [re.escape(spaced(line)).replace(r"\.\.\.", ".*") for line in shown]
    whole = "".join("(?:.*\n)*" if pattern == ".*" else f"{pattern}\n" for pattern in patterns)
    return bool(re.fullmatch(whole, "".join(f"{spaced(line)}\n" for line in printed.splitlines())))


def spaced(line: str) -> str:
    return " ".join(line.split())


def stood_in(text: str) -> str:
    for original, stand_in in STAND_INS.items():
        assert original in text, f"{original} needs no stand-in"
        text = text.replace(original, stand_in)
    return text


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the repository, as a reader has one."""
    hidden = (ROOT / ".gitignore").read_text().split()
    kept = (
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "fv_core",
        "plugins",
        "docs",
        ".gitignore",
    )
    folder = tmp_path / "fv"
    folder.mkdir()
    ignore = shutil.ignore_patterns(*(name.strip("/") for name in hidden), "tests")
    for name in kept:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=None if name == "docs" else ignore)
        else:
            shutil.copyfile(source, folder / name)
    return folder


@pytest.fixture
def installed(make_installation: Callable[..., Any], wheels: list[Path]) -> Any:
    """An environment with core and the plugin that the README installs."""
    return make_installation(*(wheel for wheel in wheels if wheel.name.startswith(("fv_core-", "fv_wan21-"))))


def test_readme_runs(make_installation: Callable[..., Any], checkout: Path) -> None:
    Reader(make_installation(), checkout).follow((ROOT / "README.md").read_text())
    made = {path.name for path in checkout.glob("*.mp4")}
    assert {"circle.mp4", "ball.mp4", "again.mp4", "seven.mp4", "0.mp4", "1.mp4"} <= made
    assert (checkout / "again.mp4").read_bytes() == (checkout / "ball.mp4").read_bytes()


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, installed: Any, tmp_path: Path) -> None:
    Reader(installed, tmp_path).follow((ROOT / page).read_text())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```console\n$ fv modles\n```\n", "exits with 2"),
        ("```console\n$ fv --version\nfv 9.9.9\n```\n", "not ['fv 9.9.9'] but"),
        (
            "```console\n$ fv plugins --check\nwan21 fv-wan21 0.1.0 ready 3 cards\n...\n```\n",
            "3 cards', '...'] but",
        ),
        ("```console\n$ fv explain FV201 --json\n$ false\n```\n", "exits with 1"),
        ("```console\n$ pip install fv-not-here\n```\n", "exits with 1"),
        ("```bash\ncd /nowhere\ntrue\n```\n", "exits with 1"),
        ("```python\nimport fv_core as fv\nfv.generte\n```\n", "AttributeError"),
        (
            "<!-- exits with 1: it was said to fail -->\n```console\n$ fv plugins --check\n```\n",
            "exits with 0",
        ),
        ("<!-- run with stand-ins: for nothing -->\n```console\n$ fv models\n```\n", "needs no stand-in"),
        ("```toml\n[project]\n```\n", "names no file"),
    ],
)
def test_a_wrong_block_is_found(text: str, fault: str, spare: Any, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=re.escape(fault)):
        Reader(spare, tmp_path).follow(f"Some words.\n\n{text}")


@pytest.fixture(scope="module")
def spare(make_installation: Callable[..., Any], wheels: list[Path]) -> Any:
    """An environment with the wheels, for documents that change nothing in it."""
    return make_installation(*wheels)


def test_readme_opens_with_the_two_commands() -> None:
    (demo, _), (test, _) = blocks((ROOT / "README.md").read_text())[0].commands()
    assert (demo.split()[:2], test.split()[:2]) == (["make", "demo"], ["make", "test"])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_marks_are_counted_and_give_a_reason(document: str) -> None:
    text = (ROOT / document).read_text()
    marks = [block.mark for block in blocks(text) if block.mark]
    assert {kind: sum(mark.startswith(kind) for mark in marks) for kind in MARKED[document]} == MARKED[
        document
    ]
    assert all(re.fullmatch(r"(not run|run with stand-ins|exits with \d+): \w.{10,}", mark) for mark in marks)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(blocks(text))


def left_out() -> list[Block]:
    """The blocks that are not run, or not as they stand."""
    found = [block for document in DOCUMENTS for block in blocks((ROOT / document).read_text())]
    return [block for block in found if not block.run or block.mark.startswith("run with")]


def parse(line: str) -> None:
    """Reads a command line of fv as it would be read, and runs nothing."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "fv"
    command: click.Command = fv
    context = command.make_context(program, arguments)
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


def test_lines_that_are_not_run_parse() -> None:
    lines = [
        command for block in left_out() if block.language == "console" for command, _ in block.commands()
    ]
    ours = [line for line in lines if line.startswith("fv ")]
    assert len(ours) == 2
    for line in ours:
        parse(line)
    for block in left_out():
        if block.language == "python":
            compile(block.text, "block", "exec")


@pytest.mark.parametrize(
    "line", ["fv weights pull", "fv wieghts list", "fv generate x --stpes 3", "fv generate --n x"]
)
def test_a_line_that_does_not_parse_is_found(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line)


@pytest.mark.parametrize("readme", PLUGIN_READMES, ids=lambda path: path.parent.name)
def test_the_commands_of_a_plugin_run_or_parse(
    readme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks install the plugin and run its small models; those that need a download parse."""
    text = readme.read_text()
    found = blocks(text)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(found)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    ran = 0
    for block in found:
        assert block.language == "console", block.text
        assert block.run or re.fullmatch(r"not run: \w.{10,}", block.mark)
        for line, _ in block.commands():
            if line.startswith("pip "):
                assert shlex.split(line, comments=True) == [
                    "pip",
                    "install",
                    "./",
                    f"./plugins/{readme.parent.name}",
                ]
                continue
            parse(line)
            if block.run:
                assert run(shlex.split(line, comments=True)[1:]) == 0, line
                ran += 1
    assert ran


def test_guide_maps_every_state_of_a_plugin_to_its_code() -> None:
    text = (ROOT / "docs" / "plugin-guide.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (FV\w{3}) \| [^|]+ \| [^|]+ \|$", text, re.MULTILINE)
    assert {code: state for state, code in rows} == {**STATES, "FV2xx": PluginState.INVALID}
    assert {state for state, _ in rows} == {state for state in PluginState if not state.works}


@pytest.mark.parametrize("page", PAGES)
def test_pages_stay_short_and_link_to_what_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    assert len(text.splitlines()) <= 150
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links and [link for link in links if not (ROOT / "docs" / link).exists()] == []
