"""The keeper as a program: `python -I -S keeper.py start|finish|abandon|local|prepare|init|epilog`.

Short, because Python compiles a program anew each time, and a module only once. See step_keeper.py.
"""

import os
import sys

if __name__ == "__main__":
    # The folder that holds both packages; python -I leaves it out.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from pyxis_py.step.keeper import main

    sys.exit(main(sys.argv[1]))
