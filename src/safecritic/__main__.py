"""`python -m safecritic`: the command line."""

import sys

from safecritic.cli import main

sys.exit(main())
