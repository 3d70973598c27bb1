"""Large tensors get huge pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SCRIPT = """
import fedsum, re, torch
a_large_vector = torch.ones(16_000_000)  # 64 MB
print(sum(map(int, re.findall(r"AnonHugePages: +([0-9]+) kB", open("/proc/self/smaps").read()))) // 1000)
"""


def huge_pages_in_mb(variables):
    return int(subprocess.run([sys.executable, "-c", _SCRIPT], env=variables, check=True, stdout=-1, text=True).stdout)


@pytest.mark.skipif(
    not _SWITCH.exists() or "[madvise]" not in _SWITCH.read_text(), reason="Linux gives huge pages to all or to nobody"
)
def test_large_tensors_get_huge_pages_unless_the_environment_says_otherwise():
    variables = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    assert huge_pages_in_mb(variables) >= 50
    assert huge_pages_in_mb({**variables, "THP_MEM_ALLOC_ENABLE": "0"}) < 10
