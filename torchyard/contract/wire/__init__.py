"""What requests, answers and records are written in: their bases, and the form of texts and units."""
