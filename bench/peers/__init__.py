"""The programs beside which the service and the trainer are measured."""
