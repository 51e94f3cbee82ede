"""What numpy is told of the processor: AVX-512 is slow at sorting on AMD's Zen 4.

There numpy sorts with an instruction that stores the chosen lanes of a vector, which takes this
processor some hundred cycles. Its sorts by AVX2 are about five times as fast, and a run sorts for a
fifth of its time. numpy reads its setting when it is imported, so `beam-dpne` and the pool of workers
write it first. It is as if the run were on another kind of processor: released rows are the same, and
probabilities in a ledger may have another last digit.
"""

import importlib.metadata
import os
import pathlib
import re

# What numpy may do without; both names are read by numpy, which refuses to be given the two.
_DISABLED, _ENABLED = "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"
# The family of Zen 3 and Zen 4, of which Zen 4 has AVX-512. Zen 5 is another one, and fast.
_FAMILY = 0x19
_AVX512 = "X86_V4"
# Its names before numpy 2.4, which takes AVX-512 unless all are disabled.
_AVX512_BEFORE = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
# The first processor of the file, which has as many parts as there are processors.
_BYTES = 4096
_CPUINFO = pathlib.Path("/proc/cpuinfo")


def numpy_settings(cpuinfo: pathlib.Path = _CPUINFO) -> dict[str, str]:
    """Returns what the environment of a process should have before numpy is imported, if anything.

    Args:
      cpuinfo: Linux's description of the processors; other systems have none.

    References: numpy/x86-simd-sort issue 6.
    """
    if _DISABLED in os.environ or _ENABLED in os.environ or not _sorts_slowly(cpuinfo):
        return {}
    is_before = re.match(r"1\.|2\.[0-3]\b", importlib.metadata.version("numpy"))
    return {_DISABLED: _AVX512_BEFORE if is_before else _AVX512}


def set_numpy() -> None:
    """Tells numpy, if this process has not imported it yet, and all processes that are started."""
    os.environ.update(numpy_settings())


def _sorts_slowly(cpuinfo: pathlib.Path) -> bool:
    """Whether the processor is a Zen 4."""
    try:
        with cpuinfo.open("rb") as file:
            first = file.read(_BYTES).decode("ascii", "replace").partition("\n\n")[0]
    except OSError:
        return False
    fields = dict(re.findall(r"^(vendor_id|cpu family|flags)\s*: (.*)$", first, re.MULTILINE))
    return (
        fields.get("vendor_id") == "AuthenticAMD"
        and fields.get("cpu family") == str(_FAMILY)
        and "avx512f" in fields.get("flags", "").split()
    )
