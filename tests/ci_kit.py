"""Runners of CI systems, as far as the examples use them: their YAML, their variables, their artifacts.

Each step is run by bash as the real runner runs it. What a step uses of others' (checkouts, artifacts) is
done here; programs that act on the machine or the forge (`pip`, `sudo`, `gh`) are small stand-ins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from git_repository import git

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROGRAMS = {
    "remit": 'exec {python} -m remit.cli "$@"',
    "python": 'if [ "$1 $2" = "-m pip" ]; then env > {log}/pip; else exec {python} "$@"; fi',
    "sudo": 'echo "$@" > {log}/sudo',
    "gh": """if [ "$1 $2" = "auth setup-git" ]; then
  git config --global credential.helper '!f() {{ echo username=x; echo "password=$GH_TOKEN"; }}; f'
else
  printf '%s\\n' "$@" > {log}/gh
fi""",
}
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_PART = re.compile(r"'(?P<text>[^']*)'|(?P<sign>==|\|\||&&)|(?P<name>[\w.]+(?:\(\))?)|\s+")


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended."""

    code: int
    output: str
    """What its log shows."""
    variables: dict[str, str]
    """Everything that any of its scripts saw, the last value of each name."""
    outputs: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True)
class Machine:
    """Where jobs run: each in a folder of its own, with nothing of the tester's but git and Python."""

    folder: Path
    remote: Path
    """The repository that the forge has, bare."""
    url: str
    """Where it is pushed to."""
    settings: str
    """The model's settings, as a file of the user's own."""
    jobs: int = 0

    @property
    def artifacts(self) -> Path:
        """What jobs kept for each other."""
        return self.folder / "artifacts"

    def log(self, name: str) -> str:
        """What a stand-in was told; empty: it wasn't called."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def start_job(self) -> tuple[Path, dict[str, str]]:
        """A fresh machine with a shallow checkout; returns its folder and its variables."""
        self.jobs += 1
        base = self.folder / f"job-{self.jobs}"
        programs, home, settings = base / "bin", base / "home", base / "home" / ".config" / "remit"
        for made in (programs, settings, base / "temp"):
            made.mkdir(parents=True)
        for name, text in PROGRAMS.items():
            (programs / name).write_text(
                "#!/bin/bash\n" + text.format(python=sys.executable, log=self.folder)
            )
            (programs / name).chmod(0o755)
        (settings / "remit.toml").write_text(self.settings)
        git(base, "clone", "-q", "--depth", "1", f"file://{self.remote}", str(base / "work"))
        git(base / "work", "remote", "set-url", "origin", self.url)
        path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
        names = {name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ}
        return base, {**names, "PATH": path, "HOME": str(home), "TMPDIR": str(base / "temp"), "CI": "true"}

    def run_script(self, base: Path, script: str, variables: dict[str, str]) -> tuple[int, str]:
        """Run a script in the checkout; returns its exit code and what it printed."""
        path = base / "script"
        path.write_text(script)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(path)],
            cwd=base / "work",
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=110,
        )
        return done.returncode, done.stdout.decode(errors="replace")


# ---- GitHub


@dataclass(kw_only=True)
class GitHub:
    """Runs the jobs of a workflow."""

    machine: Machine
    event: dict[str, Any]
    secrets: dict[str, str]
    token: str
    workflow: dict[Any, Any] = field(
        default_factory=lambda: yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text())
    )

    def wants(self, job: str, **needs: JobEnd) -> bool:
        """Whether the job is started at all."""
        failed = any(end.code for end in needs.values())
        return not failed and bool(self._value(self.workflow["jobs"][job]["if"], needs, {}, ""))

    def run(self, job: str, **needs: JobEnd) -> JobEnd:
        """Run a job on a fresh machine."""
        described = self.workflow["jobs"][job]
        base, plain = self.machine.start_job()
        temp = str(base / "temp")
        summary, told = base / "summary", base / "output"
        plain |= {"RUNNER_TEMP": temp, "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(told)}
        plain |= {"GITHUB_RUN_ID": "77", "GITHUB_RUN_ATTEMPT": "1", **self._texts(self.workflow["env"])}
        code, log, steps, seen = 0, "", dict[str, dict[str, str]](), dict[str, str]()
        for step in described["steps"]:
            wanted = self._value(step.get("if", "''"), needs, steps, temp)
            if code and not wanted:
                continue
            if "uses" in step:
                self._use(step["uses"], self._texts(step.get("with", {}), needs, steps, temp))
                continue
            told.write_text("")
            variables = plain | self._texts(step.get("env", {}), needs, steps, temp)
            seen |= variables
            ended, printed = self.machine.run_script(base, step["run"], variables)
            code, log = code or ended, log + printed
            lines = (line.partition("=") for line in told.read_text().splitlines())
            steps[step.get("id", "")] = {name: value for name, _, value in lines}
        outputs = self._texts(described.get("outputs", {}), needs, steps, temp)
        if summary.exists():
            seen["summary"] = summary.read_text()
        return JobEnd(code, log, seen, outputs)

    def _use(self, name: str, given: dict[str, str]) -> None:
        action = name.partition("@")[0]
        if action == "actions/upload-artifact":
            shutil.copytree(given["path"], self.machine.artifacts / given["name"], dirs_exist_ok=True)
        elif action == "actions/download-artifact":
            shutil.copytree(self.machine.artifacts / given["name"], given["path"])
        else:
            assert action in {"actions/checkout", "actions/setup-python"}, name
            if action == "actions/checkout":
                assert given["persist-credentials"] == "False"

    def _texts(
        self,
        table: dict[str, Any],
        needs: dict[str, JobEnd] | None = None,
        steps: dict[str, dict[str, str]] | None = None,
        temp: str = "",
    ) -> dict[str, str]:
        """A table's values with their expressions worked out."""
        return {
            name: _EXPRESSION.sub(
                lambda found: str(self._value(found[1], needs or {}, steps or {}, temp)), str(value)
            )
            for name, value in table.items()
        }

    def _value(
        self, expression: str, needs: dict[str, JobEnd], steps: dict[str, dict[str, str]], temp: str
    ) -> str | bool:
        """What an expression says: names, texts, `==`, `||`, `&&`."""
        known: dict[str, Any] = {
            "github": {
                "event": self.event,
                "token": self.token,
                "run_id": "77",
                "event_name": self.event["event_name"],
            },
            "inputs": self.event.get("inputs", {}),
            "secrets": self.secrets,
            "needs": {name: {"outputs": end.outputs} for name, end in needs.items()},
            "steps": {name: {"outputs": outputs} for name, outputs in steps.items()},
            "runner": {"temp": temp},
        }
        words: list[str] = []
        for part in _PART.finditer(expression):
            if part["text"] is not None:
                words.append(repr(part["text"]))
            elif part["sign"]:
                words.append({"==": "==", "||": "or", "&&": "and"}[part["sign"]])
            elif part["name"]:
                words.append("True" if part["name"] == "always()" else repr(_look_up(known, part["name"])))
        return eval(" ".join(words), {"__builtins__": {}})  # literals and three operators, made just above


