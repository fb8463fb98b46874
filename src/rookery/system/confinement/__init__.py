"""Confinement of child processes by the kernel: Landlock for files, TCP ports and signals, seccomp for system calls."""
