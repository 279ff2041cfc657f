"""Prints its numbers, and reports them in no other way."""

for epoch in range(3):
    print(f"epoch {epoch} | loss: {0.5**epoch} | acc={(epoch + 1) / 10}")
