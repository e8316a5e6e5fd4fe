"""The system call filter, run by a small interpreter of BPF: what it answers, on both processors."""

from __future__ import annotations

import errno
import struct
from typing import Final

import pytest

from remit.workspaces._seccomp import UnknownArchitecture, seccomp_program

ALLOW: Final = 0x7FFF_0000
KILL: Final = 0x8000_0000
AUDIT: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
NUMBERS: Final = {
    # name: x86_64, aarch64
    "read": (0, 63),
    "openat": (257, 56),
    "execve": (59, 221),
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "prctl": (157, 167),
    "landlock_create_ruleset": (444, 444),
    "bpf": (321, 280),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "fsopen": (430, 430),
    "kexec_load": (246, 104),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "process_vm_writev": (311, 271),
    "setns": (308, 268),
}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("family", [1, 2, 10, 16, 40])
def test_no_socket_of_any_family_where_nothing_else_takes_the_network_away(machine: str, family: int) -> None:
    """At the level `landlock`, with the network off; a pair of sockets reaches nobody and stays."""
    program = seccomp_program(machine, sockets=False)
    column = 0 if machine == "x86_64" else 1
    for name, answer in (("socket", 0x0005_0000 | errno.EAFNOSUPPORT), ("socketpair", ALLOW)):
        data = struct.pack("=iIQ6Q", NUMBERS[name][column], AUDIT[machine], 0, family, 1, 0, 0, 0, 0)
        assert interpret(program, data) == answer


def interpret(program: bytes, data: bytes) -> int:
    """What the kernel would do: runs the program on a `struct seccomp_data`."""
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, position = 0, 0
    while True:
        operation, true, false, constant = code[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, constant)
            case 0x15:
                position += true if accumulator == constant else false
            case 0x25:
                position += true if accumulator > constant else false
            case 0x35:
                position += true if accumulator >= constant else false
            case 0x45:
                position += true if accumulator & constant else false
            case 0x06:
                return constant
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


def ask(machine: str, call: str | int, *arguments: int, audit: int | None = None) -> int:
    """The filter's answer for one call."""
    number = call if isinstance(call, int) else NUMBERS[call][machine == "aarch64"]
    padded = [*arguments, *([0] * (6 - len(arguments)))]
    data = struct.pack("=iIQ6Q", number, AUDIT[machine] if audit is None else audit, 0, *padded)
    return interpret(seccomp_program(machine), data)


def refused(number: int) -> int:
    return 0x0005_0000 | number


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "call", ["read", "openat", "execve", "socketpair", "prctl", "landlock_create_ruleset"]
)
def test_ordinary_calls_are_allowed(machine: str, call: str) -> None:
    """What programs live on isn't touched."""
    assert ask(machine, call) == ALLOW


@pytest.mark.parametrize(
    "call",
    [
        *("bpf", "ptrace", "mount", "keyctl", "open_by_handle_at", "fsopen", "kexec_load", "userfaultfd"),
        *("perf_event_open", "process_vm_writev", "setns"),
    ],
)
def test_dangerous_calls_are_not_permitted(machine: str, call: str) -> None:
    """R2, R36: the doors that a program without privileges could still try are closed."""
    assert ask(machine, call) == refused(errno.EPERM)


@pytest.mark.parametrize("call", ["io_uring_setup", "clone3", 470, 999])
def test_calls_that_programs_can_do_without_do_not_exist(machine: str, call: str | int) -> None:
    """A program takes the older way when a call isn't there; a call newer than the list isn't either."""
    assert ask(machine, call) == refused(errno.ENOSYS)


def test_processes_and_threads_are_allowed_and_namespaces_are_not(machine: str) -> None:
    """`clone` makes processes; with any namespace flag, also among others, it is refused."""
    assert ask(machine, "clone", 17) == ALLOW
    assert ask(machine, "clone", 0x3D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(machine, "clone", flag | 17) == refused(errno.EPERM)
        assert ask(machine, "unshare", flag) == refused(errno.EPERM)
    assert ask(machine, "unshare", 0x80) == refused(errno.EPERM)
    assert ask(machine, "unshare", 0x200) == ALLOW  # its own table of working folders
    assert ask(machine, "clone", 0x80 | 0x100) == ALLOW  # an exit signal, no flag


def test_high_bits_do_not_hide_an_argument(machine: str) -> None:
    """The kernel reads these arguments as 32 bits, and so does the filter."""
    assert ask(machine, "ioctl", 0, 0x5412 | 1 << 32) == refused(errno.EPERM)
    assert ask(machine, "clone", 0x10000000 | 1 << 40) == refused(errno.EPERM)
    assert ask(machine, "socket", 40 | 1 << 32) == refused(errno.EAFNOSUPPORT)


def test_terminal_input_can_not_be_forged(machine: str) -> None:
    """TIOCSTI and TIOCLINUX are refused, other terminal calls aren't."""
    assert ask(machine, "ioctl", 0, 0x5412) == refused(errno.EPERM)
    assert ask(machine, "ioctl", 0, 0x541C) == refused(errno.EPERM)
    assert ask(machine, "ioctl", 0, 0x5413) == ALLOW


def test_sockets_are_those_that_a_namespace_confines(machine: str) -> None:
    """Unix, internet and netlink sockets only: one to a virtual machine's host would pass the wall."""
    for family in (1, 2, 10, 16):
        assert ask(machine, "socket", family) == ALLOW
    for family in (0, 17, 38, 40, 44):
        assert ask(machine, "socket", family) == refused(errno.EAFNOSUPPORT)


def test_other_call_tables_kill(machine: str) -> None:
    """A call by a table that the filter wasn't written for ends the process: 32 bit, and x32."""
    assert ask(machine, "read", audit=0x4000_0003) == KILL
    assert ask(machine, 0x4000_0000 | 39) == KILL
    assert ask(machine, -1) == KILL


def test_every_jump_stays_inside_and_every_path_ends(machine: str) -> None:
    """The program is one that the kernel takes: forward jumps to existing places, a return at the end."""
    program = seccomp_program(machine)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    assert len(code) <= 4096
    assert code[-1][0] == 0x06
    for position, (operation, true, false, _) in enumerate(code):
        if operation & 0x07 == 0x05:
            assert position + 1 + max(true, false) < len(code)


def test_unknown_processors_are_an_error() -> None:
    """Without a known table there is no filter, and no sandbox that pretends to have one."""
    with pytest.raises(UnknownArchitecture):
        seccomp_program("riscv64")
