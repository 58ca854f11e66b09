"""The real mqadmin in one JVM: the starts of JVMs are nearly all that its commands cost."""

import subprocess
import tempfile
import threading
from pathlib import Path

END = "=== end of command"


class RunningTool:
    """A JVM of ``ManyCommands.java``; commands run one after the other, from any thread.

    ``with_errors`` has what they print to stderr between what they print to stdout. Files that
    they write into their working directory are lost.
    """

    def __init__(self, command: list[str], *, with_errors: bool = True) -> None:
        self._lock = threading.Lock()
        # Those of a command that writes there, and of no test.
        self._directory = tempfile.TemporaryDirectory(prefix="tool-")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if with_errors else subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd=Path(self._directory.name),
        )

    @property
    def has_ended(self) -> bool:
        """Whether a command ended the JVM, as unknown options do."""
        return self._process.poll() is not None

    def run(self, words: tuple[str, ...], timeout: float) -> list[str]:
        """Run one command, and return the lines that it printed, also if it ends the JVM."""
        line = "\t".join(words)
        assert (line.count("\t"), line.count("\n")) == (len(words) - 1, 0), "no tabs, no lines"
        with self._lock:
            out_of_time = threading.Timer(timeout, self._process.kill)
            out_of_time.start()
            try:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
                lines = []
                for printed in self._process.stdout:
                    if printed == END + "\n":
                        # The mark stands on a line of its own.
                        return lines[:-1] if lines[-1] == "" else lines
                    lines.append(printed.rstrip("\n"))
            finally:
                out_of_time.cancel()
            self._process.wait()
            return lines

    def close(self) -> None:
        """End the JVM."""
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._directory.cleanup()
