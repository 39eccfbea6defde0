"""`python -m prenet_gnn` is `prenet`."""

import sys

from prenet_gnn.cli import main

sys.exit(main())
