"""The programs that the service and the trainer are compared with."""
