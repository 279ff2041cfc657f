"""The recipes' models and their preprocessing, as training and prediction share them. Needs the extra `models`."""
