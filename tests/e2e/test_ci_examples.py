"""The examples for CI systems: their steps are run, in order, as a runner runs them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci_kit import EXAMPLES, GitHub, GitLab, JobEnd, Machine
from forge_kit import Forge, forge
from git_repository import git, make_repository, write
from remit.testing import FakeProvider, OpenAIResponsesDialect
from remit.workspaces._protection import PROTECTED
from whole_kit import CALC, MEND, judged, reviewed, use

TOKEN = "write-token-nobody-else-has"
LOOK = use("read_file", relative_path="README.md")
HOSTILE = "Mend it $(touch owned) `id` ${{ secrets.X }} '; exit 0; '\"\n::error::fake"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The calculator with its failing test, as a forge has it."""
    source = make_repository(tmp_path / "source", CALC)
    git(tmp_path, "clone", "-q", "--bare", str(source), str(tmp_path / "calc.git"))
    return tmp_path / "calc.git"


@pytest.fixture
def hub(repository: Path) -> Generator[Forge]:
    """The forge."""
    with forge(repository, token=TOKEN) as hub:
        yield hub


@pytest.fixture
def fake() -> Generator[FakeProvider]:
    """The model's provider, which wants its key."""
    with FakeProvider([], dialect=OpenAIResponsesDialect()) as fake:
        yield fake


@pytest.fixture
def machine(tmp_path: Path, hub: Forge, fake: FakeProvider) -> Machine:
    settings = f'[providers.openai]\nkind = "openai"\nbase_url = "{fake.base_url}"\n'
    settings += 'api_key_env = "OPENAI_API_KEY"\n[prices."openai:gpt-5.2"]\nfree = true\n'
    url = f"{hub.url}/{hub.repository.name}"
    return Machine(folder=tmp_path, remote=hub.repository, url=url, settings=settings)


@pytest.fixture
def github(machine: Machine, fake: FakeProvider) -> GitHub:
    issue = {"number": 12, "title": HOSTILE, "body": "The test fails."}
    event = {"event_name": "issues", "label": {"name": "remit"}, "issue": issue}
    return GitHub(machine=machine, event=event, secrets={"OPENAI_API_KEY": fake.api_key}, token=TOKEN)


@pytest.fixture
def gitlab(machine: Machine, hub: Forge, fake: FakeProvider) -> GitLab:
    _require_curl()
    variables = {
        "REMIT_REQUEST": HOSTILE,
        "CI_PIPELINE_ID": "77",
        "CI_PROJECT_ID": "7",
        "CI_DEFAULT_BRANCH": "main",
        "CI_SERVER_HOST": "127.0.0.1",
        "CI_PROJECT_URL": machine.url.removesuffix(".git"),
        "CI_API_V4_URL": f"{hub.url}/api/v4",
    }
    secrets = {
        "remit/propose": {"OPENAI_API_KEY": fake.api_key},
        "remit/deliver": {"REMIT_WRITE_TOKEN": TOKEN},
    }
    return GitLab(machine=machine, variables=variables, secrets=secrets)


def _require_curl() -> None:
    if shutil.which("curl") is None and os.environ.get("CI") == "true" and os.geteuid() == 0:
        quiet = {"DEBIAN_FRONTEND": "noninteractive", "PATH": os.environ["PATH"]}
        for words in (["update", "-qq"], ["install", "-y", "-qq", "curl"]):  # a fresh image has no lists
            subprocess.run(["apt-get", *words], check=True, env=quiet, timeout=600, capture_output=True)
    if shutil.which("curl") is None:
        pytest.skip("curl isn't here: `apt-get install curl`")


# ---- GitHub


