"""The command `run`: packs the working directory, uploads it and runs it; and the settings that it has."""
