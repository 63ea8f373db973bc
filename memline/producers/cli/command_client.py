"""Ask the command server of this home to answer a command line; where there is none, the command works alone.

The server (`command_server`) runs the same command with this process's arguments, variables and folder, and
sends back what it printed. Nothing is imported here but what Python has loaded, and sockets in C: `socket`
itself takes 3 ms.
"""

from __future__ import annotations

import _socket
import os
import sys

from memline.shared.version import own_version

#: The commands that are asked for so: those that agents run again and again, and that change nothing.
ASKED = frozenset(("search", "get", "status", "context"))

#: The socket in the home.
NAME = "commands.sock"

#: Seconds until a server has to take the command, and to answer it; else the command works alone. It answers
#: one at a time, and a question may wait for a provider.
TAKEN_S, ANSWERED_S = 0.1, 2.0

#: What the server sends when it takes a command; a connection that ends without it has another version.
TAKEN = b"+"

#: A piece of output: the descriptor (1 or 2) and its bytes; at the end comes the exit status as a piece of 0.
_HEAD = 5

#: Bytes of the path of a socket; some systems allow 103.
_LONGEST = 100


def ask(args: list[str]) -> int | None:
    """Have a command line answered: print what it prints, and return its status; None: work alone."""
    if not all(getattr(stream, "buffer", None) for stream in (sys.stdout, sys.stderr)):
        # A program that runs a command inside it, and reads what is printed.
        return None
    try:
        if (answer := _answer(args)) is None:
            return None
    except OSError:
        return None
    status = 0
    while answer:
        number, end = answer[0], _HEAD + int.from_bytes(answer[1:_HEAD], "big")
        piece, answer = answer[_HEAD:end], answer[end:]
        if number:
            stream = sys.stdout if number == 1 else sys.stderr
            stream.buffer.write(piece)
            stream.buffer.flush()
        else:
            status = piece[0]
    return status


def _answer(args: list[str]) -> bytes | None:
    """Return the pieces that the server sends; None without an answer."""
    folder = os.open(_home(args), os.O_RDONLY | os.O_DIRECTORY)
    try:
        # A socket of another user would be told this process's variables.
        if os.stat(NAME, dir_fd=folder, follow_symlinks=False).st_uid != os.geteuid():
            return None
        server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            server.settimeout(TAKEN_S)
            server.connect(address(_home(args), folder))
            server.sendall(_request(args))
            server.shutdown(_socket.SHUT_WR)
            if server.recv(1) != TAKEN:
                return None
            server.settimeout(ANSWERED_S)
            answer = b"".join(iter(lambda: server.recv(1 << 16), b""))
        finally:
            server.close()
    finally:
        os.close(folder)
    # The last piece is the status: without it the server ended in the middle.
    return answer if answer[-_HEAD - 1 : -1] == b"\0\0\0\0\1" else None


def address(home: str, folder: int) -> str:
    """Return the path of the socket in a home, by an open descriptor of it where it is too long itself."""
    path = f"{home}/{NAME}"
    return path if len(os.fsencode(path)) <= _LONGEST else f"/proc/self/fd/{folder}/{NAME}"


def identity() -> str:
    """Name the program that runs: a server of another one is not asked."""
    return f"{own_version()} {os.path.dirname(__file__)} {sys.executable} {sys.getfilesystemencoding()}"


def _request(args: list[str]) -> bytes:
    variables = dict(os.environ)
    is_terminal = [stream.isatty() for stream in (sys.stdout, sys.stderr)]
    if is_terminal[0] and not variables.get("COLUMNS"):
        variables["COLUMNS"] = str(os.get_terminal_size(sys.stdout.fileno()).columns)
    parts = [
        identity(),
        os.getcwd(),
        *("terminal" if each else "" for each in is_terminal),
        *(stream.encoding for stream in (sys.stdout, sys.stderr)),
        str(len(args)),
        *args,
        *(f"{name}={text}" for name, text in variables.items()),
    ]
    return os.fsencode("\0".join(parts))


def _home(args: list[str]) -> str:
    """Return the home of a command line; of one that is misread, one whose server reads it well, or none."""
    for place, word in enumerate(args):
        if word == "--home":
            return os.path.expanduser("".join(args[place + 1 : place + 2]))
        if word.startswith("--home="):
            return os.path.expanduser(word[7:])
    named, data = os.environ.get("MEMLINE_HOME", "").strip(), os.environ.get("XDG_DATA_HOME", "").strip()
    below = data if data.startswith("/") else "~/.local/share"
    return os.path.expanduser(named or f"{below}/memline")