def test_github_makes_a_patch_and_opens_a_request(
    github: GitHub, hub: Forge, fake: FakeProvider, machine: Machine
) -> None:
    """The first job has the key alone, the second the token alone; an issue's text is no part of a script."""
    fake.script(*reviewed(MEND))
    assert github.wants("propose")
    proposed = github.run("propose")
    assert (proposed.code, proposed.outputs["changed"]) == (0, "true"), proposed.output
    assert "It is mended." in proposed.variables["summary"]
    assert TOKEN not in proposed.variables.values()
    assert machine.log("pip")
    assert fake.api_key not in machine.log("pip")
    assert "$(touch owned) `id` ${{ secrets.X }}" in str(fake.requests[0].json["input"])
    assert not list(machine.folder.rglob("owned"))
    assert hub.branches() == ["main"]
    assert github.wants("deliver", propose=proposed)
    delivered = github.run("deliver", propose=proposed)
    assert delivered.code == 0, delivered.output
    assert fake.api_key not in delivered.variables.values()
    branch = "remit/issue-12-77-1"
    assert hub.branches() == ["main", branch]
    assert hub.read(branch, "calc/__init__.py") == "def add(a, b):\n    return a + b"
    assert git(hub.repository, "diff", "--name-only", "main", branch) == "calc/__init__.py"
    words = machine.log("gh").splitlines()
    assert words[:7] == ["pr", "create", "--draft", "--head", branch, "--title", "Remit: issue #12"]
    assert "It is mended." in Path(words[-1]).read_text()


def test_github_shows_what_was_rejected(github: GitHub, hub: Forge, fake: FakeProvider) -> None:
    """The job fails with the run's exit code, the summary is there, and no second job starts."""
    fake.script(*reviewed(MEND, review=[judged("reject", summary="That isn't it.")]))
    proposed = github.run("propose")
    assert proposed.code == 5
    assert "::error title=Remit (exit code 5)::rejected by review or checks" in proposed.output
    assert "That isn't it." in proposed.variables["summary"]
    assert "That isn't it." in (github.machine.artifacts / "remit" / "summary.md").read_text()
    assert not github.wants("deliver", propose=proposed)
    assert hub.branches() == ["main"]


def test_github_says_that_a_key_is_missing(github: GitHub) -> None:
    """A secret that isn't set is an empty variable: nothing is started, and there is no summary."""
    github.secrets.clear()
    proposed = github.run("propose")
    assert proposed.code == 2
    assert "::error title=Remit (exit code 2)::wrong use or settings" in proposed.output
    assert "OPENAI_API_KEY" in proposed.output
    assert "summary" not in proposed.variables


def test_github_has_nothing_to_deliver(github: GitHub, fake: FakeProvider) -> None:
    """A completed run without a change is a success, and no second job starts."""
    fake.script(*reviewed(LOOK))
    github.event = {"event_name": "workflow_dispatch", "inputs": {"request": "What is it?"}}
    assert github.wants("propose")
    proposed = github.run("propose")
    assert (proposed.code, proposed.outputs["changed"]) == (0, "false"), proposed.output
    assert not github.wants("deliver", propose=proposed)


# ---- GitLab


def test_gitlab_makes_a_patch_and_opens_a_request(
    gitlab: GitLab, hub: Forge, fake: FakeProvider, machine: Machine
) -> None:
    """The same on GitLab, where the environment of a job says which secret it gets."""
    fake.script(*reviewed(MEND))
    proposed = gitlab.run("propose")
    assert proposed.code == 0, proposed.output
    assert TOKEN not in proposed.variables.values()
    assert machine.log("pip")
    assert fake.api_key not in machine.log("pip")
    delivered = gitlab.run("deliver")
    assert delivered.code == 0, delivered.output
    assert fake.api_key not in delivered.variables.values()
    branch = f"remit/77-{machine.jobs}"
    assert hub.branches() == ["main", branch]
    assert git(hub.repository, "diff", "--name-only", "main", branch) == "calc/__init__.py"
    (asked,) = hub.merge_requests
    assert (asked["source_branch"], asked["target_branch"]) == (branch, "main")
    assert asked["title"] == "Draft: Remit: pipeline 77"
    assert "It is mended." in asked["description"]
    assert TOKEN not in delivered.output


def test_gitlab_shows_what_was_rejected(gitlab: GitLab, hub: Forge, fake: FakeProvider) -> None:
    """The job fails with the run's exit code, and the summary is among the artifacts."""
    fake.script(*reviewed(MEND, review=[judged("reject", summary="That isn't it.")]))
    proposed = gitlab.run("propose")
    assert proposed.code == 5
    assert "Remit (exit code 5): rejected by review or checks" in proposed.output
    kept = gitlab.machine.artifacts / "propose" / "remit-out"
    assert "That isn't it." in (kept / "summary.md").read_text()
    assert not (kept / "remit.patch").exists()
    assert hub.branches() == ["main"]


# ---- what the second job refuses, whatever the first one says

