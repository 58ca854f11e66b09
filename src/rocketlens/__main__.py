"""Runs the command line program: ``python -m rocketlens``."""

import sys

from rocketlens.main import main

sys.exit(main())
