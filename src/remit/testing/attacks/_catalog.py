"""What a hostile command may try, as data. Words in braces are filled in by the world."""

from __future__ import annotations

from typing import Final

from remit.testing.attacks._attack import Attack, py, sh
from remit.testing.attacks._kernel_attacks import BOUNDS, KERNEL

__all__ = ["ATTACKS", "GROUPS", "Attack"]

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
    sh("write_system", "touch /usr/bin/.remit-$$ && rm -f /usr/bin/.remit-$$ && echo BREACH", control="root"),
    sh("write_identity", ": >> /etc/passwd && echo BREACH", control="root"),
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

GROUPS: Final = {
    "change files": _WRITES,
    "read secrets": _READS,
    "reach processes": _PROCESSES,
    "use the network": _NETWORK,
    "use the kernel": KERNEL,
    "use up the machine": BOUNDS,
}
"""The attacks by what they want."""
ATTACKS: Final = tuple(attack for group in GROUPS.values() for attack in group)
