"""Attacks on the kernel's interfaces, and on what bounds a command, as data."""

# ruff: noqa: E501  a script reads best unbroken

from __future__ import annotations

from typing import Final

from remit.testing.attacks._attack import py, sh

KERNEL: Final = (
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

BOUNDS: Final = (
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
