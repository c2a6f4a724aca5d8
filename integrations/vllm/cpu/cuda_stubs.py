"""Empty stand-ins for the CUDA libraries that torch's CUDA build is linked to, so that
`import torch` works on a machine without a GPU and without the 2.7 GB of nvidia wheels.
usage: cuda_stubs.py TORCH_LIB_DIR   (needs gcc, nm)"""
import os, re, subprocess, sys, glob, tempfile
lib = sys.argv[1]
mine = {os.path.basename(p) for p in glob.glob(lib + "/*.so*")}
REAL = {"libcudart.so.13", "libcupti.so.13"}          # small, taken from their wheels
need, sym = set(), {}
objs = [os.path.join(lib, f) for f in ("libtorch_cuda.so", "libtorch_python.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_cuda_linalg.so", "libtorch_nvshmem.so") if f in mine]
for o in objs:
    for m in re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", o], capture_output=True, text=True).stdout):
        if re.match(r"lib(cu|nv|nccl)", m) and m not in mine: need.add(m)
    for l in subprocess.run(["nm", "-D", "--undefined-only", "--with-symbol-versions", o], capture_output=True, text=True).stdout.splitlines():
        s = l.split()[-1]; n, _, v = s.partition("@")
        sym.setdefault(n, v.lstrip("@"))
need -= REAL
PRE = {"nccl": "nccl", "cudnn": "cudnn", "cublasLt": "cublasLt", "cublas": "cublas", "cusparseLt": "cusparseLt", "cusparse": "cusparse", "cufft": "cufft", "cufile": "cuFile", "curand": "curand", "nvrtc": "nvrtc", "cusolver": "cusolver", "nvshmem_host": "nvshmem", "nvJitLink": "nvJitLink"}
for so in sorted(need):
    base = re.match(r"lib(.*?)\.so", so).group(1); pre = PRE.get(base, base)
    ss = sorted(n for n, v in sym.items() if n.startswith(pre) and not (pre == "cublas" and n.startswith("cublasLt")) and not (pre == "cusparse" and n.startswith("cusparseLt")))
    vers = {}
    for n in ss: vers.setdefault(sym[n], []).append(n)
    with tempfile.TemporaryDirectory() as d:
        open(d + "/a.c", "w").write("".join(f"long {n}(void){{return 1;}}\n" for n in ss) or "int draftscope_stub;\n")
        cmd = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-Wl,-soname," + so, "-o", f"{lib}/{so}", d + "/a.c"]
        if any(vers):
            open(d + "/v", "w").write("".join("%s { global: %s; };\n" % (v, "; ".join(x)) for v, x in vers.items() if v))
            cmd.append("-Wl,--version-script=" + d + "/v")
        subprocess.run(cmd, check=True)
    print(so, len(ss), sorted(vers))
