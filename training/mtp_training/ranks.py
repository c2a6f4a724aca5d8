"""Several processes that train one module together, each on batches of its own: gradients are added up before each step.

    python -m torch.distributed.run --nproc_per_node 2 -m mtp_training.train RUN train.threads=1

On a CPU, two processes of one thread each see more chain starts per second than one process of two threads.
"""

import os

import torch
import torch.distributed as dist


class Ranks:
    """This process among those that train together; alone unless started by torch.distributed.run."""

    def __init__(self):
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if self.size > 1:
            dist.init_process_group("gloo")

    @property
    def first(self):
        """Whether this is the one that validates, logs and saves."""
        return self.rank == 0

    def same(self, tensor):
        """Gives all of them the first one's."""
        if self.size > 1:
            dist.broadcast(tensor, 0)
        return tensor

    def told(self, numbers):
        """The first one's numbers."""
        return self.same(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def told_by_all(self, thing):
        """Everybody's, the first one's first."""
        things = [thing] * self.size
        if self.size > 1:
            dist.all_gather_object(things, thing)
        return things

    def add_up(self, parameters, rows):
        """Adds the gradients of all of them; gives the sum of their rows."""
        if self.size == 1:
            return rows
        parameters = list(parameters)
        flat = torch.cat([p.grad.flatten() for p in parameters] + [torch.tensor([float(rows)], device=parameters[0].device)])
        dist.all_reduce(flat)
        for p, part in zip(parameters, flat.split([p.numel() for p in parameters] + [1])):
            p.grad.copy_(part.view_as(p))
        return int(flat[-1])
