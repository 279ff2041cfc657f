"""The colours of the classes of a segmentation."""


def palette(classes: int) -> list[list[int]]:
    """Returns a colour `[red, green, blue]` for each class: those of Pascal VOC, of which the first is black."""
    return [[_channel(number >> shift) for shift in range(3)] for number in range(classes)]


def _channel(bits: int) -> int:
    """Returns bits 0, 3 and 6 of a number as the highest bits of a byte: neighbours in the list differ much."""
    return (bits & 1) << 7 | (bits >> 3 & 1) << 6 | (bits >> 6 & 1) << 5
