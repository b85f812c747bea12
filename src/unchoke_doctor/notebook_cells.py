"""What each cell of a notebook does, in a few words, from its source alone: installs, reads tables, builds the model, trains.

Code inside a function counts for the cell that calls it; the cell that holds it only defines it. Nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from unchoke_doctor.code.data import is_decode
from unchoke_doctor.code.magics import FILE_CELLS, SHELL_CELLS
from unchoke_doctor.code.program import LOOPS, Program
from unchoke_doctor.code.source import Cell, language_name
from unchoke_doctor.code.training import trainings

# What a call does, by its dotted name; most telling first. A shell line is known by its first words.
_CALLS = tuple((does, re.compile(pattern)) for does, pattern in {
    "evaluates": r"(.*\.)?(evaluate(_generator)?|classification_report|confusion_matrix|accuracy_score|f1_score|roc_auc\w*)$"
                 r"|torchmetrics\.|sklearn\.metrics\.|.*[Tt]rainer\.(validate|test)$",
    "predicts": r".*\.(predict|predict_generator|predict_on_batch|predict_proba|get_preds)$",
    "mounts a drive": r"google\.colab\.drive\.mount$",
    "downloads": r".*\b(urlretrieve|dataset_download|download_url|untar_data|get_file|snapshot_download|files\.upload)$"
                 r"|gdown\.|wget\.download|requests\.get|.*download\w*$",
    "unpacks archives": r".*\.(extractall|unpack_archive)$",
    "copies files": r"shutil\.(copy\w*|move)$|.*\bcopy_tree$",
    "builds the data loaders": r".*\b(DataLoader|TensorDataset|ImageFolder|image_dataset_\w+|flow_from_\w+|ImageDataGenerator)$"
                               r"|.*(DataLoaders|DataBlock)(\.\w+)?$|.*\.from_tensor_slices$",
    "builds the model": r"torchvision\.models\.|.*\b(Sequential|(create|get|build)_model|from_pretrained)$"
                        r"|.*keras\.(models\.)?Model$|.*keras\.applications\.|torch\.hub\.load$|segmentation_models\w*\.|.*_learner$|.*Model$",
    "loads weights": r"torch\.load$|.*\.(load_state_dict|load_weights|load_model|load_learner)$",
    "sets up training": r"torch\.optim\.\w+$|.*\.optimizers\.\w+$|.*\.compile$|torch\.nn\.\w*Loss$",
    "reads data": r".*\b(read_csv|read_parquet|read_excel|read_json|read_table|loadtxt|genfromtxt|imread|load_img|read_image)$"
                  r"|PIL\.Image\.open$|numpy\.load$|h5py\.File$|json\.load$|pickle\.load$|.*\b(listdir|glob|iglob|rglob|iterdir|walk)$"
                  r"|torchvision\.datasets\.|.*\.load_data$|.*\.load_dataset$",
    "splits the data": r"sklearn\.model_selection\.\w+$|.*random_split$",
    "saves": r"torch\.save$|.*\.(save|save_weights|save_model|save_pretrained|to_csv|to_parquet|to_pickle|savefig|imwrite)$"
             r"|numpy\.save\w*$|(pickle|joblib|json)\.dump$|.*\.ModelCheckpoint$|os\.(makedirs|mkdir)$",
    "shows": r"(matplotlib|seaborn|plotly|plt)\.|.*\.(plot|(im)?show|hist|head|describe|info|value_counts)$|print$|display$|"
    r".*summary$",
    "sets seeds": r".*\b(manual_seed\w*|set_seed|seed_everything|set_random_seed)$|(numpy\.)?random\.seed$",
}.items())  # fmt: skip
_SHELL = tuple((does, re.compile(pattern)) for does, pattern in {
    "installs packages": r"(sudo )?(python3? -m )?(pip3?|uv|conda|mamba|apt|apt-get)\s+(pip |env )?(install|update|upgrade)\b",
    "downloads": r"(wget|curl|gdown|git clone|aws s3|gsutil|rclone|kaggle|huggingface-cli download)\b",
    "unpacks archives": r"(unzip|tar|7z|gunzip|unrar)\b",
    "copies files": r"(cp|mv|ln|rsync)\b",
    "looks at the machine": r"(nvidia-smi|lscpu|free|df|nproc|python3? (--version|-V)|cat /proc/)",
    "runs a script": r"(python3?|torchrun|accelerate launch)\s+\S+",
}.items())  # fmt: skip
ORDER = (
    "trains", "extracts features", "changes image files", *(does for does, _ in _CALLS), *(does for does, _ in _SHELL),
    "copies out", "defines the training", "defines a dataset", "defines a model", "defines functions", "writes a file",
    "runs shell commands", "computes", "sets values", "imports",
)  # fmt: skip
_RANK = {does: rank for rank, does in reversed(list(enumerate(ORDER)))}
_LITTLE = frozenset({"imports", "sets values", "computes", "sets seeds"})
WRITES = frozenset({
    "saves", "copies out", "copies files", "writes a file", "changes image files", "downloads", "unpacks archives",
    "runs shell commands",
})  # fmt: skip
"""What leaves something behind: such a cell is never one to drop."""
_SHELL_LINE = re.compile(r"^\s*(?:[\w.,\s\[\]]+=\s*)?(?:!|%(?=(?:pip|conda|mamba|uv)\b)|%(?:system|sx)\s+)\s*(.*)")
_OUTSIDE = re.compile(r"/content/(?:g?drive|MyDrive)|/kaggle/working|MyDrive|s3://|gs://|dbfs:")
_DATASETS = re.compile(r"(Dataset|Sequence|DataModule|DataGenerator)$")
_MODELS = re.compile(r"(Module|Model|Layer)$")
_FEATURES = re.compile(
    r"\b\w*(?:feature|embedding|bottleneck)\w*(?:\.append|\.extend|\[[^\]]*\]\s*=|\s*=.*\.predict\()", re.IGNORECASE
)
_GUARD = re.compile(r"exists|is_file|is_dir|isfile|isdir|find_spec")


@dataclass(frozen=True)
class CellReading:
    """What one code cell does, most telling first. `guarded`: only if something is not there yet."""

    number: int
    text: str
    does: tuple[str, ...]
    guarded: bool = False
    problem: str = ""
    language: str = ""
    uses: frozenset[str] = field(default_factory=frozenset)
    sets: frozenset[str] = field(default_factory=frozenset)

    @property
    def words(self) -> str:
        if self.language:
            return f"{self.language} code, not read"
        telling = [does for does in self.does if does not in _LITTLE] or list(self.does[:1])
        return "not read" if self.problem else ", ".join(telling[:3]) or "nothing"


def read_cells(program: Program, cells: tuple[Cell, ...]) -> list[CellReading]:
    """Every code cell, in the order of the file."""
    training_cells: set[int | None] = set()
    defining: set[int | None] = set()
    for one in trainings(program):
        last = next((part for part in reversed((one.node, *one.chain)) if program.is_own(part)), None)
        if last is not None:
            is_only_defined = isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef)
            (defining if is_only_defined else training_cells).add(program.place(last).cell)
            defining.add(program.place(one.node).cell if program.is_own(one.node) else None)
    found = []
    for cell in cells:
        if cell.kind == "code" and cell.number is not None:
            does = set(_shell(cell)) | (set(_tree(program, cell)) if cell.tree is not None and cell.executed else set())
            if cell.number in training_cells:
                does = (does - {"computes", "evaluates"}) | {"trains"} | ({"evaluates"} & does)
            elif cell.number in defining:
                does = (does - {"defines functions"}) | {"defines the training"}
            found.append(_reading(cell, does))
    return found


def _reading(cell: Cell, does: set[str]) -> CellReading:
    if (
        "copies files" in does
        and _OUTSIDE.search(cell.text)
        and not re.search(r"(?:MyDrive|/kaggle/input)\S*\s+(?:\.|/content/?\s|/tmp)", cell.text)
    ):
        does = (does - {"copies files"}) | {"copies out"}
    names = [node for node in ast.walk(cell.tree) if isinstance(node, ast.Name | ast.alias)] if cell.tree is not None else []
    uses = frozenset(node.id for node in names if isinstance(node, ast.Name))
    stored = {node.id for node in names if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    # a method may change what it is called on, a call what it is given: both count as set
    loads = {node.id for node in names if isinstance(node, ast.Name)} if not set(does) <= {*_LITTLE, "shows"} else set()
    other = "" if cell.language in ("python", "") or cell.executed or does else language_name(cell.language)
    ordered = tuple(sorted(does, key=lambda one: _RANK.get(one, 99)))
    problem = cell.problem.message if cell.problem else ""
    guarded = cell.tree is not None and _is_guarded(cell.tree)
    return CellReading(cell.number or 0, cell.text, ordered, guarded, problem, other, uses, frozenset(stored | loads))


def _shell(cell: Cell) -> Iterator[str]:
    """What its shell lines do; in a cell that is the shell's as a whole, every line is one."""
    if cell.language in FILE_CELLS:
        yield "writes a file"
        return
    whole = cell.language in SHELL_CELLS
    for line in cell.text.splitlines()[1 if whole else 0 :]:
        found = _SHELL_LINE.match(line)
        command = line.strip() if whole else found[1].strip() if found else ""
        if command and not command.startswith("#"):
            command = f"pip {command}" if line.lstrip().startswith("%pip") else command
            yield next((does for does, pattern in _SHELL if pattern.match(command)), "runs shell commands")


