"""The processes that hold checkouts. Standard library only.

    node ──> zygote ──fork──> keeper (one per checkout) ──> op workers (forked, for file operations)
                                     └──> one bubblewrap per command

The *zygote* is one long-lived single-threaded process per node; it does nothing but fork, so that a checkout
costs a fork and not the start of an interpreter. A *keeper* owns one checkout: its mount namespace, its file
operations and its commands. It mounts the checkout's tree at `<storage>/merged` in a mount namespace that
only it and its commands see; a command's sandbox binds that at the workspace root's own path. The keeper
never mounts over the root itself: it would then load code, libraries and programs from a tree that a command
may have changed.

All of them die with the node: each holds a socket whose other end only the node has, the zygote watches the
node's process, and every child asks the kernel to be killed when its parent dies.
"""
