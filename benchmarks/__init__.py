"""What Memline promises about speed and memory, measured: `python -m benchmarks` prints one table.

Every figure is a ratio taken in one run, or CPU time over that of a bare Python, so that it means the same on
another machine. Everything runs as a user runs it, in processes of its own.
"""
