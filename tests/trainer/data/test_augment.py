"""Augmentation depends on seed, epoch and index alone, and is the same for a picture and its mask."""

import pytest
import torch
from torch import Tensor

from trainer.data.augment import AREA, Augment, uniform

NAMES = ["hflip", "vflip", "rotate90", "crop", "color"]


def picture(height: int = 12, width: int = 12, *, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (channels, height, width), generator=generator, dtype=torch.uint8)


def mask(side: int = 32) -> Tensor:
    """Returns a mask without symmetry."""
    values = torch.zeros(1, side, side, dtype=torch.uint8)
    values[:, side // 8 : side // 2, side // 4 :] = 1
    return values


@pytest.mark.parametrize("names", [[name] for name in NAMES] + [NAMES])
def test_changes_depend_on_seed_epoch_and_index_alone(names: list[str]) -> None:
    image = picture()
    before = torch.random.get_rng_state()

    def seen(seed: int, epoch: int) -> list[Tensor]:
        augment = Augment(names, seed=seed)
        return [augment(image, epoch=epoch, index=index)[0] for index in range(8)]

    first = seen(7, 3)
    assert all(torch.equal(*pair) for pair in zip(first, seen(7, 3), strict=True))
    for other in (seen(8, 3), seen(7, 4), first[1:] + first[:1]):
        assert not all(torch.equal(*pair) for pair in zip(first, other, strict=True))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_sample_is_changed_in_a_batch_as_alone(dtype: torch.dtype) -> None:
    image = picture() if dtype == torch.uint8 else picture().float() / 255
    marks = mask(12)
    augment = Augment(NAMES, seed=2)
    indices = torch.tensor([5, 900, 31])
    images, masks = augment.batch(image.expand(3, -1, -1, -1), marks.expand(3, -1, -1, -1), epoch=1, indices=indices)
    assert masks is not None
    assert (images.dtype, images.shape, masks.dtype) == (dtype, (3, 3, 12, 12), torch.uint8)
    for index, own, own_mask in zip(indices.tolist(), images, masks, strict=True):
        alone, alone_mask = augment(image, marks, epoch=1, index=index)
        assert alone_mask is not None
        assert torch.equal(own_mask, alone_mask)
        assert (own.float() - alone.float()).abs().max() <= (1 if dtype == torch.uint8 else 1e-6)


@pytest.mark.parametrize("names", [["hflip"], ["vflip"], ["rotate90"], ["hflip", "vflip", "rotate90"]])
def test_turns_and_flips_move_picture_and_mask_equally_and_keep_values(names: list[str]) -> None:
    marks = mask()
    augment = Augment(names, seed=0)
    for index in range(16):
        moved, moved_mask = augment(marks * 255, marks, epoch=1, index=index)
        assert moved_mask is not None
        assert torch.equal(moved, moved_mask * 255)
        assert moved.sum() == marks.sum() * 255


def test_a_crop_shows_the_same_part_of_picture_and_mask() -> None:
    marks = mask()
    sizes: list[float] = []
    for index in range(24):
        shown, shown_mask = Augment(["crop"], seed=0)(marks * 255, marks, epoch=1, index=index)
        assert shown_mask is not None
        assert set(shown_mask.unique().tolist()) <= {0, 1}
        assert ((shown > 127) == (shown_mask == 1)).float().mean() > 0.98
        sizes.append(shown_mask.float().mean().item())
    own = marks.float().mean().item()
    assert min(sizes) < 0.8 * own < 1.3 * own < max(sizes)


def test_a_crop_has_an_allowed_size_and_lies_inside_the_picture() -> None:
    ramp = torch.linspace(0, 1, 64).expand(1, 64, 64)
    grid = torch.stack([ramp[0], ramp[0].T])
    widths: list[float] = []
    for index in range(48):
        columns, rows = Augment(["crop"], seed=3)(grid, epoch=1, index=index)[0]
        steps = columns.diff(dim=1)
        assert (steps >= 0).all()
        assert torch.allclose(columns, columns[:1].expand_as(columns), atol=1e-5)
        assert 0 <= columns.min() < columns.max() <= 1
        width, height = ((values.max() - values.min()).item() * 64 / 63 for values in (columns, rows))
        assert AREA[0] * 0.9 < width * height <= 1.01
        assert 0.7 < width / height < 1.4
        widths.append(width)
    assert max(widths) > 0.9
    assert min(widths) < 0.65


def test_a_flip_has_probability_one_half_and_each_turn_one_quarter() -> None:
    image = picture(8, 8)
    count = 400
    batch = image.expand(count, -1, -1, -1)
    flipped, _ = Augment(["hflip"], seed=0).batch(batch, epoch=1, indices=torch.arange(count))
    turned, _ = Augment(["rotate90"], seed=0).batch(batch, epoch=1, indices=torch.arange(count))
    wide, _ = Augment(["rotate90"], seed=0).batch(batch[..., :6], epoch=1, indices=torch.arange(count))

    def times(found: Tensor, wanted: Tensor) -> int:
        return int((found == wanted).flatten(1).all(1).sum())

    assert times(flipped, image) == pytest.approx(count / 2, abs=50)
    assert times(flipped, image) + times(flipped, image.flip(-1)) == count
    turns = [times(turned, image.rot90(turn, (-2, -1))) for turn in range(4)]
    assert turns == pytest.approx([count / 4] * 4, abs=45)
    assert sum(turns) == count
    half = [times(wide, image[..., :6]), times(wide, image[..., :6].rot90(2, (-2, -1)))]
    assert sum(half) == count
    assert half == pytest.approx([count / 2] * 2, abs=50)


def test_color_changes_the_picture_only_and_keeps_grey_pixels_grey() -> None:
    image = picture()
    marks = mask(12)
    augment = Augment(["color"], seed=0)
    changed, kept = augment(image, marks, epoch=1, index=0)
    assert not torch.equal(changed, image)
    assert kept is not None
    assert torch.equal(kept, marks)
    grey, _ = augment(image[:1].expand(3, -1, -1), epoch=1, index=0)
    assert torch.equal(grey[0], grey[1])
    assert torch.equal(grey[1], grey[2])
    means = [augment(image[:1], epoch=1, index=index)[0].float().mean().item() for index in range(32)]
    own = image[:1].float().mean().item()
    assert min(means) < 0.85 * own < 1.1 * own < max(means)


def test_no_augmentation_changes_nothing() -> None:
    image = picture()
    assert torch.equal(Augment([], seed=0)(image, epoch=1, index=0)[0], image)
    with pytest.raises(ValueError, match="swirl"):
        Augment(["swirl"], seed=0)(image, epoch=1, index=0)


def test_the_draws_are_those_of_splitmix64() -> None:
    seed, epoch, index = 2**32 - 1, 1_000_000, 123_456
    golden, mask64 = 0x9E3779B97F4A7C15, 2**64 - 1

    def finalized(value: int) -> int:
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask64
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask64
        return value ^ (value >> 31)

    start = finalized((index + (seed << 20 | epoch) * golden) & mask64)
    expected = [(finalized((start + step * golden) & mask64) >> 40) / 2**24 for step in (1, 2, 3)]
    assert uniform(seed, epoch, torch.tensor([index]), count=3).tolist() == [expected]
    many = uniform(0, 1, torch.arange(20_000), count=2)
    assert many.mean(0).tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    assert torch.corrcoef(many.T)[0, 1].abs() < 0.03
