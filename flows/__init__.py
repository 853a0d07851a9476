"""Flows, the command line and reports: the only place where `catalogs` and `blr` meet.

The names below load what they need when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# For type checkers and editors; at run time `__getattr__` below imports a name on its first use.
if TYPE_CHECKING:
    from flows.errors import FlowError as FlowError
    from flows.models.model import Model as Model
    from flows.models.store import Store as Store
    from flows.specification.specification import Specification as Specification
    from flows.specification.toml_file import read_specification as read_specification
    from flows.tables import TableClassifier as TableClassifier
    from flows.tables import classifier_from as classifier_from
    from flows.tables import classify_table as classify_table
    from flows.tables import read_classifier as read_classifier
    from flows.tables import write_classifier as write_classifier

    __version__: str

_HOME = {
    "FlowError": "errors",
    "Model": "models.model",
    "Specification": "specification.specification",
    "Store": "models.store",
    "TableClassifier": "tables",
    "classifier_from": "tables",
    "classify_table": "tables",
    "read_classifier": "tables",
    "read_specification": "specification.toml_file",
    "write_classifier": "tables",
}
"""The module of each public name."""

if not TYPE_CHECKING:  # a type checker that saw it would accept any name
    __all__ = list(_HOME)

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("importlib.metadata").version("galaxyblr")
        if name not in _HOME:
            raise AttributeError(f"module 'flows' has no attribute '{name}'; it offers {', '.join(_HOME)}")
        return getattr(import_module(f"flows.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*_HOME, "__version__"]
