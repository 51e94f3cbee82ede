#!/bin/sh
# Makes the release of one scheduled run, once: release.sh DIRECTORY OPTIONS-OF-beam-dpne-ngrams
# A try after the one that published finds that release, and does nothing.
set -eu
release=$1
shift
find_it='
import sys
from beam_dpne import errors, read_release
try:
    read_release(sys.argv[1]).verify()
except errors.ReleaseError as error:
    sys.exit(f"No whole release is there yet. {error}")
'
if python3 -c "$find_it" "$release"; then
  exit 0
fi
exec python3 -m beam_dpne ngrams --output "$release" "$@"
