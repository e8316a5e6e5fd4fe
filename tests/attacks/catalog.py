"""What a hostile command may try, as data: each attack is a script, and a way to see that it got through.

The scripts run inside a sandbox, where none may get through, and (where that harms nobody) outside of one,
where each must: an attack that fails everywhere proves nothing. Words in braces are filled in by the test.
"""

# ruff: noqa: E501  a script reads best unbroken

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Evidence = Literal[
    "says", "outside_file", "victim_file", "root_file", "tool_file", "victim_dead", "heard", "daemon"
]
"""`says`: the script prints BREACH when it saw the effect itself. The others are looked at from outside:
a new file in the outside folder, a changed file there, in the user's tree, or among the tools, the victim
process gone, a listener that was reached, a process that lives on."""

Control = Literal["both", "root", "user", "none"]
"""For whom the attack must get through outside of a sandbox; `none`: it would harm the machine, or needs what
this machine may not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attempt."""

    name: str
    script: str
    evidence: Evidence = "says"
    language: Literal["sh", "python"] = "sh"
    control: Control = "both"
    architectures: tuple[str, ...] = ("x86_64", "aarch64")


_LIBC: Final = """
import ctypes, os, sys, struct, socket, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
arm = platform.machine() == "aarch64"
def call(x86, aarch, *arguments):
    number = aarch if arm else x86
    wide = [a if isinstance(a, (bytes, ctypes.Array, ctypes.Structure)) or a is None else ctypes.c_long(a)
            for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *wide)
    return result, (0 if result >= 0 else ctypes.get_errno())
def breach(*details):
    print("BREACH", *details)
"""


def sh(name: str, script: str, **options: object) -> Attack:
    """An attack in a shell."""
    return Attack(name=name, script=script, **options)  # type: ignore[arg-type]


def py(name: str, script: str, **options: object) -> Attack:
    """An attack in Python, with a few words for system calls."""
    return Attack(name=name, script=_LIBC + script, language="python", **options)  # type: ignore[arg-type]


_WRITES: Final = (
    sh("write_absolute", "echo x > {outside}/new", evidence="outside_file"),
    sh("write_dotdot", "echo x > ../../../../../../../../../..{outside}/new", evidence="outside_file"),
    sh("write_symlink", "ln -s {outside} link && echo x > link/new", evidence="outside_file"),
    sh("write_proc_self_root", "echo x > /proc/self/root{outside}/new", evidence="outside_file"),
    sh("write_proc_parent_root", "echo x > /proc/$PPID/root{outside}/new", evidence="outside_file"),
    sh("write_proc_init_root", "echo x > /proc/1/root{outside}/new", evidence="outside_file", control="none"),
    sh(
        "write_any_cwd",
        'for p in /proc/[0-9]*; do echo x > "$p/root{outside}/new"; done',
        evidence="outside_file",
    ),
    sh("write_hardlink", "ln {outside}/victim.txt mine && echo changed > mine", evidence="victim_file"),
    sh("write_tree", "echo changed > tracked.txt", evidence="root_file"),
    sh("write_tree_append", "printf more >> tracked.txt", evidence="root_file"),
    sh("write_tree_rename", "echo changed > n && mv -f n tracked.txt", evidence="root_file"),
    sh("write_tree_delete", "rm -f tracked.txt", evidence="root_file"),
    sh("write_tree_mode", "chmod 0777 tracked.txt", evidence="root_file"),
    sh("write_tool", "echo changed > {tools}/bin/tool", evidence="tool_file"),
    sh(
        "write_tool_remount",
        "mount -o remount,rw {tools}; echo changed > {tools}/bin/tool",
        evidence="tool_file",
    ),
    sh(
        "write_open_handles",
        'for f in /proc/[0-9]*/fd/*; do [ -d "$f" ] && echo x > "$f/../new"; done; echo x > {outside}/new',
        evidence="outside_file",
    ),
    sh("write_data", "echo x > {data}/planted && cat {data}/planted && echo BREACH"),
    sh("write_system", "[ -w /usr/bin ] && echo BREACH", control="root"),
    sh("write_identity", "[ -w /etc/passwd ] && echo BREACH", control="root"),
)

