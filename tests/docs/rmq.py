"""`rmq` in the examples of the documents, with what a reader does beside it.

A command that would run until Ctrl-C is interrupted as soon as it has written something
to stdout, and has to end as it does then. Ports of a cluster that is started are any
free ones.
"""

from __future__ import annotations

import signal
import sys

#: Options that end a command which would otherwise run until Ctrl-C.
_ENDS = {
    "serve": {"--help"},
    "exporter": {"--once", "--print-dashboard", "--print-rules", "help"},
    "consume": {"--count", "--for", "schema", "help"},
    "tail": {
        *("--to", "--count", "--no-follow", "--for", "--idle-timeout"),
        *("schema", "help"),
    },
}
_PORTS = ("--proxy-port", "--proxy-remoting-port", "--broker-port")


def is_endless(words: list[str]) -> bool:
    """Whether the command runs until it is interrupted."""
    if words[0] == "lag":
        return "--watch" in words
    return words[0] in _ENDS and not _ENDS[words[0]] & set(words)


def with_free_ports(words: list[str]) -> list[str]:
    """Return the words of `rmq serve` with ports that no other program uses."""
    if words[0] == "exporter" and "--listen" in words:
        words = list(words)
        words[words.index("--listen") + 1] = "127.0.0.1:0"
    if words[0] != "serve":
        return words
    replaced = list(words)
    for option in _PORTS:
        if option in words:
            replaced[words.index(option) + 1] = "0"
    if "--broker-port" in words:
        at = words.index("--broker-port")
        del replaced[at : at + 2]
    return replaced if "--listen" in words else [*replaced, "--listen", "127.0.0.1:0"]


def main(words: list[str]) -> int:
    """Run `rmq` with `words` and return its exit code."""
    words = with_free_ports(words)
    if not is_endless(words):
        from rmqcli.__main__ import main as run

        sys.argv = ["rmq", *words]
        run()
    import subprocess  # for few of the commands

    command = [sys.executable, "-m", "rmqcli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        sys.stdout.buffer.write(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        sys.stdout.buffer.write(process.stdout.read())
    interrupted = 0 if words[0] in ("serve", "exporter") else 130
    return 0 if process.returncode == interrupted else process.returncode or 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