CALM = {"calc/__init__.py": "def add(a, b):\n    return b + a\n", "docs/.github.md": "x\n"}
"""Changes that nobody minds."""
TRAPS: dict[str, dict[str, str]] = {
    "protected": {".github/workflows/ci.yml": "on: push\n"},
    "protected, anywhere": {".github/dependabot.yml": "version: 2\n"},
    "protected, in other letters": {".GitHub/workflows/ci.yml": "on: push\n"},
    "protected, of GitLab": {".gitlab-ci.yml": "x: y\n"},
    "protected, with a line end in its name": {".github/a\nb.yml": "x: y\n"},
    "protected, among many": {**{f"many/{n:04}.txt": "x\n" for n in range(3000)}, "AGENTS.md": "x\n"},
    "links": {"calc/link -> /etc/passwd": ""},
}


def forged(machine: Machine, change: dict[str, str], folder: str) -> JobEnd:
    """Artifacts of a first job that made this change, honest about their hash."""
    work = machine.folder / "forged"
    git(machine.folder, "clone", "-q", str(machine.remote), str(work))
    for name, text in change.items():
        path, _, target = name.partition(" -> ")
        if target:
            (work / path).symlink_to(target)
        else:
            write(work, {path: text})
    git(work, "add", "-A")
    kept = machine.artifacts / folder
    kept.mkdir(parents=True)
    patch = git(work, "diff", "--cached", "--binary") + "\n"
    (kept / "remit.patch").write_text(patch)
    (kept / "summary.md").write_text("## Remit\n")
    digest = hashlib.sha256(patch.encode()).hexdigest()
    return JobEnd(0, "", {}, {"changed": "true", "sha256": digest})


@pytest.mark.parametrize("name", TRAPS)
def test_github_refuses(github: GitHub, hub: Forge, name: str) -> None:
    """Protected paths and links stay out, and nothing is pushed."""
    ended = github.run("deliver", propose=forged(github.machine, CALM | TRAPS[name], "remit"))
    assert ended.code == 1
    assert f"The patch {'makes' if name == 'links' else 'touches'} {name.partition(',')[0]}" in ended.output
    assert hub.branches() == ["main"]


@pytest.mark.parametrize("name", TRAPS)
def test_gitlab_refuses(gitlab: GitLab, hub: Forge, name: str) -> None:
    """The same on GitLab."""
    forged(gitlab.machine, CALM | TRAPS[name], "propose/remit-out")
    ended = gitlab.run("deliver")
    assert ended.code == 1
    assert f"the patch {'makes' if name == 'links' else 'touches'} {name.partition(',')[0]}" in ended.output
    assert (hub.branches(), hub.merge_requests) == (["main"], [])


def test_both_take_a_calm_change(github: GitHub, gitlab: GitLab, hub: Forge) -> None:
    """What is refused above is refused for the path that was added there, not for the rest."""
    ended = github.run("deliver", propose=forged(github.machine, CALM, "remit"))
    assert ended.code == 0, ended.output
    shutil.copytree(github.machine.artifacts / "remit", github.machine.artifacts / "propose" / "remit-out")
    ended = gitlab.run("deliver")
    assert ended.code == 0, ended.output
    assert len(hub.branches()) == 3


def test_github_refuses_a_patch_that_was_exchanged(github: GitHub, hub: Forge) -> None:
    """What was uploaded must be what the first job said that it had made."""
    forged(github.machine, CALM, "remit")
    ended = github.run("deliver", propose=JobEnd(0, "", {}, {"changed": "true", "sha256": "0" * 64}))
    assert ended.code == 1
    assert "This isn't the patch that was made" in ended.output
    assert hub.branches() == ["main"]


def test_a_removed_workflow_is_a_change_of_it(github: GitHub, hub: Forge) -> None:
    """A rename shows a path that is gone, too."""
    source = github.machine.folder / "source"
    write(source, {".github/workflows/ci.yml": "on: push\njobs: {}\n"})
    git(source, "add", "-A")
    git(source, "commit", "-qm", "workflow")
    git(source, "push", "-q", str(hub.repository), "main")
    propose = forged(github.machine, {}, "remit")
    work = github.machine.folder / "forged"
    git(work, "mv", ".github/workflows/ci.yml", "harmless.yml")
    patch = git(work, "diff", "--cached", "--find-renames") + "\n"
    assert "rename from" in patch
    (github.machine.artifacts / "remit" / "remit.patch").write_text(patch)
    propose.outputs["sha256"] = hashlib.sha256(patch.encode()).hexdigest()
    assert github.run("deliver", propose=propose).code == 1
    assert hub.branches() == ["main"]


