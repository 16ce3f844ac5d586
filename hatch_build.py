"""Compiles the part of fedrelay that trains small models outside the interpreter, where there is a C compiler.

Without one the package is built all the same, and does without that part. `python hatch_build.py` compiles it in place.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # by hand, outside a build
    BuildHookInterface = object

FOLDER = Path("src/fedrelay/kernels/native")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
FLAGS = ("-O3", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden")


def compile_in(root: Path) -> Path | None:
    """The compiled library, beside its sources; None, with a word, if there is no compiler or it fails."""
    sources, target = sorted((root / FOLDER).glob("*.c")), root / FOLDER / f"dense.lib{SUFFIX}"
    named = shlex.split(os.environ.get("CC", ""))
    compiler = named or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        print("fedrelay: no C compiler, so small models train at the interpreter's speed", file=sys.stderr)
        return None
    half = target.with_name(f"{target.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, "-o", str(half), *map(str, sources), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        print(f"fedrelay: {compiler[0]} does not run ({error}), so small models are slower", file=sys.stderr)
        return None
    if done.returncode:
        print(f"fedrelay: {shlex.join(command)} failed, so small models are slower:\n{done.stderr}", file=sys.stderr)
        half.unlink(missing_ok=True)
        return None
    half.replace(target)  # a program that has the old one open keeps it
    return target


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc, valid-type, unused-ignore]
    """What hatchling calls when it builds a wheel, or installs in place."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = compile_in(Path(self.root))
        if library is not None:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["artifacts"].append(library.relative_to(self.root).as_posix())


if __name__ == "__main__":
    print(compile_in(Path(__file__).parent) or "not compiled")
