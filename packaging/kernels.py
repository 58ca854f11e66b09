"""Builds the kernels of ``formats/compiled``: Python with C types, compiled by Cython.

Run as a program, it builds them beside their sources, where an editable installation loads them::

    python packaging/kernels.py              # what is older than its sources
    python packaging/kernels.py --sanitize   # in build/sanitize/src, with sanitizers

The constants of the layouts are written to a ``.pxd`` beside each ``*_constants.py``, so that C
sees numbers. Extensions keep to Python's stable ABI: one serves all versions from 3.11 on.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = "rocketlens/formats/compiled"
SUFFIX: Final = ".abi3.so"
ABI: Final = (3, 11)
ZIG: Final = "ziglang>=0.13"
"""A C compiler from the package index (MIT), for machines that have none."""

_OPTIMIZE: Final = ("-O3", "-DNDEBUG")
_SANITIZE: Final = (
    *("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
    "-fno-sanitize-recover=undefined",
)
# As in Java, numbers wrap around.
_ALWAYS: Final = ("-fPIC", "-fwrapv", "-fno-strict-aliasing", "-fvisibility=hidden", "-w")
_DIRECTIVES: Final = {
    "language_level": "3",
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "always_allow_keywords": False,
    "auto_pickle": False,
    # A function of C raises nothing, unless it says so: @cython.exceptval(-1).
    "legacy_implicit_noexcept": True,
}
_C_TYPES: Final = {
    "int64": "long long",
    "uint64": "unsigned long long",
    "int32": "int",
    "uint32": "unsigned int",
}


def compiler() -> list[str] | None:
    """Return the command of the C compiler: the one ``CC`` names, the system's, or Zig's."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


def build(source: Path, target: Path, *, sanitize: bool = False) -> list[Path]:
    """Compile the kernels of a ``src`` directory into ``target``; return the extensions.

    What is newer than all sources is not built again.
    """
    folder, into = source / FOLDER, target / FOLDER
    for path in sorted(folder.glob("*_constants.py")):
        _write_constants(source, path)
    shared = [*folder.glob("*.pxd"), *folder.glob("*.h"), Path(__file__)]
    newest_shared = max(path.stat().st_mtime for path in shared)
    modules = _modules(folder)
    old = [
        module
        for module in modules
        if not (built := into / f"{module.stem}{SUFFIX}").exists()
        or built.stat().st_mtime < max(newest_shared, module.stat().st_mtime)
    ]
    if old:
        command = compiler()
        if command is None:
            raise SystemExit(
                "RocketLens's kernels are compiled when it is built, and there is no C compiler: "
                "apt install gcc libc6-dev, or xcode-select --install, gives one, and Zig's comes "
                f'from the package index: pip install "{ZIG}"'
            )
        into.mkdir(parents=True, exist_ok=True)
        flags = _SANITIZE if sanitize else _OPTIMIZE
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(lambda module: _compile(command, source, module, into, flags), old))
    return [into / f"{module.stem}{SUFFIX}" for module in modules]


def wheel_tag() -> str:
    """Return the tag of a wheel with the extensions that this machine builds."""
    platform = sysconfig.get_platform()
    if platform.startswith("macosx"):
        oldest = os.environ.get("MACOSX_DEPLOYMENT_TARGET") or platform.split("-")[1]
        platform = f"macosx-{oldest}-{platform.split('-')[2]}"
    return f"cp{ABI[0]}{ABI[1]}-abi3-{platform.replace('-', '_').replace('.', '_')}"


def _modules(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.glob("*.py") if "\nimport cython\n" in path.read_text("utf-8")
    )


