"""The fresh process that imports: prints how long it took and every foreign module it loaded.

Usage: import_process.py SOURCE
"""

from __future__ import annotations

import json
import sys
from time import perf_counter_ns


def main(source: str) -> None:
    """Import the package from *source* and print what came with it."""
    sys.path.insert(0, source)
    before = set(sys.modules)
    begun = perf_counter_ns()
    __import__("agent_checkpoint")

    took_ns = perf_counter_ns() - begun
    loaded = sorted(set(sys.modules) - before)

    import sysconfig

    paths = sysconfig.get_paths()
    libraries = (paths["stdlib"], paths["platstdlib"])

    def is_foreign(name: str) -> bool:
        if name.partition(".")[0] == "agent_checkpoint":
            return False
        spec = getattr(sys.modules[name], "__spec__", None)
        origin = getattr(spec, "origin", None) or getattr(sys.modules[name], "__file__", None)
        if origin in ("built-in", "frozen"):
            return False
        if origin is None:
            # A module that another one made, such as os.path's typing.io: its parent is judged.
            return "." not in name
        return not origin.startswith(libraries) or "site-packages" in origin

    foreign = [name for name in loaded if is_foreign(name)]
    print(json.dumps({"took_ns": took_ns, "loaded": loaded, "foreign": foreign}))


if __name__ == "__main__":
    main(*sys.argv[1:])
