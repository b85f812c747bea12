"""The rules of the house, read from the source: who may import whom, and the one place for each habit."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from plan import House

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "unchoke"
ROOMS = [
    {"cli"},
    {"page"},
    {"tuning", "curation", "exports"},
    {"masks"},
    {"training"},
    {"features"},
    {"scenes"},
    {"data"},
    {"pixels"},
    {"runs"},
    {"jobs"},
    {"machine"},
    {"core"},
]
"""The rooms, each importing those below it."""
SIDEWAYS = {("machine", "jobs"), ("machine", "runs"), ("training", "masks"), ("training", "exports")}
"""Room and room above it that it may import. `doctor` asks the nodes of a cluster; `budget`, `runs export` and `load_model`
know runs of all kinds."""
RANK = {room: rank for rank, row in enumerate(ROOMS) for room in row}
ERRORS = {"UnchokeError", "UsageError", "DataError", "MachineError", "Interrupted"}
CODE = re.compile(r"[a-z]+[a-z0-9]*(-[a-z0-9]+)*")
DEVICES = {"cuda", "mps", "cpu"}
HEAVY = {"timm", "torchvision", "openvino", "onnx", "onnxruntime", "ray", "sklearn", "scipy", "transformers", "lightning"}
LONGEST_NAME = 60
HEAVY |= {"accelerate", "segmentation_models_pytorch", "mlflow", "moto", "boto3"}


house = cache(House)  # parsed by the first test that asks, not when tests are collected


def modules(check: Callable[[str], None]) -> Callable[[], None]:
    """A test of every module in one: hundreds of them for each rule would take minutes to hand out and report."""

    def test() -> None:
        broken = []
        for module in house().files:
            try:
                check(module)
            except AssertionError as error:
                broken.append(f"{module}: {error}")
        assert not broken, "\n".join(broken)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def relative(module: str) -> str:
    return house().files[module].relative_to(SRC).as_posix()


def imports(module: str) -> Iterator[tuple[str, int]]:
    """Every module a module imports, at any depth, with the line."""
    for node in house().nodes[module]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in house().files else node.module), node.lineno


def calls(module: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call with its dotted name as written; what is not a plain name before the last dot reads `?`."""
    for node in house().nodes[module]:
        if isinstance(node, ast.Call):
            yield dotted(node.func), node


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


def is_plain(node: ast.Call, *, arguments: int) -> bool:
    return len(node.args) == arguments and not node.keywords


def room(module: str) -> str:
    return module.split(".")[1]


@modules
def test_imports_point_one_way(module: str) -> None:
    if module in {"unchoke", "unchoke.__main__"}:  # the front door stands above all rooms
        return
    ours = {name for name, _ in imports(module) if name.startswith("unchoke.") and room(name) != room(module)}
    upwards = {
        f"{module} -> {name}".replace("unchoke.", "")
        for name in ours
        if RANK[room(name)] <= RANK[room(module)] and (room(module), room(name)) not in SIDEWAYS
    }
    assert not upwards


def test_names_are_imported_from_where_they_are_defined() -> None:
    assert not house().doors()


def test_every_room_is_there_and_every_folder_is_a_room() -> None:
    folders = {file.parent.name for file in SRC.glob("*/__init__.py")}
    assert folders == set(RANK)


@modules
def test_rooms_do_not_import_the_front_door(module: str) -> None:
    if module.startswith("unchoke.cli") or module == "unchoke":
        return
    nodes = house().nodes[module]
    taken = {
        alias.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "unchoke" for alias in node.names
    }
    assert taken <= {"__version__"}
    assert not [node for node in nodes if isinstance(node, ast.Import) and "unchoke" in {alias.name for alias in node.names}]


@modules
def test_imports_are_written_in_full(module: str) -> None:
    assert not [node.lineno for node in house().nodes[module] if isinstance(node, ast.ImportFrom) and node.level]


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = house().files
    graph = {module: {name for name, _ in imports(module) if name in files and name != module} for module in files}
    graph["unchoke"] = set()  # its functions import what they call when they are called
    while leaves := {module for module, needed in graph.items() if not needed & graph.keys()}:
        graph = {module: needed for module, needed in graph.items() if module not in leaves}
    assert not graph, f"in or behind a circle: {sorted(graph)}"


@modules
def test_jobs_import_no_torch(module: str) -> None:
    if module.split(".")[1:2] == ["jobs"]:
        assert not [name for name, _ in imports(module) if name.split(".")[0] in {"torch", "torchvision", "timm"}]