def _tree(program: Program, cell: Cell) -> Iterator[str]:
    assert cell.tree is not None
    for statement in cell.tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield "imports"
        elif isinstance(statement, ast.ClassDef):
            bases = program.base_names(statement)
            yield (
                "defines a dataset"
                if any(map(_DATASETS.search, bases))
                else "defines a model"
                if any(map(_MODELS.search, bases))
                else "defines functions"
            )
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "defines functions"
        elif not isinstance(statement, ast.Pass):
            yield from _statement(program, statement)
    if _FEATURES.search(cell.text) and any(isinstance(node, LOOPS) for node in ast.walk(cell.tree)):
        yield "extracts features"


def _statement(program: Program, statement: ast.stmt) -> Iterator[str]:
    calls = program.reached(statement)
    named = (next((does for does, pattern in _CALLS if pattern.match(program.name(call))), None) for call in calls)
    found = {does for does in named if does is not None}
    names = {program.name(call).rpartition(".")[2] for call in calls}
    loops = any(isinstance(node, (*LOOPS, ast.ListComp)) for node in ast.walk(statement))
    if (
        loops
        and any(is_decode(program, call) for call in calls)
        and names & {"imwrite", "save", "imsave", "write_jpeg", "write_png"}
    ):
        found.add("changes image files")
    is_value = isinstance(statement, ast.Assign | ast.AnnAssign) and not calls
    yield from found or {"sets values" if is_value else "shows" if isinstance(statement, ast.Expr) and not calls else "computes"}


def _is_guarded(tree: ast.Module) -> bool:
    """Whether all it runs stands below a question whether something is there."""
    todo = [part for part in tree.body if not isinstance(part, ast.Import | ast.ImportFrom | ast.Pass | ast.Assign)]
    tests = [part.test for part in todo if isinstance(part, ast.If)]
    return bool(todo) and len(tests) == len(todo) and all(_GUARD.search(ast.unparse(test)) for test in tests)


def same_as(cell: CellReading, before: list[CellReading]) -> int | None:
    """An earlier cell with the same code, where nothing between changed a name that it uses, and it leaves nothing behind."""
    text = cell.text.strip()
    if len(text) < 40 or WRITES & set(cell.does) or "trains" in cell.does or cell.problem or cell.language:
        return None
    between: set[str] = set()
    for earlier in reversed(before):
        if earlier.text.strip() == text and not between & cell.uses:
            return earlier.number
        between |= earlier.sets
        if "runs shell commands" in earlier.does or "%run" in earlier.text:
            return None
    return None
