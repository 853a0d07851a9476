"""Every import of every module fits docs/architecture.md, including deferred and type-only imports.

The floors are read from the page's own tables, so that page and test cannot part.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from flows.cli.app import VERBS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"

MAY_IMPORT = {"blr": {"blr"}, "catalogs": {"catalogs"}, "flows": {"flows", "catalogs", "blr"}}

# What may be imported inside a function or for types only, and why.
DEFERRED = {
    "blr": "the lazy façade: SciPy is slow to import",
    "blr.basis._forest": "scikit-learn: its import takes longer than most fits",
    "catalogs": "the lazy façade: a list of models waits for no format",
    "flows": "the lazy façade: a command waits for no model",
    "flows.cli.*": "the command line's dispatch: `blr --help` imports no Prefect",
    "flows.request": "the command line's options: `blr --help` reads no specification",
    "flows.release.record": "plots: a signature draws none",
    "flows.deployed": "a run is of one flow, and does not wait for the others",
    "flows.engines.engine": "distributed, SciPy: most runs use threads, and a specification is read without either",
    "flows.models.store": "SciPy and models: a list shows skills and computes none, and opens no model",
    "catalogs.fits.table": "astropy: few FITS files are compressed by tiles",
    "catalogs.formats": "astropy: FITS, Parquet and CSV are read without it",
    "flows.documents": "jinja2: a command that writes no page waits for no template",
    "catalogs.sky.positions": "astropy: most positions are in degrees, and most runs match nothing by position",
    "catalogs.catalog.catalog": "astropy: most files of a catalogue spell their units alike",
    "catalogs.files": "NumPy: most files are no arrays",
    "catalogs.expressions.expression": "astropy: most columns are taken as they are",
    "flows.features.columns": "astropy: most units of fluxes are known",
    "flows.features.reader": "astropy: most units are those of the training",
    "catalogs.remote.remote_file": "aiohttp, fsspec: most runs read no URL of the web, and most outputs are here",
    "flows.reviews.selection": "models: a list without a budget needs none",
    "flows.draft.inspection": "models: most files that are inspected are none",
    "catalogs.profile.split": "astropy: most splits are by id",
    "catalogs.memory.tables": "pandas: whoever hands over a frame has imported it",
}

# blr: arrays in, arrays out.  Whatever else it needs has to be argued for here.
NUMERICS = {"numpy", "scipy", "threadpoolctl", "contourpy", "sklearn"}
INPUT_OUTPUT = {"asyncio", "csv", "glob", "http", "io", "json", "logging", "mmap", "pathlib", "shutil"}
INPUT_OUTPUT |= {"socket", "sqlite3", "subprocess", "tempfile", "urllib"}
FILE_CALLS = re.compile(r"open|print|input|np\.(load|save|fromfile|genfromtxt|memmap)\w*|\w*\.tofile")

EXECUTES_DATA = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "code", "joblib"}
EXECUTING_CALLS = re.compile(r"(.*\.)?(eval|exec)|compile|__import__|yaml\.(unsafe_|full_)?load|.*_pickle")
IN_C = {"blr._loops"}
"""Extension modules, which import nothing."""

COMPUTED = "a module whose name is computed"
EMPTY_NAMES = re.compile(r"(^|_)(utils?|helpers?|managers?|misc|common)$|(Utils?|Helpers?|Manager)$")
LONGEST = 800


@dataclass(frozen=True)
class Import:
    """One module that another one names in an import, and where."""

    target: str
    line: int
    deferred: bool


@dataclass(frozen=True)
class Module:
    """A source file, parsed."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name.split(".", maxsplit=1)[0]

    def imports(self) -> tuple[Import, ...]:
        """Return every import: at the top, in functions, under `if TYPE_CHECKING`, by `import_module`."""
        return self._imports

    @cached_property
    def _imports(self) -> tuple[Import, ...]:
        return tuple(self._found_imports())

    def _found_imports(self) -> Iterator[Import]:
        for node, deferred in _walk(self.tree, deferred=False):
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, node.lineno, deferred) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    yield Import(full if full in modules() else base, node.lineno, deferred)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                named = node.args[0]
                target = named.value if isinstance(named, ast.Constant) else COMPUTED
                yield Import(str(target), node.lineno, deferred=True)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node that names something: the tree is walked once for all tests."""
        kinds = (ast.Call, ast.ImportFrom, ast.keyword, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, kinds))

    @cached_property
    def calls(self) -> tuple[tuple[int, str], ...]:
        """Every call: its line, and what is called as it is written."""
        return tuple((n.lineno, ast.unparse(n.func)) for n in self.nodes if isinstance(n, ast.Call))

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + (self.path.name == "__init__.py")]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _walk(node: ast.AST, *, deferred: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes below, each with whether it runs at import: not in a function, not for types only."""
    for child in ast.iter_child_nodes(node):
        later = (
            deferred
            or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        )
        yield child, later
        yield from _walk(child, deferred=later)


