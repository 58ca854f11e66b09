"""``python -m rocketlens``: the program."""

import sys

from rocketlens.main import main

sys.exit(main())
