"""The program: `python -I -S scheduler/relay/__main__.py [LISTENER DATAGRAMS]`, which the runner of
a training starts.

Its standard input is a pipe: one line of JSON with the settings, then files to read, a path in each
line; its end is the end of the training. The files LISTENER and DATAGRAMS, by default 3 and 4, are
the sockets on which it hears, bound before the training began. It takes the rights of the job's
user before it hears or opens anything. It ends with 0 when everything is delivered.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # `-I` leaves out the folder with our package
    sys.path.append(os.path.abspath(__file__).rsplit("/scheduler/relay/", 1)[0])  # noqa: PTH100

import json

from scheduler.relay import program


def read_settings(file: int) -> program.Settings:
    text = b""
    while not text.endswith(b"\n") and (data := os.read(file, 1)):
        text += data
    given = json.loads(text)
    known = program.Settings._fields  # another version may have others
    return program.Settings(**{name: given[name] for name in known if name in given})


def main() -> int:
    os.umask(0o077)
    settings = read_settings(0)
    program.take_rights(settings)
    listener, datagrams = map(int, sys.argv[1:3] or (3, 4))
    return program.live(settings, listener, datagrams, end=0)


if __name__ == "__main__":
    sys.exit(main())
