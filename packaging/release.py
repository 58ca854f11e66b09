"""Makes a release: writes the version, and builds what is published into ``dist/``.

    make release VERSION=0.2.0

1. It refuses a tree with changes that are not committed, and a version that the changelog has.
2. The version is written to `src/rocketlens/__init__.py`, the Helm chart and `CHANGELOG.md`, with
   today's date there.
3. ``dist/`` gets the wheel of this platform, the source distribution, the SBOM (CycloneDX) and
   ``SHA256SUMS``.

Nothing is committed, tagged or published: the last lines say how. It needs no network. The wheels
of all platforms, for the package index, are built by ``pipx run cibuildwheel``, which needs Docker.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME = "rocketlens"
_UNRELEASED = re.compile(r"^## \[[^\]]+\] - Unreleased$", re.MULTILINE)
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")


def main(version: str) -> None:
    """Make the release of a version.

    :raises SystemExit: with what is wrong.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        sys.exit(f"invalid version {version!r}: expected 0.2.0, or 0.2.0rc1")
    changed = _run("git", "status", "--porcelain")
    if changed:
        sys.exit(f"the tree has changes that are not committed:\n{changed}")
    _write_version(version, datetime.now(UTC).date())
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for old in filter(Path.is_file, dist.iterdir()):
        old.unlink()
    for target in ("wheel", "sdist"):
        _run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(dist))
    bom = dist / f"{NAME}-{version}.cdx.json"
    bom.write_text(json.dumps(bill_of_materials(version), indent=2) + "\n", encoding="utf-8")
    built = sorted(dist.iterdir())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    (dist / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    for path in sorted(dist.iterdir()):
        print(path.relative_to(ROOT))
    print(f"next: git commit -am 'release {version}' && git tag v{version}; publish dist/")


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _write_version(version: str, today: date) -> None:
    path = ROOT / "CHANGELOG.md"
    text = path.read_text(encoding="utf-8")
    if not _UNRELEASED.search(text):
        sys.exit("CHANGELOG.md has no section '## [...] - Unreleased'")
    if re.search(rf"^## \[{re.escape(version)}\] - \d", text, re.MULTILINE):
        sys.exit(f"CHANGELOG.md has a release {version}")
    path.write_text(_UNRELEASED.sub(f"## [{version}] - {today}", text, count=1), encoding="utf-8")
    for name, pattern in (
        ("src/rocketlens/__init__.py", r'^(__version__ = )"[^"]+"$'),
        ("packaging/helm/rocketlens/Chart.yaml", r"^(version: )\S+$"),
        ("packaging/helm/rocketlens/Chart.yaml", r"^(appVersion: )\S+$"),
    ):
        path = ROOT / name
        quoted = version if pattern.startswith(r"^(version") else f'"{version}"'
        text, count = re.subn(
            pattern, rf"\g<1>{quoted}", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        if count != 1:
            sys.exit(f"{name} has no line {pattern}")
        path.write_text(text, encoding="utf-8")


def bill_of_materials(version: str) -> dict[str, Any]:
    """Return a CycloneDX document of what is installed here of the package's dependencies.

    Those of all extras are among them, with the versions of the locks.
    """
    needs = {NAME: sorted(_needed_by(NAME))}
    waiting = list(needs[NAME])
    while waiting:
        name = waiting.pop()
        if name not in needs:
            needs[name] = sorted(_needed_by(name))
            waiting += needs[name]
    versions = {name: metadata.version(name) for name in needs} | {NAME: version}
    components = [_component(name, versions[name]) for name in sorted(needs) if name != NAME]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(NAME, version) | {"type": "application"}},
        "components": components,
        "dependencies": [
            {
                "ref": _purl(name, versions[name]),
                "dependsOn": [_purl(each, versions[each]) for each in below],
            }
            for name, below in sorted(needs.items())
        ],
    }


def _needed_by(name: str) -> Iterator[str]:
    """Return the distributions that one requires, as far as they are installed."""
    for requirement in metadata.requires(name) or ():
        match = _REQUIREMENT.match(requirement)
        if match is None or ("extra ==" in requirement and name != NAME):
            continue
        try:
            yield _normal(metadata.metadata(match[1])["Name"])
        except metadata.PackageNotFoundError:
            # Another system's, or another Python's.
            continue


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _component(name: str, version: str) -> dict[str, Any]:
    described = metadata.metadata(name)
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": _purl(name, version),
        "name": name,
        "version": version,
        "purl": _purl(name, version),
    }
    expression = described.get("License-Expression")
    if expression:
        found["licenses"] = [{"expression": expression}]
    hashes = _locked_hashes().get((name, version), ())
    if hashes:
        found["properties"] = [{"name": "rocketlens:sha256", "value": each} for each in hashes]
    return found


def _locked_hashes() -> dict[tuple[str, str], list[str]]:
    """Return the checksums of the files that the lock allows, by name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    hashes: list[str] = []
    for line in (ROOT / "requirements/dev.lock").read_text(encoding="utf-8").splitlines():
        pinned = re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", line)
        if pinned:
            hashes = found[_normal(pinned[1]), pinned[2]] = []
        hashes += re.findall(r"--hash=sha256:([0-9a-f]{64})", line)
    return found


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
