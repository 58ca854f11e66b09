"""``make release``: what it writes, when it refuses, and what `packaging/` starts."""

import configparser
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

import rocketlens
from rocketlens.main import build_parser

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
    names = {built.name, "rocketlens-7.8.9.tar.gz", "rocketlens-7.8.9.cdx.json"}
    assert {path.name for path in dist.iterdir()} == names | {"SHA256SUMS"}
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
        names.remove(name)
    assert not names
    wheel = zipfile.ZipFile(built)
    assert "rocketlens/formats/compiled/scan.abi3.so" in wheel.namelist()
    assert '__version__ = "7.8.9"' in wheel.read("rocketlens/__init__.py").decode()
    pages = {Path(name).name for name in wheel.namelist() if "/data/share/man/man1/" in name}
    assert {"rocketlens.1", "rocketlens-find.1", "rocketlens-dlq-redrive.1"} <= pages
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


PACKAGING = Path(__file__).parents[2] / "packaging"
CHART = PACKAGING / "helm" / "rocketlens"


def command_lines():
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read(PACKAGING / "systemd/rocketlens.service")
    assert unit["Service"]["Type"] == "notify"
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "rocketlens"
    yield words
    docker = (PACKAGING / "docker/Dockerfile").read_text()
    yield json.loads(re.search(r"^CMD (\[.*\])$", docker, re.MULTILINE)[1])
    compose = yaml.safe_load((PACKAGING / "docker/compose.yaml").read_text())
    for service in compose["services"].values():
        yield service["command"]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for template in sorted((CHART / "templates").glob("*.yaml")):
        for line in re.findall(r"args: (\[.*?\])\n", template.read_text(), re.DOTALL):
            words = re.sub(r"{{ .Values.(\w+).(\w+) }}", lambda m: str(values[m[1]][m[2]]), line)
            yield yaml.safe_load(re.sub(r"{{.*?}}", "lens-namesrv:9876", words))


@pytest.mark.parametrize("words", list(command_lines()), ids=" ".join)
def test_commands_have_the_options_that_they_are_given(words):
    # The name of a service is resolved in its network only.
    words = ["10.0.0.5" if word.startswith(("broker-", "$(POD")) else word for word in words]
    arguments = build_parser(words).parse_args(words)
    if words[0] == "console":
        assert arguments.bind[1] == 8088
    else:
        assert arguments.metrics_port[1] == 9557


