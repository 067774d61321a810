"""The runner's tests start processes of their own; they share `launching`."""

import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("launching")
sys.path.insert(0, str(Path(__file__).resolve().parent))
