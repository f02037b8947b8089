"""The blocks of the pages run as they are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from conftest import FRONTIER, ROOT
from test_example import ENV

from worldengine.testing import World

PAGES = ["worldengine/client/python/README.md", "docs/agents.md"]


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.handoffd(world_file=FRONTIER)
def test_python_of_a_page(world: World, page: str) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(import asyncio.*?)^```$", text, re.M | re.S)
    assert blocks
    for block in blocks:
        ran = subprocess.run(
            [sys.executable, "-c", block],
            env={**ENV, "NATS_URL": world.url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("executed EXECUTED")