_READS: Final = (
    sh("read_outside", "grep -q {canary} {outside}/secret.txt && echo BREACH"),
    sh("read_symlink", "ln -s {outside}/secret.txt link; grep -q {canary} link && echo BREACH"),
    sh("read_proc_root", "grep -q {canary} /proc/self/root{outside}/secret.txt && echo BREACH"),
    sh("read_home", "grep -rq {canary} {home} && echo BREACH"),
    sh("read_home_by_name", "grep -q {canary} {home}/.ssh/id_ed25519 && echo BREACH"),
    sh("read_credentials_among_tools", "grep -rq {canary} {tools} && echo BREACH"),
    sh("read_data", "grep -rq {canary} {data} && echo BREACH"),
    sh("read_other_checkout", "grep -rq {canary} {other} && echo BREACH"),
    sh("list_other_checkouts", "ls {data}/checkouts/* && echo BREACH"),
    sh("read_shadow", "grep -q '^root:' /etc/shadow && echo BREACH", control="root"),
    sh("read_users", "grep -q '^daemon:' /etc/passwd && echo BREACH"),
    sh("read_kernel_log", "dmesg | grep -q . && echo BREACH", control="root"),
    sh(
        "read_kernel_memory",
        "head -c 1 /proc/kcore | grep -q . && echo BREACH; head -c 1 /dev/mem && echo BREACH",
        control="none",
    ),
    sh("read_sys", "ls /sys/class/net /sys/kernel && echo BREACH"),
    sh(
        "read_disk",
        "for d in /dev/[vsn]d* /dev/nvme* /dev/xvd*; do head -c 1 $d >/dev/null && echo BREACH; done",
        control="none",
    ),
    py(
        "read_by_handle",
        """
handle = struct.pack("II", 128, 0) + bytes(128)
buffer = ctypes.create_string_buffer(handle, len(handle))
mount_id = ctypes.create_string_buffer(8)
directory = os.open("/", os.O_RDONLY)
ok, _ = call(303, 264, directory, b".", buffer, mount_id, 0)
opened, problem = call(304, 265, directory, buffer, os.O_RDONLY)
if opened >= 0:
    breach("opened by handle")
""",
        control="root",
    ),
)

_PROCESSES: Final = (
    sh(
        "environ_own",
        "env | grep -q {canary} && echo BREACH; tr '\\0' '\\n' < /proc/self/environ | "
        "grep -q {canary} && echo BREACH",
    ),
    sh("environ_parent", "grep -q {canary} /proc/$PPID/environ && echo BREACH", control="none"),
    sh("environ_any", "cat /proc/[0-9]*/environ | grep -q {canary} && echo BREACH"),
    sh(
        "arguments_any",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'victim[-]{canary} x' && echo BREACH",
    ),
    sh("see_victim", "[ -e /proc/{victim}/status ] && grep -q Name /proc/{victim}/status && echo BREACH"),
    sh("see_zygote", "ls /proc/{zygote}/fd && echo BREACH"),
    sh("see_keeper_handles", "ls -l /proc/{keeper}/fd | grep -q socket && echo BREACH"),
    sh("kill_victim", "kill -9 {victim}", evidence="victim_dead"),
    sh("kill_all", "kill -9 -1", evidence="victim_dead", control="none"),
    sh("kill_keeper", "kill -9 {keeper}; kill -9 {zygote}; kill -0 {keeper} && echo BREACH", control="none"),
    py(
        "signal_by_handle",
        """
try:
    handle = os.pidfd_open({victim})
    import signal; signal.pidfd_send_signal(handle, 0); breach()
except OSError as error: print(error)
""",
    ),
    py(
        "ptrace_victim",
        """
libc.ptrace.restype = ctypes.c_long
if libc.ptrace(ctypes.c_long(0x4206), ctypes.c_long({victim}), None, None) == 0: breach("attached")
""",
    ),
    py(
        "ptrace_child",
        """
pid = os.fork()
if pid == 0:
    import time; time.sleep(5); os._exit(0)
if libc.ptrace(ctypes.c_long(0x4206), ctypes.c_long(pid), None, None) == 0: breach("attached to a child")
os.kill(pid, 9)
""",
    ),
    py(
        "memory_of_victim",
        """
class Vector(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
line = next(l for l in open("/proc/{victim}/maps") if " r" in l)
start = int(line.split("-")[0], 16)
buffer = ctypes.create_string_buffer(8)
mine, theirs = Vector(ctypes.cast(buffer, ctypes.c_void_p).value, 8), Vector(start, 8)
got = libc.process_vm_readv({victim}, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
if got > 0: breach("read", got)
""",
    ),
    py(
        "memory_of_child",
        """
class Vector(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
source, target = ctypes.create_string_buffer(b"secret!"), ctypes.create_string_buffer(8)
pid = os.fork()
if pid == 0:
    import time; time.sleep(5); os._exit(0)
mine = Vector(ctypes.cast(target, ctypes.c_void_p).value, 8)
theirs = Vector(ctypes.cast(source, ctypes.c_void_p).value, 8)
if libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0: breach("read a child")
os.kill(pid, 9)
""",
    ),
    py(
        "steal_handle",
        """
theirs = os.pidfd_open(os.getppid())
if call(438, 438, theirs, 0, 0)[0] >= 0: breach("took a handle of the parent")
""",
    ),
    py(
        "inherited_handles",
        """
extra = [n for n in os.listdir("/proc/self/fd") if int(n) > 2 and os.path.exists(f"/proc/self/fd/{n}")]
if extra: breach(extra, [os.readlink(f"/proc/self/fd/{n}") for n in extra])
""",
    ),
    sh(
        "daemon",
        "python3 -c '\nimport os, signal\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "[signal.signal(s, signal.SIG_IGN) for s in (1,2,15)]\n"
        'os.execvp("sleep", ["sleep", "{daemon}"])\'',
        evidence="daemon",
    ),
    sh("daemon_nohup", "nohup sleep {daemon} >/dev/null 2>&1 &", evidence="daemon"),
)

