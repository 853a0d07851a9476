"""What the tests catch: small faults are put into the three packages, one at a time.

    python benchmarks/bench_mutation.py [--code FOLDER] [--mutants 200] [--seed 1] [--minutes 60] [--table-only]
                                        [--again COMMIT ...]

A mutant is one changed expression: another comparison, operator, number or truth value, a condition turned round, or a
statement that is gone.  Places are drawn by a seed, each as probable as any other, but for texts, annotations and what
is run at import alone.  Asked are the five files of tests beside the module (`tests/flows/runs` for
`flows/runs/drift.py`) that name its functions, its classes or itself most often, and three such files from elsewhere,
until one fails; a run of more than a quarter of an hour counts as caught.  Others may catch what these miss.
Each result is a line of `results-mutation/COMMIT.jsonl`, so that a run goes on where the one before ended.  The page
MUTATION.md compares commits.  `--code` is a checkout of another commit: its packages and its own tests are asked.
With `--again`, no places are drawn: those that were judged in the named commits are judged once more, where the same
line still stands in a function of the same name.  So two sets of tests are compared by the same faults.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results-mutation"
PAGE = HERE / "MUTATION.md"
PACKAGES = ("blr", "catalogs", "flows")
MOST_SECONDS = 900
NEAR, FAR = 5, 3
"""Files of tests that are asked: of the module's folder, and others."""
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
COMPARISONS |= {"is": "is not", "is not": "is", "in": "not in", "not in": "in"}
OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "//": "/",
    "%": "*",
    "**": "*",
    "@": "*",
    "&": "|",
    "|": "&",
}


@dataclass(frozen=True)
class Mutant:
    """One fault: the characters from `start` to `end` of a file become `new`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    kind: str
    names: tuple[str, ...]  # of the functions and classes around it, the outermost first


class Source:
    """A file and the faults that it can have, as start, end, new text and kind."""

    def __init__(self, path: str, text: str) -> None:
        """Find where each line starts."""
        self.path, self.tree, self.data = path, ast.parse(text), text.encode()
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        """Yield the faults inside functions."""
        nodes: list[tuple[ast.AST, tuple[str, ...], bool]] = [(self.tree, (), False)]
        while nodes:
            node, names, inside = nodes.pop()
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names, inside = (*names, node.name), inside or isinstance(node, ast.FunctionDef)
            for start, end, new, kind in self._faults(node) if inside else ():
                line = 1 + self.data.count(b"\n", 0, start)
                yield Mutant(self.path, line, start, end, self._text(start, end), new, kind, names)
            nodes += [(child, names, inside) for child in _code_within(node)]

    def _faults(self, node: ast.AST) -> Iterator[tuple[int, int, str, str]]:
        match node:
            case ast.Compare(left=left, comparators=[right]):
                yield from self._between(left, right, COMPARISONS, "comparison")
            case ast.BinOp(left=left, right=right):
                yield from self._between(left, right, OPERATORS, "operator")
            case ast.BoolOp(values=[left, right, *_]):
                yield from self._between(left, right, {"and": "or", "or": "and"}, "and, or")
            case ast.UnaryOp(op=ast.Not()):
                start, _ = self._place(node)
                yield start, start + len("not"), "", "not"
            case ast.Constant(value=bool() as value):
                yield *self._place(node), str(not value), "truth value"
            case ast.Constant(value=int() | float() as value):
                yield *self._place(node), repr(value + 1), "number"
            case _:
                yield from self._faults_of_statement(node)

    def _faults_of_statement(self, node: ast.AST) -> Iterator[tuple[int, int, str, str]]:
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield *self._place(test), f"not ({self._text(*self._place(test))})", "condition"
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield *self._place(node), "pass", "statement"
            case ast.Return(value=ast.AST()):
                yield *self._place(node), "return None", "return"

    def _between(
        self, left: ast.AST, right: ast.AST, table: dict[str, str], kind: str
    ) -> Iterator[tuple[int, int, str, str]]:
        start, end = self._place(left)[1], self._place(right)[0]
        words = "|".join(re.escape(word) for word in sorted(table, key=len, reverse=True))
        if found := re.search(rf"(?<![\w*/])({words})(?![\w=])", self._text(start, end)):
            yield start + found.start(), start + found.end(), table[found.group()], kind

    def _place(self, node: Any) -> tuple[int, int]:
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, start: int, end: int) -> str:
        return self.data[start:end].decode()


def _code_within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is directly within a node, but for annotations, decorators, texts and what is said in an error."""
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list") and not isinstance(node, ast.JoinedStr):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.Assert):
                    yield child


