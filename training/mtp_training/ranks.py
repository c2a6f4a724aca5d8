"""Several processes train one module together, each on its own batches; gradients are summed before each step.

    python -m torch.distributed.run --nproc_per_node 2 -m mtp_training.train RUN train.threads=1

On a CPU, two processes with one thread each process more chain starts per second than one process with two threads.
"""

import os

import torch
import torch.distributed as dist


class Ranks:
    """This process among those that train together; the only one unless started by torch.distributed.run."""

    def __init__(self):
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if self.size > 1:
            dist.init_process_group("gloo")

    @property
    def first(self):
        """Whether this is the process that validates, logs and saves."""
        return self.rank == 0

    def same(self, tensor):
        """Copies the first process's tensor to all others."""
        if self.size > 1:
            dist.broadcast(tensor, 0)
        return tensor

    def of_first(self, numbers):
        """The numbers of the first process."""
        return self.same(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def gather(self, thing):
        """The objects of all processes, in order."""
        things = [thing] * self.size
        if self.size > 1:
            dist.all_gather_object(things, thing)
        return things

    def add_up(self, parameters, rows):
        """Sums the gradients of all processes; returns the sum of their rows."""
        if self.size == 1:
            return rows
        parameters = list(parameters)
        flat = torch.cat([p.grad.flatten() for p in parameters] + [torch.tensor([float(rows)], device=parameters[0].device)])
        dist.all_reduce(flat)
        for p, part in zip(parameters, flat.split([p.numel() for p in parameters] + [1])):
            p.grad.copy_(part.view_as(p))
        return int(flat[-1])