def _compile(
    command: list[str], source: Path, module: Path, into: Path, flags: tuple[str, ...]
) -> None:
    name = ".".join(module.relative_to(source).with_suffix("").parts)
    written = into / f"{module.stem}.c"
    # A process for each: Cython keeps state, and holds the interpreter's lock.
    options = [f"--directive={key}={value}" for key, value in _DIRECTIVES.items()]
    _run(
        [
            *(sys.executable, "-m", "cython", *options, f"--module-name={name}"),
            *("-I", str(source), str(module), "-o", str(written)),
        ],
        f"{module.name} is no valid Cython",
    )
    limited = f"-DPy_LIMITED_API=0x{ABI[0]:02x}{ABI[1]:02x}0000"
    include = [f"-I{sysconfig.get_path('include')}", f"-I{module.parent}"]
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise SystemExit(
            "RocketLens's kernels are compiled when it is built, and this Python has no headers: "
            f"install them (apt install python{ABI[0]}-dev, dnf install python{ABI[0]}-devel)"
        )
    is_mac = sys.platform == "darwin"
    shared = ["-bundle", "-undefined", "dynamic_lookup"] if is_mac else ["-shared"]
    more = [*shlex.split(os.environ.get("CFLAGS", "")), *shlex.split(os.environ.get("LDFLAGS", ""))]
    target = into / f"{module.stem}{SUFFIX}"
    unfinished = target.with_suffix(".new")
    strip = [] if "-g" in flags or is_mac else ["-s"]
    _run(
        [
            *(*command, *shared, *_ALWAYS, *flags, *strip, *more, limited, *include),
            *(str(written), "-o", str(unfinished)),
        ],
        f"the C compiler {command[-1]!r} could not compile {module.name}",
    )
    unfinished.replace(target)
    written.unlink()


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"RocketLens's kernels were not built, because {failure}:"
        raise SystemExit(f"{message}\n{done.stderr[:4000]}")


def _write_constants(source: Path, path: Path) -> None:
    """Write a ``.pxd`` with the numbers, texts and rows that a module declares."""
    values = _values_of(source, path)
    lines = [f"# Written by packaging/kernels.py from {path.name}.", ""]
    numbers, arrays = [], []
    for name, value in values.items():
        if name.endswith("_FIELDS") and isinstance(value, tuple):
            lines += [f"cdef struct {name.removesuffix('_FIELDS').title()}:"]
            lines += [f"    {_C_TYPES[kind]} {field}" for field, kind in value] + [""]
        elif name.isupper() and isinstance(value, int):
            numbers.append(_number(name, value))
        elif isinstance(value, bytes | tuple) and name.isupper() and isinstance(value[0], int):
            arrays.append((name, value))
    if arrays:
        lines += ["cdef extern from *:", '    """']
        lines += [_c_array(name, value) for name, value in arrays] + ['    """']
        lines += [f"    const {_element(value)} {name}[{len(value)}]" for name, value in arrays]
    if numbers:
        lines += ["cdef extern from *:", *numbers]
    text = "\n".join(lines) + "\n"
    target = path.with_suffix(".pxd")
    if not target.exists() or target.read_text("utf-8") != text:
        target.write_text(text, "utf-8")


def _values_of(source: Path, path: Path) -> dict[str, Any]:
    """Return what a module declares; the package that it is in is not built, and not imported."""
    before = dict(sys.modules)
    package = ModuleType(FOLDER.replace("/", "."))
    package.__path__ = [str(path.parent)]
    sys.path.insert(0, str(source))
    sys.modules[package.__name__] = package
    try:
        return vars(import_module(f"{package.__name__}.{path.stem}"))
    finally:
        sys.path.remove(str(source))
        sys.modules.clear()
        sys.modules.update(before)


def _number(name: str, value: int) -> str:
    if value == -(2**63):
        return f'    const long long {name} "(-0x7fffffffffffffffLL - 1)"'
    if value >= 2**63:
        return f'    const unsigned long long {name} "{value:#x}ULL"'
    return f'    const long long {name} "{value}LL"'


def _element(value: bytes | tuple[int, ...]) -> str:
    return "unsigned char" if isinstance(value, bytes) else "long long"


def _c_array(name: str, value: Any) -> str:
    items = ", ".join(map(str, value))
    return f"    static const {_element(value)} {name}[] = {{{items}}};"


if __name__ == "__main__":
    if "--sanitize" in sys.argv:
        copy = ROOT / "build" / "sanitize" / "src"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        build(copy, copy, sanitize=True)
    else:
        build(ROOT / "src", ROOT / "src")
