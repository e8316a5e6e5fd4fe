"""What each package shows to the others."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import pytest

import remit

SOURCE = Path(remit.__file__).parent


def modules() -> list[str]:
    """Every module of the package, private ones too."""
    found = [info.name for info in pkgutil.walk_packages([str(SOURCE)], prefix="remit.")]
    return ["remit", *(name for name in found if not name.endswith("__main__"))]


def rooms() -> list[str]:
    """The packages right below `remit`, and `remit` itself."""
    return [name for name in modules() if name.count(".") < 2 and _file(name).name == "__init__.py"]


def _file(name: str) -> Path:
    folder = SOURCE.parent.joinpath(*name.split("."))
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _load(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_every_folder_of_code_is_a_package() -> None:
    """A folder without `__init__.py` would be found by nothing that walks the packages; data is no code."""
    code = {path.parent for path in SOURCE.rglob("*.py") if "data" not in path.relative_to(SOURCE).parts}
    assert code - {path.parent for path in SOURCE.rglob("__init__.py")} == set()


@pytest.mark.parametrize("name", modules())
def test_a_module_says_what_it_holds(name: str) -> None:
    """Each module begins with a docstring."""
    assert inspect.getdoc(_load(name)), f"{name} has no docstring"


@pytest.mark.parametrize("name", rooms())
def test_public_names_are_listed_and_there(name: str) -> None:
    """Every room has `__all__`, without doubles, and every name in it can be had."""
    names = _load(name).__dict__.get("__all__")
    assert names is not None, f"{name} has no __all__"
    assert len(names) == len(set(names))
    for one in names:
        assert getattr(_load(name), one) is not None


@pytest.mark.parametrize("name", rooms())
def test_a_room_shows_nothing_private(name: str) -> None:
    """A public name of a room has no leading underscore."""
    assert [one for one in _load(name).__all__ if one.startswith("_") and not one.startswith("__")] == []


def test_unknown_names_are_refused() -> None:
    """The lazy package behaves like any other for a name that isn't there."""
    with pytest.raises(AttributeError, match="no_such_name"):
        remit.__getattr__("no_such_name")


def test_lazy_names_are_listed_before_they_are_loaded() -> None:
    """`dir()` shows what can be imported."""
    assert set(remit.__all__) <= set(dir(remit))
