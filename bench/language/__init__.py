"""The fine-tuning of a language model beside TRL's SFTTrainer."""
