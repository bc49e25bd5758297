"""Who may import whom, and which libraries stay in which rooms: read from the source, nothing is run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# From the ground up: a room imports rooms of lower rows, and of its own row those named.
ROWS: list[dict[str, set[str]]] = [
    {"config": set()},
    {"text": set(), "dropout": set(), "memory": set()},
    {"attention": {"gate_signals", "positions"}, "gate_signals": set(), "positions": set()},
    {"model": set(), "generation": {"model"}},
    {"training": set(), "importers": {"runs"}, "priors": {"runs"}, "runs": set()},
    {"analysis": set(), "plots": set()},
    {"experiments": set(), "report": set(), "jobs": {"experiments"}, "sweeps": {"experiments", "jobs"}},
    {"cli": set()},
    {"ui": set()},
    {"app": set(), "pages": set()},
]
ROW_OF = {room: level for level, row in enumerate(ROWS) for room in row}


def sources() -> list[Path]:
    return sorted([*ROOT.glob("ega_mope/**/*.py"), *ROOT.glob("pages/*.py"), *ROOT.glob("app.py")])


def room_of(path: Path) -> str | None:
    """The room a file stands in; None for the package's own two front doors."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] != "ega_mope":
        return parts[0]
    return None if parts[1] in ("__init__", "__main__") else parts[1]


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported module, wherever the import stands, as a dotted name and its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def rooms_imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for name, line in imports(tree):
        parts = name.split(".")
        if parts[0] == "ega_mope" and len(parts) > 1 and parts[1] in ROW_OF:
            yield parts[1], line
        elif parts[0] in ("app", "pages"):
            yield parts[0], line


def complaints(room: str, tree: ast.AST) -> list[str]:
    """What in a file of this room goes against the direction."""
    found = []
    for other, line in rooms_imported(tree):
        below = ROW_OF[other] < ROW_OF[room]
        named = ROW_OF[other] == ROW_OF[room] and other in ROWS[ROW_OF[room]][room]
        if other != room and not below and not named:
            found.append(f"line {line}: {room} imports {other}")
    return found


def libraries(path: Path) -> set[str]:
    return {name.split(".")[0] for name, _ in imports(parse(path))}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_file_stands_in_a_known_room() -> None:
    unknown = {str(path.relative_to(ROOT)) for path in sources() if room_of(path) not in {None, *ROW_OF}}
    assert not unknown, "give a new room its row in ROWS"
    assert {"config", "text", "model", "runs", "cli"} <= {room_of(path) for path in sources()}


@pytest.mark.parametrize("room", ROW_OF)
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): complaints(room, parse(path))
        for path in sources()
        if room_of(path) == room
    }
    assert not any(found.values()), {path: lines for path, lines in found.items() if lines}


@pytest.mark.parametrize(
    ("room", "source", "bad"),
    [
        ("model", "from ega_mope.runs import Run", True),
        ("model", "def f():\n    import ega_mope.training", True),
        ("analysis", "from ega_mope import plots", True),
        ("plots", "from ega_mope.analysis.runs import summarise", True),
        ("training", "from ega_mope.runs import Run", True),
        ("gate_signals", "from ega_mope.positions.base import Memory", True),
        ("config", "from ega_mope.text import Corpus", True),
        ("importers", "from ega_mope.runs import Run", False),
        ("attention", "from ega_mope.positions.base import Memory", False),
        ("cli", "from ega_mope.analysis.runs import summarise", False),
        ("runs", "import ega_mope", False),
    ],
)
def test_the_rule_itself_tells_right_from_wrong(room: str, source: str, bad: bool) -> None:
    assert bool(complaints(room, ast.parse(source))) is bad


def test_libraries_keep_to_their_rooms() -> None:
    allowed = {"streamlit": {"app", "pages", "ui"}, "plotly": {"plots", "report"}}
    for path in sources():
        for library, rooms in allowed.items():
            assert library not in libraries(path) or room_of(path) in rooms, f"{path} imports {library}"


def test_settings_need_the_standard_library_alone() -> None:
    outside = libraries(ROOT / "ega_mope" / "config.py") - set(sys.stdlib_module_names)
    assert not outside


def test_figures_know_no_torch_no_disk_and_no_runs() -> None:
    for path in sources():
        if room_of(path) == "plots":
            assert not libraries(path) & {"torch", "pathlib", "os", "io", "shutil", "tempfile"}, path
            assert {room for room, _ in rooms_imported(parse(path))} <= {"plots", "config"}, path


def test_the_command_line_imports_nothing_heavy_at_the_top() -> None:
    heavy = {"torch", "numpy", "pandas", "plotly", "streamlit", "sklearn", "scipy", "safetensors"}
    for path in sources():
        if room_of(path) in ("cli", None):
            tree = parse(path)
            typing_only = [node for node in tree.body if isinstance(node, ast.If)]
            tops = [node for node in tree.body if node not in typing_only]
            names = {name for node in tops if not _is_scope(node) for name, _ in imports(node)}
            assert not {name.split(".")[0] for name in names} & heavy, path
            light = ("ega_mope.cli", "ega_mope.__version__", "ega_mope.config")
            own = [n for n in names if n.startswith("ega_mope.") and not n.startswith(light)]
            assert not own, f"{path}: import {own} inside the command"


def _is_scope(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef)


def loads(tree: ast.AST) -> list[bool]:
    """For every torch.load: whether it says weights_only=True."""
    return [
        any(
            k.arg == "weights_only" and isinstance(k.value, ast.Constant) and k.value.value is True
            for k in node.keywords
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "load"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "torch"
    ]


def test_torch_files_are_read_in_two_rooms_and_never_executed() -> None:
    for path in sources():
        safe = loads(parse(path))
        assert all(safe), f"{path}: torch.load without weights_only=True"
        assert not safe or room_of(path) in ("runs", "importers"), f"{path} calls torch.load"
        names = {name for name, _ in imports(parse(path))}
        assert not names & {"torch.load", "pickle.load", "pickle.loads"}, path
    assert loads(ast.parse("torch.load(f)\ntorch.load(f, weights_only=False)")) == [False, False]


def test_no_page_is_long() -> None:
    long = [path.name for path in ROOT.glob("pages/*.py") if len(path.read_text().splitlines()) > 130]
    assert not long
