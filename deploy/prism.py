"""`python3 -m deploy.prism` builds Beam's Prism runner, if need be, and prints its path (prism.md)."""

import sys

from deploy.downloads import DeployError, prism


def main() -> int:
    """Prints what `--prism_location` wants; returns the exit status."""
    try:
        print(prism())
    except DeployError as error:
        print(f"deploy.prism: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
