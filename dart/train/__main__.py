"""`python -m dart.train STEP ...`."""

import sys

from dart.train.cli import main

sys.exit(main())
