"""`worker.engines.slurm.node`, with a stand-in for torchrun: tests of the engine need no torch."""

from tests.worker.stand_in import TorchrunStandIn
from worker.engines.slurm import node, preparing

if __name__ == "__main__":
    preparing.TorchrunLauncher = TorchrunStandIn
    node.main()
