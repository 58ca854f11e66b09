"""A push consumer in Java, for tests that share a group with it, or watch it."""

import subprocess
import threading
from pathlib import Path

PROGRAM = "ConsumerMember"


class JavaMember:
    """A consumer in Java, in a process of its own."""

    def __init__(self, peer, version, directory, *arguments):
        source = Path(__file__).parent / "java" / f"{PROGRAM}.java"
        classes = peer.compiled(version, source)
        command = peer.command(version, directory, PROGRAM, *arguments, classes=classes)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.bodies = []
        self.queues = set()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            kind, _, rest = line.strip().partition(" ")
            if kind == "got":
                self.bodies.append(int(rest))
            elif kind == "queues":
                self.queues = set(map(int, filter(None, rest.split(","))))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdout.close()
