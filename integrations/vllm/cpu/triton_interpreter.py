"""Makes Triton usable by vLLM's V2 model runner on a CPU. usage: triton_interpreter.py FOLDER   (where Triton 3.9.0 was installed)

Triton on PyPI has no backend for CPUs, without which vLLM takes Triton for absent. Kernels need none to run in Triton's
interpreter, so a backend that compiles nothing is enough: put FOLDER into PYTHONPATH and set TRITON_INTERPRET=1,
TRITON_BACKENDS_IN_TREE=1 and VLLM_USE_V2_MODEL_RUNNER=1. The interpreter takes masks of truth values only, compiled kernels
take numbers as well; it is made as lenient here.
"""

import os
import sys

DRIVER = '''import triton.backends.driver as base


class CPUDriver(base.DriverBase):
    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", 0, 0)

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_benchmarker(self):
        return lambda call, quantiles=None, **_: [0.0] * 3

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):
        return 0

    def get_device_interface(self):
        import torch

        return torch.cpu
'''

COMPILER = '''import triton.backends.compiler as base


class CPUBackend(base.BaseBackend):
    binary_ext = "cpu"

    @staticmethod
    def supports_target(target):
        return target.backend == "cpu"

    def hash(self):
        return "cpu"

    def parse_options(self, options):
        raise NotImplementedError("kernels run in the interpreter: set TRITON_INTERPRET=1")

    def add_stages(self, stages, options, language=None):
        pass

    def load_dialects(self, context):
        pass

    def get_module_map(self):
        return {}
'''

MASKS = (
    ("_interpreter.load(ptrs.data, mask.data,", "_interpreter.load(ptrs.data, np.asarray(mask.data).astype(bool),"),
    ("_interpreter.store(ptrs.data, value.data, mask.data)",
     "_interpreter.store(ptrs.data, value.data, np.asarray(mask.data).astype(bool))"),
)


def main():
    triton = os.path.join(sys.argv[1], "triton")
    backend = os.path.join(triton, "backends", "cpu")
    os.makedirs(backend, exist_ok=True)
    for name, text in (("__init__.py", ""), ("driver.py", DRIVER), ("compiler.py", COMPILER)):
        with open(os.path.join(backend, name), "w") as file:
            file.write(text)
    path = os.path.join(triton, "runtime", "interpreter.py")
    with open(path) as file:
        text = file.read()
    for before, after in MASKS:
        if before not in text and after not in text:
            raise SystemExit(f"{path} does not have {before!r}: another version of Triton than 3.9.0?")
        text = text.replace(before, after)
    with open(path, "w") as file:
        file.write(text)


main()