_NETWORK: Final = (
    py("tcp", "socket.create_connection(('127.0.0.1', {port}), 2).sendall(b'hello')", evidence="heard"),
    py(
        "tcp_any_address",
        """
for address in ("127.0.0.1", "0.0.0.0", "127.0.1.1", "::1", "::ffff:127.0.0.1"):
    try: socket.create_connection((address, {port}), 2).sendall(b"hello"); break
    except OSError as error: print(error)
""",
        evidence="heard",
    ),
    py(
        "udp",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hello', ('127.0.0.1', {udp_port}))",
        evidence="heard",
    ),
    py(
        "unix_abstract",
        "s = socket.socket(socket.AF_UNIX); s.connect('\\0{abstract}'); s.sendall(b'hello')",
        evidence="heard",
    ),
    py(
        "unix_path",
        "s = socket.socket(socket.AF_UNIX); s.connect('{outside}/socket'); s.sendall(b'hello')",
        evidence="heard",
    ),
    py(
        "unix_path_in_tree",
        "s = socket.socket(socket.AF_UNIX); s.connect('socket'); s.sendall(b'hello')",
        evidence="heard",
    ),
    py(
        "unix_path_by_proc",
        """
s = socket.socket(socket.AF_UNIX); s.connect('/proc/self/root{outside}/socket'); s.sendall(b'hello')
""",
        evidence="heard",
    ),
    py("virtual_machine_socket", "socket.socket(40, socket.SOCK_STREAM); breach()", control="none"),
    py("kernel_crypto_socket", "socket.socket(38, socket.SOCK_SEQPACKET); breach()", control="none"),
    py("raw_packets", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW); breach()", control="root"),
    py(
        "raw_internet",
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP); breach()",
        control="root",
    ),
    py(
        "interfaces",
        """
if len([i for _, i in socket.if_nameindex() if i != "lo"]): breach()
""",
        control="none",
    ),
)

