"""Spack recipe of Canele. It builds the checkout in which it lies:

    spack repo add packaging/spack
    spack install canele
"""

import os

from spack.package import *

CHECKOUT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))


class Canele(Package):
    """MPI for machines that are far apart, and for machines with more ranks than cores."""

    homepage = "file://" + CHECKOUT
    git = "file://" + CHECKOUT

    license("Apache-2.0 OR MIT")

    version("main", branch="main")

    variant("fortran", default=True, description="Fortran wrappers, which need a Fortran compiler")
    variant("pmix", default=True, description="Ranks may be started through PMIx, as by srun --mpi=pmix")

    provides("mpi@:5.0")

    depends_on("c", type="build")
    depends_on("fortran", type=("build", "run"), when="+fortran")
    depends_on("rust@1.95:", type="build")
    depends_on("python@3.9:", type="build")
    depends_on("gmake", type="build")
    depends_on("binutils", type="build")
    # Loaded when a rank starts.
    depends_on("pmix@2:", type="run", when="+pmix")

    def install(self, spec, prefix):
        Executable("scripts/build.sh")()
        Executable("scripts/install.sh")(prefix)

    def setup_run_environment(self, env):
        env.set("MPI_HOME", self.prefix)
        if self.spec.satisfies("+pmix"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["pmix"].prefix.lib)
        self.set_wrappers(env)

    def set_wrappers(self, env):
        env.set("MPICC", self.prefix.bin.mpicc)
        env.set("MPICXX", self.prefix.bin.mpicxx)
        for name in ("MPIFC", "MPIF90", "MPIF77"):
            env.set(name, self.prefix.bin.mpifort)

    def setup_dependent_build_environment(self, env, dependent_spec):
        self.set_wrappers(env)
        # The wrappers call Spack's compilers.
        env.set("CANELE_CC", spack_cc)
        env.set("CANELE_CXX", spack_cxx)
        env.set("CANELE_FC", spack_fc)

    def setup_dependent_package(self, module, dependent_spec):
        self.spec.mpicc = self.prefix.bin.mpicc
        self.spec.mpicxx = self.prefix.bin.mpicxx
        self.spec.mpifc = self.prefix.bin.mpifort
        self.spec.mpif77 = self.prefix.bin.mpifort
