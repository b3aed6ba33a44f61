"""Sums of money, in cents."""
from decimal import Decimal, ROUND_HALF_EVEN


def line_total(quantity: str, unit_price: str) -> Decimal:
    """The total of one invoice line, rounded to cents."""
    return (Decimal(quantity) * Decimal(unit_price)).quantize(Decimal("0.01"), rounding=ROUND_HALF_EVEN)