_KERNEL: Final = (
    sh("mount_memory", "mount -t tmpfs none . && echo BREACH", control="none"),
    py(
        "mount_call",
        """
os.makedirs("m", exist_ok=True)
if libc.mount(b"none", b"m", b"tmpfs", 0, None) == 0: breach(); libc.umount2(b"m", 2)
""",
        control="root",
    ),
    py(
        "mount_new_interface",
        """
result, problem = call(430, 430, b"tmpfs", 0)
if result >= 0: breach()
""",
        control="root",
    ),
    py(
        "open_tree_copy",
        """
result, problem = call(428, 428, -100, b"/", 1 | 0x8000)
if result >= 0: breach()
""",
        control="root",
    ),
    py("change_root", "os.chroot('.'); breach()", control="root"),
    py("user_namespace_unshare", "\nif libc.unshare(0x10000000) == 0: breach()\n"),
    py(
        "user_namespace_clone",
        """
result, problem = call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)
if result == 0: os._exit(0)
if result > 0: breach(); os.waitpid(result, 0)
""",
    ),
    py(
        "user_namespace_clone3",
        """
arguments = struct.pack("11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
result, problem = call(435, 435, arguments, len(arguments))
if result == 0: os._exit(0)
if result > 0: breach(); os.waitpid(result, 0)
""",
    ),
    py("mount_namespace", "\nif libc.unshare(0x20000) == 0: breach()\n", control="root"),
    py("network_namespace", "\nif libc.unshare(0x40000000) == 0: breach()\n", control="root"),
    py(
        "join_namespace",
        """
for kind in ("uts", "ipc", "net", "pid", "mnt"):
    try: handle = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
    except OSError as error: print(error); continue
    if libc.setns(handle, 0) == 0: breach(kind)
""",
        control="root",
    ),
    py(
        "bpf_map",
        """
attribute = struct.pack("IIIII", 2, 4, 4, 1, 0) + bytes(100)
result, problem = call(321, 280, 0, attribute, len(attribute))
if result >= 0: breach()
""",
        control="root",
    ),
    py(
        "io_uring",
        """
result, problem = call(425, 425, 1, bytes(120))
if result >= 0 or problem not in (errno.ENOSYS, errno.EPERM): breach(problem)
""",
        control="none",
    ),
    py(
        "keyring",
        """
result, problem = call(248, 217, b"user", b"remit-attack", b"x", 1, -2)
if result >= 0: breach()
""",
    ),
    py("keyring_read", "\nif call(250, 219, 0, -3, 0)[0] >= 0: breach()\n"),
    py(
        "performance_counters",
        """
attribute = struct.pack("II", 1, 112) + struct.pack("Q", 0) + bytes(96)
if call(298, 241, attribute, 0, -1, -1, 0)[0] >= 0: breach()
""",
        control="root",
    ),
    py("fault_handler", "\nif call(323, 282, 0)[0] >= 0: breach()\n", control="root"),
    py("file_watch_all", "\nif call(300, 262, 0, 0)[0] >= 0: breach()\n", control="root"),
    py(
        "unknown_call",
        """
result, problem = call(999, 999)
if problem != errno.ENOSYS: breach(problem)
""",
        control="none",
    ),
    py(
        "other_call_table",
        """
import mmap
pid = os.fork()
if pid == 0:
    result, problem = call(0x40000000 | 39, 0)
    os._exit(7 if result > 0 else 0)
_, status = os.waitpid(pid, 0)
if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7: breach("x32")
pid = os.fork()
if pid == 0:
    code = bytes.fromhex("b814000000cd80c3")  # the 32 bit getpid
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    os._exit(7 if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 else 0)
_, status = os.waitpid(pid, 0)
if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7: breach("32 bit")
""",
        control="none",
        architectures=("x86_64",),
    ),
    py(
        "terminal_injection",
        """
import fcntl, termios
primary, secondary = os.openpty()
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(secondary, termios.TIOCSCTTY, 0)
    try: fcntl.ioctl(secondary, 0x5412, b"x")
    except OSError as error: os._exit(0 if error.errno == errno.EPERM else 7)
    os._exit(7)
_, status = os.waitpid(pid, 0)
if os.WEXITSTATUS(status) == 7: breach("the call reached the kernel")
""",
        control="none",
    ),
    sh(
        "system_setting",
        "for f in kernel/core_pattern kernel/hostname vm/overcommit_memory net/ipv4/ip_forward; do "
        "[ -w /proc/sys/$f ] && (: >> /proc/sys/$f) && echo BREACH; done",
        control="root",
    ),
    sh(
        "magic_key", "[ -w /proc/sysrq-trigger ] && (: >> /proc/sysrq-trigger) && echo BREACH", control="none"
    ),
    sh(
        "control_group",
        "d=$(find / -xdev -path '*cgroup*' -name cgroup.procs -writable 2>/dev/null | head -1; "
        'find /sys/fs/cgroup -name cgroup.procs -writable 2>/dev/null | head -1); [ -n "$d" ] && echo BREACH',
        control="none",
    ),
    sh(
        "device_node",
        "mknod d c 1 1 && head -c 1 d >/dev/null; [ -c d ] && echo BREACH; rm -f d",
        control="root",
    ),
    sh(
        "device_node_disk",
        "mknod d b $(stat -c '0x%t 0x%T' /dev/root 2>/dev/null || echo 8 0) && echo BREACH; rm -f d",
        control="none",
    ),
    sh("new_privileges", "grep -q '^NoNewPrivs:.*0' /proc/self/status && echo BREACH", control="both"),
    sh(
        "capabilities",
        "grep -q '^Cap\\(Eff\\|Prm\\|Bnd\\):.*[1-9a-f]' /proc/self/status && echo BREACH",
        control="root",
    ),
    py(
        "other_owner",
        """
open("mine", "w").close()
os.chown("mine", 12321, 12321); breach()
""",
        control="root",
    ),
    py("other_user", "os.setuid(12321); breach()", control="root"),
    sh("host_name", "hostname attacked && echo BREACH", control="none"),
    py(
        "first_out_of_memory",
        """
try:
    open("/proc/self/oom_score_adj", "w").write("-900")
    if int(open("/proc/self/oom_score_adj").read()) == -900: breach()
except OSError as error: print(error)
""",
        control="none",
    ),
    sh(
        "act_through_proc",
        "for f in $(find /proc -path '/proc/[0-9]*' -prune -o -path /proc/self -prune -o "
        "-path /proc/thread-self -prune -o -type f -writable -print); do (: >> $f) && echo BREACH $f; done",
        control="root",
    ),
)

