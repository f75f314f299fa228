//! Names the library as MPICH's programs want it, and has it load `libmpi_abi.so.1`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for option in binding::empty_library::link_options("libmpi.so.12") {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
    // Installed in lib/canele/mpich. The library two folders above is the one whose statuses are known here, whatever
    // LD_LIBRARY_PATH has.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--disable-new-dtags,-rpath,$ORIGIN/../..");
}
