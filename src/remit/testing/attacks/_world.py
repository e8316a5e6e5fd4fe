"""What the attacks aim at: secrets, processes, listeners and folders outside of a sandbox."""

from __future__ import annotations

import os
import platform
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from remit.contract import SandboxLevel
from remit.testing.attacks._attack import Attack
from remit.workspaces import (
    Checkout,
    CheckoutRequest,
    CommandResult,
    CommandSpec,
    Keeper,
    Limits,
    find_toolchains,
)

MAX_PROCESSES = 160
_LIMITS = Limits(
    max_processes=MAX_PROCESSES,
    max_file_bytes=64 * 1024 * 1024,
    scratch_bytes=16 * 1024 * 1024,
    shared_memory_bytes=16 * 1024 * 1024,
)


@dataclass(slots=True)
class World:
    """One checkout, and everything around it that must stay as it is."""

    base: Path
    """A folder of its own; HOME lies in it, so that no real home folder is touched."""
    level: SandboxLevel = "bubblewrap"
    """The sandbox that is attacked."""
    timeout_ms: int = 60_000
    """For one attack."""
    canary: str = field(default_factory=lambda: f"canary{secrets.token_hex(8)}")
    keeper: Keeper = field(init=False)
    checkout: Checkout = field(init=False)
    victim: subprocess.Popen[bytes] = field(init=False)
    listeners: list[socket.socket] = field(default_factory=list[socket.socket])
    heard: list[bytes] = field(default_factory=list[bytes])

    @property
    def outside(self) -> Path:
        """A folder beside everything, writable by whoever runs this."""
        return self.base / "outside"

    @property
    def root(self) -> Path:
        """The user's tree."""
        return self.base / "repo"

    @property
    def data(self) -> Path:
        """The node's data folder."""
        return self.base / "data"

    @property
    def tools(self) -> Path:
        """A toolchain that is shown read-only."""
        return self.base / "tools"

    @property
    def home(self) -> Path:
        """The home folder of whoever runs this."""
        return Path(os.environ["HOME"])

    # ---- building

    def build_files(self) -> None:
        """Lays out secrets and victims."""
        for folder in (self.outside, self.root, self.data, self.tools / "bin", self.home / ".ssh"):
            folder.mkdir(parents=True)
        for secret in (
            self.outside / "secret.txt",
            self.home / ".ssh" / "id_ed25519",
            self.home / "notes.txt",
            self.data / "key",
            self.tools / ".netrc",
        ):
            secret.write_text(self.canary)
        self.repair()

    def repair(self) -> None:
        """Puts everything that an attack may have changed back as it was."""
        (self.outside / "new").unlink(missing_ok=True)
        for stray in self.root.iterdir():
            if stray.name not in ("tracked.txt", "socket"):
                stray.unlink() if not stray.is_dir() or stray.is_symlink() else shutil.rmtree(stray)
        for target in (self.outside / "victim.txt", self.root / "tracked.txt", self.tools / "bin" / "tool"):
            target.unlink(missing_ok=True)
            target.write_text("original\n")
            target.chmod(0o644)
        self.heard.clear()

    async def open(self) -> None:
        """Starts the keeper, another checkout with a secret in it, and the checkout that attacks run in."""
        self.keeper = await Keeper.start(data=self.data)
        other = await self.keeper.open(self._request("other"))
        result = await other.run(self._command("sh", f"echo {self.canary} > secret.txt", "plant"))
        if result.exit_code != 0:
            raise RuntimeError(f"no command runs in the sandbox: {result.text or result.message}")
        self.checkout = await self.keeper.open(self._request("attacked"))
        self._start_victim()
        self._listen()

    def _request(self, name: str) -> CheckoutRequest:
        tools = find_toolchains(
            self.root, environ={"PATH": f"{self.tools / 'bin'}:{os.environ['PATH']}"}, data=self.data
        )
        return CheckoutRequest(
            checkout_id=name,
            root=self.root,
            storage=self.data / "checkouts" / name,
            data=self.data,
            toolchains=tools,
            limits=_LIMITS,
            sandbox=self.level,
        )

    def _start_victim(self) -> None:
        self.victim = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)", self.victim_word, "x"],
            env={**os.environ, "VICTIM_SECRET": self.canary},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def victim_word(self) -> str:
        """What tells the victim from other processes."""
        return f"victim-{self.canary}"

    def _listen(self) -> None:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        self.listeners = [tcp, udp]
        for address in (f"\0{self.canary}", str(self.outside / "socket"), str(self.root / "socket")):
            unix = socket.socket(socket.AF_UNIX)
            unix.bind(address)
            unix.listen()
            self.listeners.append(unix)

    async def close(self) -> None:
        """Ends everything that `open` started."""
        await self.keeper.aclose()
        self.victim.kill()
        self.victim.wait()
        for listener in self.listeners:
            listener.close()

    # ---- attacking

    def filled(self, attack: Attack, *, daemon: str) -> str:
        """The script with its words filled in."""
        words = {
            "outside": self.outside,
            "home": self.home,
            "data": self.data,
            "tools": self.tools,
            "other": self.data / "checkouts" / "other",
            "canary": self.canary,
            "victim": self.victim.pid,
            "victim_word": self.victim_word,
            "zygote": self.keeper.pid,
            "keeper": self.checkout.pid,
            "port": self.listeners[0].getsockname()[1],
            "udp_port": self.listeners[1].getsockname()[1],
            "abstract": self.canary,
            "processes": MAX_PROCESSES,
            "daemon": daemon,
        }
        script = (
            'print("RAN", flush=True)\n' if attack.language == "python" else "echo RAN\n"
        ) + attack.script
        for word, value in words.items():
            script = script.replace("{" + word + "}", str(value))
        return script

    async def attack_inside(self, attack: Attack, *, daemon: str) -> CommandResult:
        """Runs the attack in the sandbox."""
        return await self.checkout.run(
            self._command(attack.language, self.filled(attack, daemon=daemon), attack.name)
        )

    async def attack_by_dialogue(self, attack: Attack, *, daemon: str) -> tuple[str, CommandResult]:
        """Runs the attack as a program that is talked to, as tool servers are; what it said, and its end."""
        script = self.filled(attack, daemon=daemon)
        dialogue = await self.checkout.converse(self._command(attack.language, script, attack.name))
        heard = b""
        while part := await dialogue.hear():
            heard += part
        result = await dialogue.wait()
        return heard.decode("utf-8", "replace") + result.text, result

    def _command(self, language: str, script: str, name: str) -> CommandSpec:
        return CommandSpec(
            call_id=f"{name}-{secrets.token_hex(4)}", argv=_argv(language, script), timeout_ms=self.timeout_ms
        )

    def attack_outside(self, attack: Attack, *, daemon: str) -> str:
        """Runs the attack without a sandbox, with a spare handle and a secret in its environment."""
        extra = os.open(self.outside / "secret.txt", os.O_RDONLY)
        python = [sys.executable, "-I"] if attack.language == "python" else ["/bin/sh"]
        # Into a file: a daemon would hold a pipe open.
        with (self.base / "said").open("w+b") as said:
            subprocess.run(
                [*python, "-c", self.filled(attack, daemon=daemon)],
                cwd=self.root,
                env={**os.environ, "SECRET": self.canary, "PATH": self._path},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=(extra,),
                timeout=60,
                check=False,
            )
            os.close(extra)
            said.seek(0)
            return said.read().decode("utf-8", "replace")

    @property
    def _path(self) -> str:
        return f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    # ---- looking

    def breached(self, attack: Attack, said: str, *, daemon: str) -> bool:
        """Whether the attack got through."""
        match attack.evidence:
            case "says":
                return "BREACH" in said
            case "outside_file":
                return (self.outside / "new").exists()
            case "victim_file":
                return _changed(self.outside / "victim.txt")
            case "root_file":
                return _changed(self.root / "tracked.txt")
            case "tool_file":
                return _changed(self.tools / "bin" / "tool")
            case "victim_dead":
                return self._victim_died()
            case "heard":
                return self._was_reached()
            case "daemon":
                return bool(_processes_named(daemon))

    def _victim_died(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.victim.wait(timeout=0.3)
        if self.victim.returncode is None:
            return False
        self._start_victim()
        return True

    def _was_reached(self) -> bool:
        reached = False
        while ready := select.select(self.listeners, [], [], 0.2)[0]:
            for listener in ready:
                reached = True
                if listener.type == socket.SOCK_DGRAM:
                    listener.recv(100)
                else:
                    listener.accept()[0].close()
        return reached

    def end_daemons(self, daemon: str) -> None:
        """Ends what an attack outside of the sandbox has left: `sleep` with this test's own number."""
        for pid in _processes_named(daemon):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _argv(language: str, script: str) -> tuple[str, ...]:
    return ("python3", "-I", "-c", script) if language == "python" else ("/bin/sh", "-c", script)


def _changed(path: Path) -> bool:
    return not path.exists() or path.read_text() != "original\n" or path.stat().st_mode & 0o777 != 0o644


def _processes_named(word: str) -> list[int]:
    time.sleep(0.1)
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                if folder.joinpath("cmdline").read_bytes().split(b"\0")[1:2] == [word.encode()]:
                    found.append(int(folder.name))
    return found


def applies(attack: Attack) -> bool:
    """Whether the attack means anything on this processor."""
    return platform.machine() in attack.architectures


def has_control(attack: Attack) -> bool:
    """Whether the attack must get through outside of a sandbox, for whoever runs this."""
    who = "root" if os.geteuid() == 0 else "user"
    return applies(attack) and attack.control in ("both", who)