def of_objects(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


def by_name(schema):
    return {"type": "object", "additionalProperties": schema, "minProperties": 1}


TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}
SERVICE = of_objects(
    image=TEXT,
    build=of_objects(context=TEXT, dockerfile=TEXT),
    restart={"enum": ["no", "always", "on-failure", "unless-stopped"]},
    stop_grace_period={"type": "string", "pattern": r"^\d+(s|m)$"},
    read_only={"type": "boolean"},
    ulimits=by_name({"type": "integer"}),
    depends_on=by_name(of_objects(condition={"enum": ["service_started", "service_healthy"]})),
    configs={"type": "array", "items": of_objects(source=TEXT, target=TEXT)},
    healthcheck=of_objects(test=TEXTS),
    **dict.fromkeys(
        ("tmpfs", "cap_drop", "security_opt", "profiles", "command", "ports", "volumes"), TEXTS
    ),
)
COMPOSE = of_objects(
    name={"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
    services=by_name(SERVICE),
    configs=by_name(of_objects(content=TEXT)),
    volumes=by_name({"type": "null"}),
    **{"x-server": SERVICE},
)
"""What the Compose specification calls the elements that our file uses, with their types."""


def test_the_compose_file_has_elements_of_the_compose_specification_that_exist_in_it():
    compose = yaml.safe_load((PACKAGING / "docker/compose.yaml").read_text())
    Draft202012Validator(COMPOSE).validate(compose)
    image_is_checked = "\nHEALTHCHECK" in (PACKAGING / "docker/Dockerfile").read_text()
    for name, service in compose["services"].items():
        assert (PACKAGING / "docker" / service["build"]["context"]).is_dir()
        assert {each["source"] for each in service.get("configs", ())} <= compose["configs"].keys()
        volumes = {each.split(":")[0] for each in service.get("volumes", ())}
        assert {each for each in volumes if not each.startswith(".")} <= compose["volumes"].keys()
        for other, waits in service.get("depends_on", {}).items():
            needed = compose["services"][other]
            assert waits["condition"] != "service_healthy" or (
                image_is_checked or "healthcheck" in needed
            )
            # A service of a profile is not there unless it is asked for.
            assert set(needed.get("profiles", ())) <= set(service.get("profiles", ())), name


@pytest.mark.parametrize(
    "change",
    [
        {"comand": ["x"]},
        {"ports": "8088"},
        {"restart": "sometimes"},
        {"depends_on": {"namesrv": {"condition": "healthy"}}},
    ],
)
def test_a_wrong_element_of_the_compose_file_is_found(change):
    assert not Draft202012Validator(SERVICE).is_valid(change)


def test_files_that_an_image_is_made_of_are_there():
    docker = (PACKAGING / "docker/Dockerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", docker, re.MULTILINE):
        for source in sources.split():
            assert (PACKAGING.parent / source).exists(), source
    assert "\nUSER rocketlens\n" in docker


def test_an_image_has_each_extra_that_needs_no_jvm():
    docker = (PACKAGING / "docker/Dockerfile").read_text()
    project = tomllib.loads((PACKAGING.parent / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r'"\.\[(.*)\]"', docker)
    # Tables for programs: an image has none.
    left_out = {"all", "spark", "arrow", "pandas", "polars"}
    assert set(extras.split(",")) == project["optional-dependencies"].keys() - left_out


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == rocketlens.__version__


def rendered(*values):
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    command = [helm, "template", "lens", CHART, *values]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_helm_renders_a_name_server_and_a_store_for_each_broker(tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(
        "brokers:\n- name: broker-a\n  config: |\n    flushDiskType=SYNC_FLUSH\n- name: broker-b\n"
        "console: {enabled: true, usersSecret: console-users}\ntap: {enabled: true}\n"
    )
    found = {(each["kind"], each["metadata"]["name"]): each for each in rendered("-f", values)}
    assert {name for kind, name in found if kind == "StatefulSet"} == {
        "lens-broker-a",
        "lens-broker-b",
        "lens-tap",
    }
    assert {name for kind, name in found if kind == "Deployment"} == {
        "lens-namesrv",
        "lens-console",
    }
    config = found["ConfigMap", "lens-broker-a"]["data"]["broker.conf"]
    assert config.split() == ["brokerName=broker-a", "flushDiskType=SYNC_FLUSH"]
    for (kind, name), each in found.items():
        if kind not in {"StatefulSet", "Deployment"}:
            continue
        pod = each["spec"]["template"]
        selector = each["spec"]["selector"]["matchLabels"]
        assert selector.items() <= pod["metadata"]["labels"].items()
        assert found["Service", name]["spec"]["selector"] == selector
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        volumes |= {one["metadata"]["name"] for one in each["spec"].get("volumeClaimTemplates", ())}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        ports = {port["name"] for port in container["ports"]}
        probes = (container[f"{probe}Probe"] for probe in ("startup", "readiness", "liveness"))
        assert {probe["httpGet"]["port"] for probe in probes} <= ports


def test_continuous_integration_tries_what_the_readme_names():
    root = PACKAGING.parent
    lowest = re.search(r"Python >= 3\.(\d+) on Linux or macOS", (root / "README.md").read_text())[1]
    jobs = yaml.safe_load((root / ".github/workflows/ci.yml").read_text())["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    assert matrix["python"][0] == f"3.{lowest}"
    machines = [*matrix["machine"], *(extra["machine"] for extra in matrix["include"])]
    assert {machine.split("-")[0] for machine in machines} == {"ubuntu", "macos"}
    assert any(machine.endswith("-arm") for machine in machines)
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    ci = (root / ".ci/run").read_text()
    for target in ("make check", "make test"):
        assert any(step.startswith(target) for step in steps)
        assert target in ci


def test_hooks_before_a_commit_are_the_checks_of_make_check():
    root = PACKAGING.parent
    hooks = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entries = " ".join(hook["entry"] for hook in hooks)
    tools = re.search(r"for tool in (.*); do", (root / "Makefile").read_text())[1]
    for tool in re.findall(r'"?([a-z-]+)[^"]*"?', tools.replace("$(mkdocs)", "mkdocs")):
        assert tool in entries


def test_what_the_constants_of_kernels_import_is_required_to_build():
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'packaging'); import kernels\n"
        "names = set(); source = Path('src')\n"
        "sys.addaudithook(lambda event, words: event == 'import' and names.add(words[0]))\n"
        "for path in source.glob('rocketlens/formats/compiled/*_constants.py'):\n"
        "    kernels._values_of(source, path)\n"
        "print(*names)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    required = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["build-system"][
        "requires"
    ]
    names = {re.split("[<>=]", each)[0] for each in required}
    packages = {path.name for path in Path(sysconfig.get_path("purelib")).iterdir()}
    assert "msgspec" in packages & imported <= names
