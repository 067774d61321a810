"""Rules are tested on fewer numbers of ranks than the frame that carries them out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

#: One rank, uneven parts, and a grid of two dimensions.
RANKS = (1, 3, 4)
#: Layouts that a test draws for each of the many functions; the database of operators has more.
EXAMPLES = 8


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if _is_about_a_rule(item) and _ranks(item) not in RANKS}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if _is_about_a_rule(item):
            _draw_few(item.function)


def _draw_few(test: Callable[..., None]) -> None:
    """Let a property test draw no more than EXAMPLES."""
    name = "_hypothesis_internal_use_settings"
    chosen = getattr(test, name, None)
    if chosen is not None:
        setattr(test, name, settings(chosen, max_examples=min(EXAMPLES, chosen.max_examples)))


def _is_about_a_rule(item: pytest.Item) -> bool:
    return item.path.parent.name == "tensor" and item.path.name != "test_core.py"


def _ranks(item: pytest.Item) -> int:
    called = getattr(item, "callspec", None)
    return called.params.get("ranks", RANKS[0]) if called else RANKS[0]
