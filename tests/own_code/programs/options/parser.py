"""The options of the programs beside it, in a file of their own, as many programs have them."""

import argparse


def parsed() -> argparse.Namespace:
    """Returns the arguments of the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--augment", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--fp16", type=lambda text: {"true": True, "false": False}[text], default=False)
    parser.add_argument("--betas", type=float, nargs=2, default=[0.9, 0.999])
    parser.add_argument("--learning-rate", type=str, default="1")
    parser.add_argument("--out", default="out")
    return parser.parse_args()
