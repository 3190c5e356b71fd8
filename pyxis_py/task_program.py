"""A task as a program: what srun executes in place of the command. See task.py.

Short, because Python compiles a program anew each time, and a module only once.
"""

import os
import sys

if __name__ == "__main__":
    # The folder that holds both packages; python -I leaves it out.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from pyxis_py.launchers.task import main

    sys.exit(main(sys.argv[1:]))