_BOUNDS: Final = (
    py("fork_bomb", """
started = 0
pids = []
try:
    while started < {processes} + 40:
        pid = os.fork()
        if pid == 0:
            import time; time.sleep(20); os._exit(0)
        pids.append(pid); started += 1
except OSError as error: print(error)
for pid in pids: os.kill(pid, 9)
if started >= {processes}: breach(started)
"""),
    py("thread_bomb", """
import threading
stop = threading.Event(); started = 0
threading.stack_size(65536)
try:
    while started < {processes} + 40:
        threading.Thread(target=stop.wait, daemon=True).start(); started += 1
except RuntimeError as error: print(error)
stop.set()
if started >= {processes}: breach(started)
"""),
    py("raise_process_limit", """
import resource
unbounded = resource.RLIM_INFINITY
try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (unbounded, unbounded)); breach()
except (ValueError, OSError) as error: print(error)
"""),
    sh("fill_tmp", "dd if=/dev/zero of=/tmp/{daemon} bs=1M count=48 2>/dev/null && echo BREACH; rm -f /tmp/{daemon}"),
    sh("fill_shared_memory", "dd if=/dev/zero of=/dev/shm/{daemon} bs=1M count=48 2>/dev/null && echo BREACH; "
       "rm -f /dev/shm/{daemon}"),
    sh("fill_devices", "dd if=/dev/zero of=/dev/{daemon} bs=1M count=48 2>/dev/null && echo BREACH", control="none"),
    sh("fill_top_folder", "dd if=/dev/zero of=/{daemon} bs=1M count=48 2>/dev/null && echo BREACH", control="none"),
    sh("fill_covering_folder", "dd if=/dev/zero of={outside}/../{daemon} bs=1M count=48 2>/dev/null && echo BREACH; "
       "rm -f {outside}/../{daemon}"),
    py("huge_file", """
try:
    with open("big", "wb") as file: file.truncate(1 << 42)
    if os.path.getsize("big") == 1 << 42: breach()
finally: os.unlink("big")
"""),
    sh("core_dump", "ulimit -c unlimited && echo BREACH", control="root"),
    py("cpu_for_ever", """
import resource
if resource.getrlimit(resource.RLIMIT_CPU)[1] == resource.RLIM_INFINITY: breach()
"""),
)  # fmt: skip

ATTACKS: Final = (*_WRITES, *_READS, *_PROCESSES, *_NETWORK, *_KERNEL, *_BOUNDS)