@modules
def test_only_atomic_renames(module: str) -> None:
    named = {"os.rename", "os.renames", "os.replace", "shutil.move"}
    found = [
        f"{relative(module)}:{node.lineno} {name}"
        for name, node in calls(module)
        if name in named or (name.split(".")[-1] in {"rename", "replace"} and "." in name and is_plain(node, arguments=1))
    ]
    assert not found or relative(module) == "core/atomic.py", found


@modules
def test_only_listing_lists(module: str) -> None:
    methods = {"listdir", "scandir", "iterdir", "rglob", "glob", "iglob", "fwalk"}
    found = [
        f"{relative(module)}:{node.lineno} {name}"
        for name, node in calls(module)
        if name.split(".")[-1] in methods or name in {"os.walk", "?.walk"} or (name.startswith("Path") and name.endswith(".walk"))
    ]
    assert not found or relative(module) == "core/listing.py", found


@modules
def test_only_one_place_has_pillow_open_pictures(module: str) -> None:
    """Left to itself it hands PostScript to Ghostscript, whatever the file is called."""
    found = [f"{relative(module)}:{node.lineno}" for name, node in calls(module) if name.endswith("Image.open")]
    assert not found or relative(module) == "pixels/image.py", found


@modules
def test_only_one_place_parses_json(module: str) -> None:
    """Nested deeply enough, any text makes `json.loads` raise a RecursionError."""
    found = [f"{relative(module)}:{node.lineno} {name}" for name, node in calls(module) if name in ("json.load", "json.loads")]
    assert not found or relative(module) == "core/input_file.py", found


@modules
def test_only_the_console_prints(module: str) -> None:
    named = {
        "print",
        "pprint",
        "pprint.pprint",
        "typer.echo",
        "typer.secho",
        "click.echo",
        "sys.stdout.write",
        "sys.stderr.write",
    }
    found = [f"{relative(module)}:{node.lineno} {name}" for name, node in calls(module) if name in named]
    assert not found or relative(module) == "runs/report/console.py", found


@modules
def test_only_policy_and_backend_ask_for_the_device(module: str) -> None:
    found = [f"{relative(module)}:{line}" for line in device_questions(house().nodes[module])]
    assert not found or relative(module) in {"machine/policy.py", "machine/backend.py"}, found


def device_questions(nodes: Iterable[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.Compare):
            asked: list[ast.expr] = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and dotted(node.func).endswith(".startswith"):
            asked = node.args
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        else:
            continue
        literals = {inner.value for part in asked for inner in ast.walk(part) if isinstance(inner, ast.Constant)}
        if literals & DEVICES:
            yield asked[0].lineno


@modules
def test_every_module_says_what_it_is_for(module: str) -> None:
    assert (ast.get_docstring(house().trees[module]) or "").strip(), relative(module)


@modules
def test_every_error_has_code_why_and_try(module: str) -> None:
    poor = []
    for name, node in calls(module):
        if name.split(".")[-1] in ERRORS:
            given = {keyword.arg: getattr(keyword.value, "value", "computed") for keyword in node.keywords}
            if not (given.get("why") and given.get("try_") and CODE.fullmatch(str(given.get("code")))):
                poor.append(f"{relative(module)}:{node.lineno} {name}")
    assert not poor


@modules
def test_no_exception_is_swallowed_without_a_word(module: str) -> None:
    silent = [
        f"{relative(module)}:{node.lineno}"
        for node in house().nodes[module]
        if isinstance(node, ast.ExceptHandler) and is_broad(node.type) and all(isinstance(line, ast.Pass) for line in node.body)
    ]
    assert not silent


def is_broad(kind: ast.expr | None) -> bool:
    return kind is None or dotted(kind) in {"Exception", "BaseException"}


@pytest.mark.parametrize(
    ("code", "asks"),
    [
        ('x.type == "cuda"', 1),
        ('x in ("mps", "cpu")', 1),
        ('x.startswith("cuda")', 1),
        ('torch.device("cuda")', 0),
        ("x == 'done'", 0),
    ],
)
def test_the_device_rule_sees_what_it_should(code: str, asks: int) -> None:
    assert len(list(device_questions(ast.walk(ast.parse(code))))) == asks


def test_tests_are_quick_to_collect_and_have_short_names() -> None:
    """Heavy libraries are imported where they are used; the name of a failing test fits in a line."""
    wrong = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        tops = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
        tops += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
        tests = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
        wrong += [f"{file.name}: {name}" for name in tops if name.split(".")[0] in HEAVY]
        wrong += [f"{file.name}: {name}" for name in tests if len(name) > LONGEST_NAME]
    assert not wrong
