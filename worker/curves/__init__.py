"""Reads curves from files that an attempt writes without knowing of Torchyard: TensorBoard's, wandb's and MLflow's."""
