"""Becomes the package `kubernetesdlprofile` in jobs whose Python may have that library or not.

A copy of this file is first on their PYTHONPATH, under the name of the package. It gives way to the
library of the job's own Python; the daemon's copy, which lies beside it, is for those without one.
It runs in any Python from 3.6 on, and imports nothing of ours.
"""

# ruff: noqa: PTH100, PTH118, PTH120  # every training imports it: no pathlib

import importlib.machinery
import importlib.util
import os
import sys

CURRENT = "current"  # the folder that has the daemon's copy


def find(name: str, folder: str) -> importlib.machinery.ModuleSpec:
    """Returns the package as it would be found without `folder` on the path, else the copy."""
    path = sys.path[:]
    sys.path[:] = [each for each in path if os.path.abspath(each or ".") != folder]
    try:
        for finder in sys.meta_path:
            spec = finder.find_spec(name, None)
            if spec is not None and spec.origin is not None:  # else it is a folder without code
                return spec
    finally:
        sys.path[:] = path
    copy = os.path.join(folder, CURRENT, name)
    found = importlib.util.spec_from_file_location(
        name, os.path.join(copy, "__init__.py"), submodule_search_locations=[copy]
    )
    assert found is not None
    return found


def become(name: str, file: str) -> None:
    """Makes this module, imported as `name`, the package that is found."""
    spec = find(name, os.path.dirname(os.path.dirname(os.path.abspath(file))))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)


if __name__ == "kubernetesdlprofile":
    become(__name__, __file__)
