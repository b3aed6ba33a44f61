"""What a customer expects to read on an invoice."""
from decimal import Decimal

import pytest

from money import line_total


@pytest.mark.parametrize(
    ("quantity", "unit_price", "total"),
    [("2", "19.99", "39.98"), ("0.5", "0.05", "0.03"), ("3", "0.335", "1.01")],
)
def test_a_line_is_rounded_as_the_rules_say(quantity, unit_price, total):
    assert line_total(quantity, unit_price) == Decimal(total)