# ---- what the files themselves must be


HARMLESS = {
    *("if", "then", "fi", "exit", "echo", "printf", "cat"),
    *("git", "gh", "curl", "sha256sum", "grep", "mktemp"),
}
"""What a second job may start."""


def scripts_of(described: Any) -> list[str]:
    """Every script of a job."""
    if "steps" in described:
        return [step["run"] for step in described["steps"] if "run" in step]
    return [*described.get("before_script", []), *described["script"]]


def jobs_of(name: str) -> dict[str, Any]:
    whole: dict[Any, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    jobs = whole.get("jobs", whole)
    return {job: jobs[job] for job in ("propose", "deliver")}


def test_no_job_has_more_than_it_needs() -> None:
    """Nothing by default, reading for the first job, writing for the second."""
    workflow: dict[Any, Any] = yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text())
    assert workflow["permissions"] == {}
    assert set(workflow[True]) == {"issues", "workflow_dispatch"}
    jobs = workflow["jobs"]
    assert jobs["propose"]["permissions"] == {"contents": "read"}
    assert jobs["deliver"]["permissions"] == {"contents": "write", "pull-requests": "write"}
    secret = [
        (job, step.get("name"))
        for job, described in jobs.items()
        for step in described["steps"]
        if "secrets." in str(step) or "github.token" in str(step)
    ]
    assert secret == [("propose", "Run"), ("deliver", "Open a pull request")]
    assert "secrets." not in str({**workflow, "jobs": None})


def test_no_expression_stands_in_a_script() -> None:
    """What others wrote is never part of a script."""
    for name in ("github-workflow.yml", "gitlab-template.yml"):
        for described in jobs_of(name).values():
            assert not any("${{" in script for script in scripts_of(described))


def test_the_second_job_runs_nothing_of_the_repositorys() -> None:
    """Git, the shell's own tools and the forge's client are all that it starts."""
    for name in ("github-workflow.yml", "gitlab-template.yml"):
        text = re.sub(
            r"<<'END'.*?\nEND", "", "\n".join(scripts_of(jobs_of(name)["deliver"])), flags=re.DOTALL
        )
        text = re.sub(r"'[^']*'|\"[^\"]*\"", "WORD", re.sub(r"^\s*#.*", "", text, flags=re.MULTILINE))
        text = text.replace("\\\n", " ")
        begun = re.findall(
            r"(?:^|[|&;(]|\bif |\bdo )\s*(?:\w+=\S* )?([a-z][\w-]*)(?= |$)", text, re.MULTILINE
        )
        assert set(begun) <= HARMLESS, (name, set(begun) - HARMLESS)
        assert "git apply --cached" in text
        assert " checkout " not in text


def test_both_protect_the_same_and_what_remit_protects() -> None:
    """Each pattern of `protected` has a path here, and the examples refuse it."""
    lists = [
        re.findall(r"<<'END'\n(.*?)\nEND\n", "\n".join(scripts_of(jobs_of(name)["deliver"])), re.DOTALL)
        for name in ("github-workflow.yml", "gitlab-template.yml")
    ]
    assert lists[0] == lists[1]
    patterns = [re.compile(line.encode(), re.IGNORECASE) for line in lists[0][0].splitlines()]
    for pattern in PROTECTED:
        path = pattern.replace("**/", "deep/").replace("/**", "/x").replace("*", "a")
        path = path.replace(".yaml", ".yml")
        assert any(found.search(path.encode()) for found in patterns), pattern
    for calm in (b"README.md", b"src/github/app.py", b"docs/AGENTS.md.txt", b"src/jenkins.py"):
        assert not any(found.search(calm) for found in patterns), calm


def test_the_page_tells_of_both() -> None:
    """The how-to page names both files and the codes that they handle."""
    page = (EXAMPLES.parent / "docs" / "how-to" / "run-in-ci.md").read_text()
    for name in ("github-workflow.yml", "gitlab-template.yml"):
        assert f"examples/{name}" in page