def tests_of(mutant: Mutant, root: Path) -> Iterator[list[str]]:
    """Yield sets of files of tests, the nearest first."""
    folder = Path("tests") / Path(mutant.path).parent
    while not any((root / folder).glob("test_*.py")) and len(folder.parts) > 1:
        folder = folder.parent
    nearest = sorted(str(path.relative_to(root)) for path in (root / folder).glob("test_*.py"))
    words = re.compile(
        rf"\b({'|'.join(map(re.escape, {*mutant.names, Path(mutant.path).stem.strip('_')}))})\b"
    )
    counts = {
        str(path.relative_to(root)): len(words.findall(path.read_text()))
        for path in (root / "tests").rglob("test_*.py")
        if "e2e" not in path.parts
    }
    named = [path for path, n in sorted(counts.items(), key=lambda item: -item[1]) if n]
    yield sorted(nearest, key=lambda path: -counts.get(path, 0))[:NEAR]
    yield [path for path in named if path not in nearest][:FAR]


def judged(mutant: Mutant, root: Path, stamp: int) -> dict[str, object]:
    """Put the fault into the copy at `root`, ask the tests, and put the file right again."""
    path, begun = root / mutant.path, time.monotonic()
    good = path.read_bytes()
    result = "missed"
    try:
        path.write_bytes(good[: mutant.start] + mutant.new.encode() + good[mutant.end :])
        os.utime(path, (stamp, stamp))  # compiled modules are told apart by seconds
        for files in tests_of(mutant, root):
            if files and not passes(files, root):
                result = "caught"
                break
    finally:
        path.write_bytes(good)
        os.utime(path, (stamp + 1, stamp + 1))
    return {**asdict(mutant), "result": result, "seconds": round(time.monotonic() - begun, 1)}


