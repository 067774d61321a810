"""Rules are tested on fewer numbers of ranks than the frame that carries them out."""

from __future__ import annotations

import pytest

#: One rank, uneven parts, and a grid of two dimensions.
RANKS = (1, 3, 4)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if _is_about_a_rule(item) and _ranks(item) not in RANKS}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _is_about_a_rule(item: pytest.Item) -> bool:
    return item.path.parent.name == "tensor" and item.path.name != "test_core.py"


def _ranks(item: pytest.Item) -> int:
    called = getattr(item, "callspec", None)
    return called.params.get("ranks", RANKS[0]) if called else RANKS[0]
