"""A load that may run code from the file.

A pickle is a program: `torch.load` without `weights_only=True`, `pickle.load`, `joblib.load`, `np.load` with
`allow_pickle=True` and Keras' `safe_mode=False` run
whatever the file's author put into it. For a file from the internet, a shared drive or a colleague that is an open door. It
also ties the file to the classes of the day it was saved.

**Write instead.**

    state = torch.load("model.pt", map_location="cpu", weights_only=True)

which reads tensors, numbers, strings, lists and dicts and refuses anything else. Save only such things (`model.state_dict()`,
not `model`), or use `safetensors`. Keras: leave `safe_mode` on and register own layers with
`keras.saving.register_keras_serializable`.

**When this is fine.** A file that this very program has written and nobody else can change; one that the same function wrote
before, or a temporary one, is not reported. It is a risk where safety is switched off for a file that plainly comes from
elsewhere (a download that is not compared with a hash) though only weights are taken from it, and for a pickle that comes over
plain http. What else is pickled needs another format first, and whoever installs a package trusts its author's files; other
paths are mostly results of the same project, and a comment or docstring beside the call about trust or pickles says that it was
weighed: there it is a nit, and so is Keras' `safe_mode=False`. From torch 2.6
on `weights_only=True` is the default and leaving it out is safe there, a nit; older versions run the code,
so the argument is asked for. `unchoke lint --fix` adds it only where the program itself wrote the file, with nothing but a
network's `state_dict()` in it, and the loaded thing only goes into `load_state_dict`: what another file holds cannot be read
off the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from unchoke.code.constant_values import UNKNOWN
from unchoke.code.facts.origins import sources
from unchoke.code.facts.saving import written_path
from unchoke.code.magics import split_lines
from unchoke.code.node_index import FunctionNode
from unchoke.code.program import Program
from unchoke.linting.proofs import is_own_state_dict
from unchoke.linting.questions import calls_run_by, opened_path
from unchoke.linting.rule import Hit, Rule, append_arguments, offered

RULE = Rule(
    group="resume",
    stage="load",
    title="loading may run code from the file",
    kind="risk",
    holds_alone=True,
    fixable=True,
    since="torch 1.13",
)
_UNPICKLERS = frozenset(
    {"pickle.load", "pickle.loads", "joblib.load", "dill.load", "dill.loads", "cloudpickle.load", "cloudpickle.loads",
     "pandas.read_pickle"}
)  # fmt: skip
_DOWNLOADS = frozenset(
    {"get_file", "urlretrieve", "urlopen", "hf_hub_download", "snapshot_download", "download_url", "download_url_to_file",
     "cached_download", "download", "dataset_download", "model_download", "download_file", "retrieve", "url_to_file",
     "download_from_url"}
)  # fmt: skip
_REQUESTS = frozenset({"requests.get", "httpx.get", "requests.Session.get", "fsspec.open"})
_SHELL = re.compile(r"^\s*[!%]\s*(?:wget|curl|gdown|aws|gsutil|kaggle|huggingface-cli)\b.*$", re.MULTILINE)
_FILLS = frozenset(
    {"write", "write_bytes", "writelines", "extract", "extractall", "unpack_archive", "copy", "copy2", "copyfile", "copyfileobj",
     "move", "run", "check_call", "system"}
)  # fmt: skip
_HASHES = re.compile(r"hash|md5|sha|checksum", re.IGNORECASE)
_TRUST = re.compile(r"trust|unpickl|pickl|weights_only|\bnosec\b|\bS301\b|malicious|arbitrary code", re.IGNORECASE)
_TEST_FOLDERS = frozenset({"tmp_path", "tmpdir"})


def check(program: Program) -> Iterator[Hit]:
    for call in program.nodes(ast.Call):
        name = program.name(call)
        if name == "torch.load":
            yield from _torch(program, call)
        elif program.method(call) == "load_model" and program.value(program.argument(call, "safe_mode")) is False:
            yield Hit(
                call,
                f"`{program.text(call.func)}` with `safe_mode=False` runs Python code stored in the model file",
                {"call": program.text(call.func)},
                "leave `safe_mode` out and give own layers with `custom_objects=` or `keras.saving.register_keras_serializable`",
                kind="nit",
                fact="keras",
            )
        elif call.args and name in _UNPICKLERS:
            yield from _unpickled(program, call, "")
        elif call.args and name == "numpy.load" and program.value(program.argument(call, "allow_pickle", 2)) is True:
            yield from _unpickled(program, call, " with `allow_pickle=True`")


def _unpickled(program: Program, call: ast.Call, option: str) -> Iterator[Hit]:
    """Of a downloaded file always; objects among arrays also where the program has not written the file itself."""
    name, file = program.name(call), call.args[0]
    if _is_downloaded(program, file):
        fix = "compare its SHA-256 with a known one before opening it, or ask for a format without code (safetensors, npz, ONNX)"
        said = f"`{name}`{option} of a downloaded file runs whatever its author put into it"
        risky = _is_by_plain_http(program) and not _is_weighed(program, call)  # else it is the author's own
        yield Hit(call, said, {"call": name}, fix, kind=None if risky else "nit", fact="downloaded")
    elif option and not _is_own(program, call) and not _is_temporary(program, file):
        source = program.text(opened_path(program, file))[:50]
        yield Hit(
            call,
            f"`{name}`{option} of `{source}`, which this program did not write, runs whatever was put into it",
            {"call": name, "file": source},
            "save arrays of numbers as they are (`np.savez`, one name each; a dict as JSON) and leave `allow_pickle` out",
            kind="nit",  # what it holds has to be saved in another way first
            fact="pickled",
        )


def _is_by_plain_http(program: Program) -> bool:
    """Anybody on the way can put something else in its place."""
    texts = [node.value for node in program.nodes(ast.Constant) if isinstance(node.value, str)]
    return any(text.startswith("http://") for text in (*texts, *_shell_words(program)))


def _shell_words(program: Program) -> list[str]:
    lines = [line for cell in program.source.cells for line in _SHELL.findall(cell.text)]
    return [part for line in lines for part in re.split(r"[\s=\"']+", line)]


def _is_own(program: Program, call: ast.Call, *, before: bool = False) -> bool:
    """Does the program write this very file, by the same words: anywhere, or in the same function before it loads it?"""
    function, source = program.enclosing_function(call), opened_path(program, call.args[0])
    if not before and isinstance(source, ast.Name) and program.latest(source) is None:
        return True  # a parameter: whoever calls knows the file
    near = program.within(function, ast.Call) if function is not None else iter(())
    calls = (other for other in near if program.is_before(other, call)) if before else program.nodes(ast.Call)
    paths = (written_path(program, other) for other in calls)
    return any(program.text(opened_path(program, path)) == program.text(source) for path in paths if path is not None)


def _is_temporary(program: Program, node: ast.AST) -> bool:
    """A file or folder of `tempfile` (or of pytest) that is not filled with bytes of elsewhere in the same function."""
    function = program.enclosing_function(node)
    calls = program.within(function, ast.Call) if function is not None else program.nodes(ast.Call)
    parts = list(sources(program, node))
    made = any(program.name(part).startswith("tempfile.") for part in parts if isinstance(part, ast.Call))
    given = any(part.id in _TEST_FOLDERS and program.latest(part) is None for part in parts if isinstance(part, ast.Name))
    return (made or given) and not any(program.method(call) in _FILLS for call in calls) and not _is_downloaded(program, node)


def _torch(program: Program, call: ast.Call) -> Iterator[Hit]:
    if any(keyword.arg is None for keyword in call.keywords):
        return
    option = program.argument(call, "weights_only")
    said = program.value(option)
    if option is not None and (said is UNKNOWN or said is True or (said is None and not isinstance(option, ast.Constant))):
        return
    file, name = call.args[0] if call.args else None, program.text(call.func)
    in_memory = any(program.method(made) == "BytesIO" for made in program.choices(file).nodes)
    if in_memory or _is_fallback(program, call):
        return
    downloaded = file is not None and _is_downloaded(program, file)
    source = program.text(file)[:50] if file is not None else "the file"
    lacking = "without `weights_only=True`" if option is None else f"with `weights_only={said}`"
    before = " on torch before 2.6" if option is None else ""
    edit = append_arguments(program, call, "weights_only=True") if option is None and _only_state(program, call) else None
    proven = edit is not None and is_own_state_dict(program, call)
    if (
        file is not None
        and not proven
        and not downloaded
        and (_is_own(program, call, before=True) or _is_temporary(program, file))
    ):
        return
    risky = downloaded and option is not None  # safety is switched off for a file from elsewhere
    yield Hit(
        call,
        f"`{name}` of `{source}` {lacking} may run code from the file{before}",
        {"call": name, "file": source, "used as a state dict only": edit is not None},
        "write `weights_only=True` behind its other arguments",
        kind=None if risky and _only_state(program, call) and not _is_weighed(program, call) else "nit",
        fact="" if proven else f"torch {lacking}",
        **offered(edit, proven=proven),
    )


def _is_weighed(program: Program, call: ast.Call) -> bool:
    """Do a comment by the call or the docstrings round it speak of trust, pickles or the option itself?"""
    place, lines = program.place(call), split_lines(program.cell(call).text)
    near = [line.partition("#")[2] for line in lines[max(place.line - 4, 0) : place.end_line]]
    around = (above for above in program.ancestors(call) if isinstance(above, FunctionNode | ast.ClassDef))
    return any(_TRUST.search(text) for text in (*near, *(ast.get_docstring(item) or "" for item in around)))


def _is_fallback(program: Program, call: ast.Call) -> bool:
    """For a torch that does not know the argument: in the `except TypeError` of a load that gives it."""
    handlers = (above for above in program.ancestors(call) if isinstance(above, ast.ExceptHandler))
    tries = [program.parent(item) for item in handlers if program.method(item.type) == "TypeError"]
    blocks = [block for item in tries if isinstance(item, ast.Try) for block in item.body]
    return any(program.keyword(inner, "weights_only") for inner in program.calls_in(blocks))


def _only_state(program: Program, call: ast.Call) -> bool:
    """Does all that was loaded only go into `load_state_dict`?"""
    if _is_state_argument(program, call):
        return True
    statement = program.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call or not isinstance(statement.targets[0], ast.Name):
        return False
    name, scope = statement.targets[0].id, program.enclosing_scope(call)
    uses = [node for node in program.names(name) if isinstance(node.ctx, ast.Load)]
    mine = all(program.enclosing_scope(node) is scope and _is_state_argument(program, node) for node in uses)
    return bool(uses) and mine and len(program.assigned(name, statement)) == 1


def _is_state_argument(program: Program, node: ast.expr) -> bool:
    """`model.load_state_dict(node)`. With `node["model"]` the file may hold more, which the argument would refuse."""
    parent = program.parent(node)
    return isinstance(parent, ast.Call) and program.method(parent) == "load_state_dict" and node in parent.args[:1]


def _is_downloaded(program: Program, node: ast.AST) -> bool:
    """Does this come from the net, through variables, functions of the file, or a name that a download was given?"""
    names = _download_names(program, program.enclosing_function(node))
    for part in sources(program, node):
        if isinstance(part, ast.Call) and any(_downloads(program, call) for call in calls_run_by(program, part)):
            return True
        if isinstance(part, ast.Name | ast.Attribute) and program.written(part) in names:
            return True
        text = part.value if isinstance(part, ast.Constant) else None
        if isinstance(text, str) and len(text) > 3 and {text, text.rpartition("/")[2]} & names:
            return True
    return False


def _downloads(program: Program, call: ast.Call) -> bool:
    named = program.method(call) in _DOWNLOADS and program.function_of(call) is None
    compared = any(_HASHES.search(word.arg or "") for word in call.keywords)
    return (named and not compared) or program.name(call) in _REQUESTS


def _download_names(program: Program, function: FunctionNode | None) -> set[str]:
    """Files, and variables of this function, that a download was told to write to; what `!wget https://…/model.pkl` names."""
    found = {part for word in _shell_words(program) for part in word.split("/") if "." in part}
    for call in (call for call in program.nodes(ast.Call) if _downloads(program, call)):
        named = [word.value for word in call.keywords if word.arg not in ("origin", "url", "repo_id")]
        for item in (*call.args[1:], *named):
            here = program.enclosing_function(call) in (None, function)
            found |= {text for text in (program.value(item), program.written(item) if here else "") if isinstance(text, str)}
    return {name for name in found if len(name) > 1}
