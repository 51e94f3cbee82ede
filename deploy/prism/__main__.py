"""`python3 -m deploy.prism` builds Beam's Prism runner, if need be, and prints its path."""

import argparse
import sys

from deploy.downloads import DownloadError, MissingToolError, prism


def main() -> int:
    """Prints what `--prism_location` wants; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python3 -m deploy.prism",
        description="Builds Beam's Prism runner from its Go module (a minute, once) and prints the "
        "path of the program, for --runner PrismRunner --prism_location PATH.",
    )
    parser.parse_args()
    try:
        print(prism())
    except (MissingToolError, DownloadError) as error:
        print(f"deploy.prism: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