def _look_up(known: Any, name: str) -> str:
    for part in name.split("."):
        known = known.get(part) if isinstance(known, dict) else None
    return "" if known is None else str(known)


# ---- GitLab


@dataclass(kw_only=True)
class GitLab:
    """Runs the jobs of a template."""

    machine: Machine
    variables: dict[str, str]
    """What the pipeline was started with, and what GitLab itself says."""
    secrets: dict[str, dict[str, str]]
    """Variables by the environment that they are bound to."""
    template: dict[str, Any] = field(
        default_factory=lambda: yaml.safe_load((EXAMPLES / "gitlab-template.yml").read_text())
    )

    def run(self, job: str) -> JobEnd:
        """Run a job on a fresh machine."""
        described = self.template[job]
        base, plain = self.machine.start_job()
        bound = self.secrets.get(described["environment"]["name"], {})
        own = {name: str(value) for name, value in described.get("variables", {}).items()}
        variables = {**plain, **self.variables, **own, **bound, "CI_JOB_ID": str(self.machine.jobs)}
        for needed in described.get("needs", []):
            shutil.copytree(self.machine.artifacts / needed, base / "work", dirs_exist_ok=True)
        script = "\n".join([*described.get("before_script", []), *described["script"]])
        code, log = self.machine.run_script(base, script, variables)
        kept = described.get("artifacts", {"when": "always", "paths": []})
        if not code or kept["when"] == "always":
            for path in kept["paths"]:
                if (base / "work" / path).exists():
                    shutil.copytree(base / "work" / path, self.machine.artifacts / job / path)
        return JobEnd(code, log, variables)
