"""``make release``: what it writes, and when it refuses."""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PARTS = ("src", "packaging", "docs", "requirements", "pyproject.toml", "mkdocs.yml", "Makefile")


def git(root, *words):
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path):
    """Return a repository of its own with the sources of this one."""
    root = tmp_path / "repository"
    root.mkdir()
    texts = [path.name for path in REPOSITORY.glob("*.md")]
    for name in (*PARTS, "LICENSE", *texts):
        source = REPOSITORY / name
        leave = shutil.ignore_patterns("__pycache__", "*.so")
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=leave)
        else:
            shutil.copy(source, root / name)
    # Also right after a release, when the changelog has no such section.
    changelog = root / "CHANGELOG.md"
    changelog.write_text(
        changelog.read_text().replace("\n## [", "\n## [next] - Unreleased\n\n## [", 1)
    )
    (root / ".gitignore").write_text("build/\ndist/\n__pycache__/\n")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "all")
    return root


def release(root, version):
    command = [sys.executable, "-B", root / "packaging/release.py", version]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_release_has_wheel_sources_bill_of_materials_and_checksums(root):
    done = release(root, "7.8.9")
    assert done.returncode == 0, done.stderr
    dist = root / "dist"
    (built,) = dist.glob("rocketlens-7.8.9-cp311-abi3-*.whl")
    names = {
        built.name,
        "rocketlens-7.8.9.tar.gz",
        "rocketlens-7.8.9.cdx.json",
    }
    assert {path.name for path in dist.iterdir()} == names | {"SHA256SUMS"}
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
        names.remove(name)
    assert not names
    wheel = zipfile.ZipFile(built)
    assert "rocketlens/formats/compiled/scan.abi3.so" in wheel.namelist()
    assert '__version__ = "7.8.9"' in wheel.read("rocketlens/__init__.py").decode()
    with tarfile.open(dist / "rocketlens-7.8.9.tar.gz") as sources:
        assert "rocketlens-7.8.9/packaging/hatch_build.py" in sources.getnames()
    chart = (root / "packaging/helm/rocketlens/Chart.yaml").read_text()
    assert 'appVersion: "7.8.9"' in chart
    assert "\nversion: 7.8.9\n" in chart
    assert "## [7.8.9] - 2" in (root / "CHANGELOG.md").read_text()
    assert "git tag v7.8.9" in done.stdout
    # It changed the tree, so the next one is refused.
    again = release(root, "7.8.10")
    assert again.returncode == 1
    assert "not committed" in again.stderr
    bill = json.loads((dist / "rocketlens-7.8.9.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["name"]: each for each in bill["components"]}
    assert {"numpy", "lz4", "pyyaml", "pyarrow"} <= set(components)
    assert "pytest" not in components
    import numpy as np

    assert components["numpy"]["purl"] == f"pkg:pypi/numpy@{np.__version__}"
    references = {each["bom-ref"] for each in components.values()}
    for each in bill["dependencies"]:
        assert set(each["dependsOn"]) <= references


@pytest.mark.parametrize(
    ("version", "says"), [("", "invalid version"), ("v1", "invalid version"), ("1.0", "invalid")]
)
def test_what_is_no_version_is_refused(root, version, says):
    done = release(root, version)
    assert done.returncode == 1
    assert says in done.stderr
    assert not (root / "dist").exists()


def test_a_tree_with_changes_is_refused_and_left_as_it_is(root):
    (root / "README.md").write_text("changed")
    before = (root / "CHANGELOG.md").read_text()
    done = release(root, "7.8.9")
    assert done.returncode == 1
    assert "README.md" in done.stderr
    assert (root / "CHANGELOG.md").read_text() == before