@cache
def modules() -> dict[str, Module]:
    """Return all modules of the three packages by name."""
    found = {}
    for package in MAY_IMPORT:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


@cache
def floors(package: str) -> dict[str, int]:
    """Return the floor of each room of a package, from the page's table: | 3 | `fits/` | a sentence |."""
    text = PAGE.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {package}: .*?(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (\d+) \| `(\w+)/?` \| .+ \|$", section, flags=re.MULTILINE)
    assert len(rows) == len({room for _, room in rows}), f"a room of {package} has two rows"
    return {room: int(floor) for floor, room in rows}


def room(module: str) -> str:
    """Return the room of a module, a folder or a module at the top: blr.basis.base is in basis."""
    return module.split(".")[1] if "." in module else "façade"


@cache
def rooms(package: str) -> set[str]:
    """Return the rooms of a package."""
    return {room(name) for name in modules() if name.startswith(f"{package}.")} - {"__main__"}


def faces() -> list[Module]:
    """Return the `__init__.py` of every folder below the three packages."""
    return [m for m in modules().values() if m.path.name == "__init__.py" and "." in m.name]


def each_module(*packages: str) -> Callable[[Callable[[Module], None]], Callable[[], None]]:
    """Make of a test of one module a test of all: a test item a module would take half a minute."""
    chosen = [module for module in modules().values() if module.package in (packages or MAY_IMPORT)]

    def of_all(test: Callable[[Module], None]) -> Callable[[], None]:
        def run() -> None:
            faults = []
            for module in chosen:
                try:
                    test(module)
                except (AssertionError, pytest.fail.Exception) as fault:
                    faults.append(f"{module.name}: {fault}")
            assert chosen
            if faults:
                pytest.fail("\n".join(faults), pytrace=False)

        return run

    return of_all


def complain(module: Module, faults: list[str]) -> None:
    where = module.path.relative_to(ROOT)
    if faults:
        pytest.fail("\n".join(f"{where}:{fault}" for fault in dict.fromkeys(faults)), pytrace=False)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_the_page_has_every_room_once(package: str) -> None:
    assert set(floors(package)) == rooms(package)


@pytest.mark.parametrize(
    ("source", "target", "deferred"),
    [
        ("from blr.sums import Sums", "blr.sums", False),
        ("from .sums import Sums", "blr.sums", False),
        ("from blr import arrays", "blr.arrays", False),
        ("class C:\n    def f(self):\n        from scipy import linalg", "scipy", True),
        ("if TYPE_CHECKING:\n    import prefect", "prefect", True),
        ("f = importlib.import_module(name)", COMPUTED, True),
    ],
)
def test_finds_imports_in_any_disguise(source: str, target: str, *, deferred: bool) -> None:
    module = Module("blr.example", ROOT / "blr" / "example.py", ast.parse(source))
    (found,) = module.imports()
    assert (found.target, found.deferred) == (target, deferred)


@each_module()
def test_imports_run_one_way_between_the_packages(module: Module) -> None:
    faults = []
    for found in module.imports():
        target = found.target.split(".", maxsplit=1)[0]
        if target in MAY_IMPORT and target not in MAY_IMPORT[module.package]:
            faults.append(f"{found.line}: imports {found.target}; imports run flows -> catalogs, blr")
        if target == "tests":
            faults.append(f"{found.line}: imports {found.target}; the packages do not know their tests")
    complain(module, faults)


@each_module()
def test_imports_run_downward_between_rooms(module: Module) -> None:
    package, here = module.package, room(module.name)
    if here in {"façade", "__main__"}:  # above all floors
        return
    floor = floors(package)
    faults = []
    for found in module.imports():
        there = room(found.target)
        if found.target.split(".")[0] != package or there == here or found.target in IN_C:
            continue
        if there == "façade":
            faults.append(
                f"{found.line}: imports the façade {package}; name the module that holds what you want"
            )
        elif floor[there] >= floor[here]:
            faults.append(
                f"{found.line}: `{here}` (floor {floor[here]}) imports `{there}` (floor {floor[there]}); "
                "imports run downward: see the table of docs/architecture.md"
            )
    complain(module, faults)


@each_module()
def test_private_modules_are_private(module: Module) -> None:
    """A module whose name begins with an underscore is for the modules of its own folder."""
    faults = []
    for found in module.imports():
        folder, _, name = found.target.rpartition(".")
        own = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
        if found.target in modules() and re.match(r"_[a-z]", name) and folder != own:
            faults.append(f"{found.line}: imports {found.target}, which is private to {folder}")
    complain(module, faults)


def test_a_module_that_only_its_folder_uses_is_private() -> None:
    """Those that users, documents or other programs name stay public."""
    named = {"blr.basis.base", "flows.cli.app", "flows.orchestration.server"}
    named |= {"flows.demo.steps"}  # tutorials and notebooks take their galaxies from there
    named |= {f"flows.{run.partition(' then ')[0].rpartition('.')[0]}" for run, *_ in VERBS.values()}
    users: dict[str, set[str]] = {}
    for name, module in modules().items():
        for found in module.imports():
            users.setdefault(found.target, set()).add(name.rpartition(".")[0])
    facade = (ROOT / "blr" / "__init__.py").read_text(encoding="utf-8")
    for name, module in modules().items():
        folder, _, last = name.rpartition(".")
        known = name in named or f'"{name.removeprefix("blr.")}"' in facade
        if folder.count(".") and not last.startswith("_") and module.path.name != "__init__.py" and not known:
            assert users.get(name) != {folder}, f"only {folder} uses {name}: call it _{last}"


@pytest.mark.parametrize("face", faces(), ids=[face.name for face in faces()])
def test_a_face_says_what_its_folder_is_for(face: Module) -> None:
    (docstring,) = face.tree.body
    assert docstring.value.value.partition("\n")[0].endswith("."), (
        "a face holds a docstring, and nothing else"
    )


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_cycles(package: str) -> None:
    graph = {
        name: {found.target for found in module.imports() if found.target in modules()} - {name}
        for name, module in modules().items()
        if module.package == package and name not in DEFERRED
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@each_module()
def test_imports_stand_at_the_top(module: Module) -> None:
    allowed = any(fnmatchcase(module.name, key) for key in DEFERRED)
    late = [found for found in module.imports() if found.deferred and not allowed]
    complain(module, [f"{found.line}: imports {found.target} late, or for types only" for found in late])


def test_each_permission_to_defer_is_used_by_a_module_there_is() -> None:
    for key in DEFERRED:
        assert any(re.fullmatch(key.replace(".", r"\.").replace("*", ".*"), name) for name in modules()), key


@each_module("blr")
def test_blr_takes_arrays_and_gives_arrays(module: Module) -> None:
    faults = []
    for found in module.imports():
        top = found.target.split(".", maxsplit=1)[0]
        foreign = top not in sys.stdlib_module_names and top not in {*NUMERICS, "blr", COMPUTED}
        if foreign or top in INPUT_OUTPUT:
            faults.append(f"{found.line}: imports {found.target}; blr has no files, logging, tables, Prefect")
        if top == "sklearn" and module.name not in {"blr.estimators", "blr.basis._forest"}:
            faults.append(f"{found.line}: imports {found.target}, which is for blr.estimators and forests")
    faults += [f"{line}: calls {name}()" for line, name in module.calls if FILE_CALLS.fullmatch(name)]
    complain(module, faults)


@each_module("catalogs")
def test_catalogs_know_neither_models_nor_prefect(module: Module) -> None:
    known = [found for found in module.imports() if re.match(r"(prefect|sklearn)\b", found.target)]
    complain(module, [f"{found.line}: imports {found.target}" for found in known])


@each_module()
def test_nothing_executes_data(module: Module) -> None:
    faults = [f"{line}: calls {name}()" for line, name in module.calls if EXECUTING_CALLS.fullmatch(name)]
    executing = [found for found in module.imports() if found.target.split(".")[0] in EXECUTES_DATA]
    faults += [f"{found.line}: imports {found.target}" for found in executing]
    keywords = [node for node in module.nodes if isinstance(node, ast.keyword)]
    allowed = [node for node in keywords if node.arg == "allow_pickle" and ast.unparse(node.value) != "False"]
    faults += [f"{node.lineno}: allows pickle" for node in allowed]
    complain(module, faults)


@each_module()
def test_names_say_what_a_thing_is(module: Module) -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    faults = [f"1: a module called {part}" for part in module.name.split(".") if EMPTY_NAMES.search(part)]
    faults += [
        f"{node.lineno}: {node.name}"
        for node in module.nodes
        if isinstance(node, kinds) and EMPTY_NAMES.search(node.name)
    ]
    complain(module, faults)


@each_module()
def test_a_name_is_bound_once(module: Module) -> None:
    """A second definition at the top of a module hides the first."""
    places = Counter(name for node in module.tree.body for name in _bound(node))
    assert [name for name, n in places.items() if n > 1] == []


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement binds; those that are declared as overloads are meant to be several."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [] if "overload" in map(ast.unparse, node.decorator_list) else [node.name]
    return []


def test_extras_are_used() -> None:
    """An extra promises something: code imports what it installs, a test asks for it, or a benchmark names it."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    used = {i.target.split(".")[0] for module in modules().values() for i in module.imports()}
    used |= set(re.findall(r'importorskip\(\s*"(\w+)', tests))
    benchmarks = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    for extra, packages in table["project"]["optional-dependencies"].items():
        names = {re.match(r"[\w-]+", package).group() for package in packages}
        if extra == "bench":
            names = {name for name in names if f'"{name}"' not in benchmarks}
        assert names <= used, f"nothing imports {names - used} of the extra '{extra}'"


@each_module()
def test_modules_are_short(module: Module) -> None:
    n_lines = len(module.path.read_text(encoding="utf-8").splitlines())
    assert n_lines <= LONGEST, f"{n_lines} lines, at most {LONGEST}: are these two concepts?"


@each_module()
def test_the_comment_of_a_constant_has_a_line_of_its_own(module: Module) -> None:
    """Behind its value, a long one makes the formatter put the value into brackets."""
    text = module.path.read_text(encoding="utf-8")
    split = re.findall(
        r"^ *[\w.]+(?:: [^=\n]+)? = \(\n *[^\s()]+  #|^ *\w+: .* = field\(\n.*\n *\)  #", text, re.MULTILINE
    )
    assert split == []


def test_no_module_hides_an_installed_package() -> None:
    """Prefect puts the folder of an entry point, `flows`, on the module path."""
    here = {path.stem for path in (ROOT / "flows").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not here & set(packages_distributions())
    assert not here & set(sys.stdlib_module_names)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


SLOW = {"prefect", "scipy", "pandas", "sklearn", "astropy", "pyarrow", "matplotlib"}
HELP = """
sys.argv = ["blr", "--help"]
from flows.cli.app import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
UNNEEDED = {"matplotlib", "pandas", "sklearn", "scipy.stats", "astropy.coordinates", "astropy_healpix"}


@pytest.mark.parametrize(
    "starts",
    [
        {"import blr": SLOW},
        {HELP: SLOW},
        {
            "import flows.cli._list": {"prefect", "numpy", "scipy", "asdf", "pyarrow", "astropy"} | UNNEEDED,
            "import flows.classification.steps": {"prefect"} | UNNEEDED,
            "from flows.deployed import classify, reprocess": {"flows.training.steps"} | UNNEEDED,
        },
        {"import flows.training.steps": {"prefect"} | UNNEEDED},
    ],
    ids=["import blr", "blr --help", "work", "training"],
)
def test_starts_without_what_is_slow_to_import(starts: dict[str, set[str]]) -> None:
    """A process imports one after the other; beside each stands what is not there then."""
    script = "import sys\n" + "".join(f"{start}\nprint(*sys.modules, file=sys.stderr)\n" for start in starts)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for (start, unneeded), loaded in zip(starts.items(), done.stderr.splitlines(), strict=True):
        assert not unneeded & set(loaded.split()), start