def passes(files: list[str], root: Path) -> bool:
    """Say whether all tests of some files pass in time."""
    asked = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", "600", *files]
    with subprocess.Popen(  # noqa: S603
        asked,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            return process.wait(MOST_SECONDS) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return False


def copied(code: Path, folder: Path) -> Path:
    """Copy what a checkout tracks, and its compiled loops; return the copy."""
    root = folder / "copy"
    for name in filter(None, git(code, "ls-files", "-z").split("\0")):
        if not (code / name).is_dir():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(code / name, root / name, follow_symlinks=False)
    for loops in (code / "blr").rglob("*.so"):
        shutil.copy2(loops, root / loops.relative_to(code))
    return root


def git(code: Path, *words: str) -> str:
    """Return what git says of a checkout."""
    return subprocess.run(["git", *words], cwd=code, capture_output=True, check=True, text=True).stdout  # noqa: S603, S607


def drawn(root: Path, n: int, seed: int) -> list[Mutant]:
    """Return the mutants of a copy, drawn without return."""
    paths = sorted(path for package in PACKAGES for path in (root / package).rglob("*.py"))
    found = [m for path in paths for m in Source(str(path.relative_to(root)), path.read_text()).mutants()]
    return random.Random(seed).sample(found, min(n, len(found)))  # noqa: S311


def place(mutant: Mutant, text: bytes) -> tuple[object, ...]:
    """Return what tells a fault in any commit: function, line and column within it, kind and new text."""
    start = text.rfind(b"\n", 0, mutant.start) + 1
    line = text[start:].split(b"\n", 1)[0]
    column = mutant.start - start - (len(line) - len(line.lstrip()))
    return mutant.names[-1], line.strip(), column, mutant.kind, mutant.new


def judged_before(root: Path, commits: list[str]) -> dict[Mutant, bool]:
    """Return the mutants of a copy that stand where those of other commits' results stood, and which were caught.

    Those come first.
    """
    asked: dict[object, bool] = {}
    for commit in commits:
        for r in results(RESULTS / f"{commit}.jsonl"):
            fields = {key: value for key, value in r.items() if key not in ("result", "seconds", "before")}
            mutant = Mutant(**{**fields, "names": tuple(r["names"])})
            text = git(HERE, "show", f"{commit}:{mutant.path}").encode()
            asked[place(mutant, text)] = r["result"] == "caught"
    there: dict[object, list[Mutant]] = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        text = path.read_text()
        for mutant in Source(str(path.relative_to(root)), text).mutants():
            if (key := place(mutant, text.encode())) in asked:
                there[key].append(mutant)
    alone = [(found[0], asked[key]) for key, found in there.items() if len(found) == 1]
    return dict(sorted(alone, key=lambda judged: not judged[1]))


def run(code: Path, n: int, seed: int, minutes: float, again: list[str]) -> None:
    """Judge mutants that have no result yet, until the time is up."""
    commit = git(code, "rev-parse", "--short=8", "HEAD").strip()
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{commit}{'-again' if again else ''}.jsonl"
    end = time.monotonic() + 60 * minutes
    known = {(r["path"], r["start"], r["new"]) for r in results(file)}
    with tempfile.TemporaryDirectory() as name:
        root = copied(code, Path(name))
        stamp = int(time.time())
        before = judged_before(root, again)
        for mutant in before or drawn(root, n, seed):
            if (mutant.path, mutant.start, mutant.new) in known:
                continue
            if time.monotonic() > end:
                break
            stamp += 2
            result = judged(mutant, root, stamp)
            if before:
                result["before"] = "caught" if before[mutant] else "missed"
            with file.open("a") as out:
                out.write(json.dumps(result) + "\n")
            print(
                f"{mutant.path}:{mutant.line} {mutant.kind}: {result['result']}, {result['seconds']} s",
                flush=True,
            )


def results(file: Path) -> list[dict[str, Any]]:
    """Return the stored results of a commit."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def write_page() -> None:
    """Write MUTATION.md of all stored results."""
    lines = ["# What the tests catch", "", __doc__.split("\n\n", 2)[2].strip(), ""]
    for file in sorted(RESULTS.glob("*.jsonl"), key=lambda path: path.stat().st_mtime):
        rows = results(file)
        by: dict[str, list[bool]] = defaultdict(list)
        for row in rows:
            by[str(row["path"]).split("/", 1)[0]].append(row["result"] == "caught")
            by["all"].append(row["result"] == "caught")
        lines += [
            f"## Commit {file.stem}: {len(rows)} mutants",
            "",
            "| package | mutants | caught | share |",
            "|---|---|---|---|",
        ]
        for package in (*PACKAGES, "all"):
            caught = by[package]
            lines.append(
                f"| {package} | {len(caught)} | {sum(caught)} | {100 * sum(caught) / max(len(caught), 1):.0f} % |"
            )
        if "before" in rows[0]:
            once = [r["result"] for r in rows if r["before"] == "caught"]
            now, late = once.count("caught"), sum(by["all"]) - once.count("caught")
            lines += [
                "",
                f"Of {len(once)} that earlier tests caught, {now} are caught; of {len(rows) - len(once)} more, {late}.",
            ]
        lines += ["", "Missed:", ""]
        lines += [
            f"- `{r['path']}:{r['line']}` ({', '.join(r['names'])}) {r['kind']}: `{r['old']}` becomes `{r['new']}`"
            + (", once caught" if r.get("before") == "caught" else "")
            for r in rows
            if r["result"] == "missed"
        ]
        lines.append("")
    PAGE.write_text("\n".join(lines))


def main() -> int:
    """Judge and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--code", type=Path, default=HERE.parent, help="a checkout; default: this one")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--again", nargs="+", default=[], help="commits whose faults are judged once more")
    asked = parser.parse_args()
    if not asked.table_only:
        run(asked.code, asked.mutants, asked.seed, asked.minutes, asked.again)
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
