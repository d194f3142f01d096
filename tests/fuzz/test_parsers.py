"""Whatever bytes a parser is given, it returns a value or raises one of our errors: no crash, no hang, bounded memory.

A case that failed is run again with `python -m tests.fuzz NAME --seed SEED`.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.fixtures.sizes import sized
from tests.fuzz.conftest import Fuzzers
from tests.fuzz.of_bombs import BOMBS
from tests.fuzz.parsers import PARSERS

# Each seed is another case: there is nothing to shrink.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@pytest.mark.parametrize("name", PARSERS)
def test_damaged_input_has_a_value_or_an_error_of_ours(name: str, fuzzer: Fuzzers) -> None:
    @settings(max_examples=sized(PARSERS[name].cases, 100 * PARSERS[name].cases), phases=PHASES)
    @given(seed=st.integers(0, 2**48))
    def check(seed: int) -> None:
        fuzzer.check(name, seed)

    check()


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_input_takes_no_gigabytes_and_no_hours(name: str, fuzzer: Fuzzers) -> None:
    fuzzer.check(name, 0)
